"""The hot path costs what `benchmarks/guard.json` says, in bytecode instructions and bytes, and the guard can fail."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"
SPEC = importlib.util.spec_from_file_location("guard", FOLDER / "guard.py")
assert SPEC is not None
assert SPEC.loader is not None
guard: Any = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(guard)

stored = pytest.mark.skipif(
    guard.MINOR not in guard.stored(),
    reason=f"no counts are stored for Python {guard.MINOR}, and bytecode differs with it: "
    "python benchmarks/guard.py --store",
)


def ran(*command: str) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, in a process whose clock may be pretended."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    return subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, timeout=100)


@pytest.fixture(scope="module")
def now() -> dict[str, dict[str, int]]:
    """The counts of all kinds, in a process of their own."""
    done = ran(str(FOLDER / "guard.py"), "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@stored
def test_a_request_costs_what_is_stored(now: dict[str, dict[str, int]]) -> None:
    """No kind of request has become dearer or cheaper by more than 5 % without its new counts being stored."""
    told = guard.moved(guard.stored()[guard.MINOR], now)
    assert not told, "\n".join(told)


def test_the_counts_are_exact(now: dict[str, dict[str, int]]) -> None:
    """Another process counts the same to the last instruction and the last byte."""
    assert json.loads(ran(str(FOLDER / "guard.py"), "json", "--json").stdout) == {"json": now["json"]}


MUTATED = """
import sys
sys.path.insert(0, {folder!r})
import guard
guard.pretend_time()
from onbudget.serve.service import Service
before = Service.predict
def predict(self, request, reply):
    {mutation}
    return before(self, request, reply)
Service.predict = predict
sys.exit(guard.main(["json"]))
"""


@stored
@pytest.mark.parametrize(
    ("mutation", "what"), [("for _ in range(100): pass", "instructions"), ("request.body[1:]", "bytes")]
)
def test_the_guard_can_fail(mutation: str, what: str) -> None:
    """A loop in the hot path, and a copy of the body that is thrown away at once, are told by their own count."""
    done = ran("-c", MUTATED.format(folder=str(FOLDER), mutation=mutation))
    assert done.returncode == 1, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("json: ")]
    assert f" {what}, +" in line
    assert line.endswith("dearer")
    assert "--store" in done.stderr


def test_what_is_told_of_counts_that_moved() -> None:
    """Dearer fails, cheaper fails as good news, up to 5 % passes, and kinds must be the same on both sides."""
    before = {name: {"instructions": 1000} for name in ("same", "dearer", "cheaper", "gone")}
    now = {"same": 1050, "dearer": 1051, "cheaper": 949, "new": 1}
    told = guard.moved(before, {name: {"instructions": count} for name, count in now.items()})
    assert told[:-1] == [
        "new: nothing is stored for it",
        "gone: stored, but no longer counted",
        "dearer: 1,051 instructions, +5.1% from 1,000: dearer",
        "cheaper: 949 instructions, -5.1% from 1,000: cheaper, which is good news",
    ]
    assert told[-1].endswith("python benchmarks/guard.py --store")
    assert guard.moved({"same": before["same"]}, {"same": {"instructions": 950}}) == []
