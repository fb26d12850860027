"""macOS and Windows, as far as Linux can play them: what they lack is missed by nobody (tests/support/elsewhere)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.support.children import Start

pytestmark = pytest.mark.e2e

FOLDER = Path(__file__).parents[1] / "support" / "elsewhere"
SYSTEMS = pytest.mark.parametrize("system", ["darwin", "win32"])


@pytest.fixture(autouse=True)
def _elsewhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every interpreter that the test starts is of the system that it is given."""
    callspec = request.node.callspec.params
    monkeypatch.setenv("ELSEWHERE", callspec["system"])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(FOLDER), os.environ.get("PYTHONPATH")])))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "onbudget", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


@SYSTEMS
def test_it_is_another_system(system: str) -> None:
    """The stage is set: what that system lacks is not there, in a child either."""
    program = "import sys, os; print(sys.platform, hasattr(os, 'sched_getaffinity'), hasattr(os, 'pread'))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == [system, "False", str(system == "darwin")]


@SYSTEMS
def test_a_server_answers_and_a_load_test_judges_it(start: Start, system: str) -> None:
    """The embedded model is served, answers, tells its status and takes load; every request is answered."""
    child = start(None, "--p95", "500ms")
    answer = httpx.post(f"{child.url}/predict", json={"tiles": [[0] * 12288]})
    assert (answer.status_code, len(answer.json()["predictions"])) == (200, 1), child.log
    assert httpx.get(f"{child.url}/status").status_code == 200
    done = run("load", child.url, "--rate", "20/s", "--duration", "1s", "--warmup", "0.2s", "--json")
    told = json.loads(done.stdout)
    assert done.returncode in (0, 11), done.stderr  # a busy machine may leave it undecided
    assert told["answered"] == told["offered"] > 0, done.stdout
    assert "Traceback" not in child.log + done.stderr
    assert child.end() == 0


@SYSTEMS
def test_cores_that_cannot_be_set_apart_are_a_sentence(system: str, tmp_path: Path) -> None:
    """`tune --cores 1` says that this system has no such thing, at once, with exit code 2."""
    if os.cpu_count() == 1:
        pytest.skip("one core is all cores")
    done = run("tune", str(tmp_path / "any.onnx"), "--p95", "20ms", "--cores", "1")
    assert done.returncode == 2
    assert f"--cores 1: {system} does not let a program choose its cores; leave it out" in done.stderr


@SYSTEMS
@pytest.mark.slow
def test_the_demo_runs(system: str) -> None:
    """Servers are started, compared and ended where no core can be set apart and no signal be sent to a group."""
    done = run("demo", "--once", "--seconds", "1", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {row["server"] for row in told["rows"]} == {"onbudget", "by hand"}
    assert "Traceback" not in done.stderr
