"""`onbudget demo` as a person runs it: once with figures, and staying up until it is stopped in one way or another."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onbudget.engine.embedded import tiles

pytestmark = pytest.mark.e2e
Run = Callable[..., subprocess.Popen[str]]


def _left(mark: str) -> list[int]:
    """Processes that carry this mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:  # gone meanwhile, or not ours
            continue
    return found


def _none_left(mark: str, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while _left(mark) and time.monotonic() < end:
        time.sleep(0.05)
    return not _left(mark)


@pytest.fixture
def mark() -> str:
    """A word that only this test's processes know."""
    return uuid.uuid4().hex


@pytest.fixture
def demo(mark: str, tmp_path: Path) -> Iterator[Run]:
    """`demo(*flags)` starts the command in an empty folder; whatever is left of it is killed after the test."""

    def start(*flags: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "error", "-m", "onbudget", "demo", *flags]
        return subprocess.Popen(
            command,
            cwd=tmp_path,
            env={**os.environ, "MARK": mark},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    yield start
    for process in _left(mark):
        os.kill(process, signal.SIGKILL)


def test_once_as_json(demo: Run, mark: str) -> None:
    """One JSON document on stdout: tiles as recorded, a row for each server and load, a verdict; then all is over."""
    out, err = demo("--once", "--json", "--seconds", "2").communicate(timeout=110)
    told = json.loads(out)
    assert not _left(mark), err
    for tile, recorded in zip(told["tiles"], tiles(), strict=True):
        assert (tile["tile"], tile["truth"], tile["label"]) == (recorded.name, recorded.truth, recorded.label)
        assert tile["confidence"] == pytest.approx(recorded.confidence, abs=1e-3)
    rows = {(row["server"], row["load"]): row for row in told["rows"]}
    assert list(rows) == [("onbudget", "quiet"), ("by hand", "quiet"), ("onbudget", "peak"), ("by hand", "peak")]
    for load in ("quiet", "peak"):
        ours, naive = rows["onbudget", load], rows["by hand", load]
        assert ours["requests"] == naive["requests"] > 20
        assert ours["mean_batch"] >= naive["mean_batch"] == 1
        assert {ours["budget"], naive["budget"]} <= {"met", "missed", "undecided"}
    slower, faster = sorted(told["flat_out_per_s"].values())
    assert 0 < rows["onbudget", "peak"]["offered_per_s"] < faster
    assert rows["onbudget", "quiet"]["offered_per_s"] < slower
    assert told["budget_ms"] == 25
    assert told["verdict"].endswith(".")
    assert "Traceback" not in err


def _stays_up(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Read stderr until the demo says that its server stays up → its address, and the curl line."""
    assert process.stderr is not None
    for line in process.stderr:
        if "still up" in line:
            return line.split()[-1], process.stderr.readline().strip()
    raise AssertionError("the demo ended without leaving its server up")


@pytest.mark.slow
@pytest.mark.needs("bash", "curl")
def test_it_stays_up_until_ctrl_c(demo: Run, mark: str) -> None:
    """The server answers at the printed address, the printed curl line works, and Ctrl-C ends all of it with exit 0."""
    process = demo("--seconds", "1")
    url, curl = _stays_up(process)
    with urllib.request.urlopen(f"{url}/docs") as page:
        assert page.status == 200
    answer = subprocess.run(["bash", "-c", f"{curl} -s"], capture_output=True, check=True)
    assert json.loads(answer.stdout)["label"] == "built-up"
    assert len(_left(mark)) == 2, "the service by hand is over, the server is not"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Traceback" not in err
    assert re.search(r"^12 of 12 right$", out, re.MULTILINE)
    assert out.count("onbudget") >= 3, "the table has been printed"
    assert _none_left(mark)


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda s: s.name)
def test_no_child_is_left_behind(demo: Run, mark: str, sig: signal.Signals) -> None:
    """However the demo is ended in the middle of its work, its servers end with it."""
    process = demo()
    assert process.stderr is not None
    for line in process.stderr:  # both servers are up when it says this
        if line.startswith("comparing"):
            break
    assert len(_left(mark)) == 3
    process.send_signal(sig)
    _, err = process.communicate(timeout=30)
    assert process.returncode == (-sig if sig == signal.SIGKILL else 130)
    # where it is told in the middle of an import, Python warns of the module's file, as it is run with all warnings
    err = re.sub(r"Exception ignored in:.*?\nResourceWarning: unclosed file[^\n]*\n", "", err, flags=re.DOTALL)
    assert "Traceback" not in err
    assert _none_left(mark)
