"""`onbudget serve --plan`: a server runs as the plan says, where nobody says otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from onbudget.core.plan import Candidate, Configuration, Plan
from onbudget.engine.bundle import file_sha256
from onbudget.engine.machine import Machine
from onbudget.engine.plans import write_plan
from tests.support.children import Start
from tests.support.tiles import Tiles

pytestmark = pytest.mark.e2e

CHOSEN = Configuration(lanes=2, threads=1, max_batch=4, policy="greedy")


def write(path: Path, model: Path, **given: Any) -> str:
    values: dict[str, Any] = {
        "model": model.name,
        "sha256": file_sha256(model),
        "machine": Machine.read().facts(),
        "p95_s": 0.25,
        "quiet": None,
        "peak": None,
        "chosen": CHOSEN,
        "candidates": (Candidate(CHOSEN, 100.0),),
        "notes": (),
        "started": "2026-01-02T03:04:05+00:00",
        "seconds": 1.0,
        "made_by": "a test",
    }
    write_plan(Plan(**values | given), path)
    return str(path)


def served(url: str) -> dict[str, Any]:
    told = httpx.get(url + "/ready").json()["settings"]
    return {name: told[name] for name in ("p95_ms", "lanes", "threads", "max_batch", "policy")}


def test_a_plan_is_served_as_it_says(start: Start, tiles: Tiles, tmp_path: Path) -> None:
    """Budget, lanes, threads, largest batch and policy; on its own machine without a warning."""
    child = start(tiles.bundle, "--plan", write(tmp_path / "plan.json", tiles.bundle))
    assert served(child.url) == {"p95_ms": 250, "lanes": 2, "threads": 1, "max_batch": 4, "policy": "greedy"}
    assert "warning" not in child.log


def test_what_is_given_wins_over_the_plan(
    start: Start, tiles: Tiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flag, even of the default's value, and the environment; the rest is the plan's."""
    monkeypatch.setenv("ONBUDGET_LANES", "1")
    plan = write(tmp_path / "plan.json", tiles.bundle)
    child = start(tiles.bundle, "--max-batch", "16", "--plan", plan)
    assert served(child.url) == {"p95_ms": 250, "lanes": 1, "threads": 1, "max_batch": 16, "policy": "greedy"}


def test_a_policy_that_needs_a_budget_takes_the_plans(start: Start, tiles: Tiles, tmp_path: Path) -> None:
    """`--policy deadline` beside a plan needs no --p95 of its own."""
    plan = write(tmp_path / "plan.json", tiles.bundle)
    child = start(tiles.bundle, "--plan", plan, "--policy", "deadline")
    assert served(child.url) | {"max_batch": 0} == {
        "p95_ms": 250,
        "lanes": 2,
        "threads": 1,
        "max_batch": 0,  # the policy's own, up to the plan's
        "policy": "deadline",
    }


def test_another_machines_plan_is_served_with_a_warning(start: Start, tiles: Tiles, tmp_path: Path) -> None:
    """It says which facts differ, and serves."""
    other = Machine.read().facts() | {"hash": "0" * 16, "cpu": "Some Other CPU"}
    child = start(tiles.bundle, "--plan", write(tmp_path / "plan.json", tiles.bundle, machine=other))
    assert "warning:" in child.log
    assert "was made on another machine" in child.log
    assert "cpu Some Other CPU there" in child.log
    assert served(child.url)["max_batch"] == 4


@pytest.mark.parametrize(
    ("given", "said", "code"),
    [
        ({"sha256": "e" * 64}, "not of the model with sha256", 2),
        (None, "cannot be read", 2),
        ("{", "is not a plan", 1),
        (
            {"chosen": (big := Configuration(65, 1, 4)), "candidates": (Candidate(big, 1.0),)},
            "must be a whole number from 0 to 64",
            2,
        ),
    ],
    ids=["another model", "no file", "no plan", "beyond an option's limits"],
)
def test_what_cannot_be_served_ends_with_a_sentence(
    start: Start, tiles: Tiles, tmp_path: Path, given: Any, said: str, code: int
) -> None:
    """Another model's plan, a file that is none, numbers that no flag takes: no server, no traceback."""
    path = tmp_path / "plan.json"
    if isinstance(given, str):
        path.write_text(given)
    elif given is not None:
        write(path, tiles.bundle, **given)
    child = start(tiles.bundle, "--plan", str(path), wait=False)
    assert child.process.wait(60) == code
    assert said in child.log
    assert "Traceback" not in child.log
