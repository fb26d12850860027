"""`onbudget tune` as a person meets it: real runs, real servers, real load, and a plan that is served."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from onbudget.core.plan import Plan, parse
from onbudget.engine.bundle import file_sha256
from tests import models
from tests.support.children import Start
from tests.support.tiles import Tiles

pytestmark = pytest.mark.e2e


def tune(*words: Any) -> tuple[int, str, str]:
    command = [sys.executable, "-W", "error", "-m", "onbudget", "tune", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def read(path: Path) -> Plan:
    return parse(path.read_bytes(), path.name)


def test_the_highest_rate_that_holds_and_a_plan_that_is_served(start: Start, tmp_path: Path) -> None:
    """A generous budget on however busy a machine; the plan serves the same model on the same machine unwarned."""
    model, out, report = models.write(models.slow(), tmp_path / "m.onnx"), tmp_path / "plan.json", tmp_path / "t.html"
    limits = ("--lanes", 1, "--threads", 1, "--max-batch", 4, "--finalists", 1, "--time-budget", "8s")
    code, told, said = tune(model, "--p95", "300ms", *limits, "-o", out, "--report", report)
    assert code == 0, said
    plan = read(out)
    assert (plan.model, plan.sha256, plan.p95_s) == ("m.onnx", file_sha256(model), 0.3)
    assert plan.chosen.lanes == plan.chosen.threads == 1
    assert plan.limit_rate > 0
    assert plan.choice.measured_limit
    assert len(plan.choice.trials) == 4
    assert plan.choice.curve
    assert plan.costs
    assert f"chosen: {plan.chosen}: it held up to" in told
    assert f"next: onbudget serve {model} --plan {out}" in told
    assert report.read_text().startswith("<!doctype html>")
    child = start(model, "--plan", str(out))
    settings = httpx.get(child.url + "/ready").json()["settings"]
    assert (settings["lanes"], settings["policy"], settings["p95_ms"]) == (1, plan.chosen.policy, 300)
    assert settings["max_batch"] <= plan.chosen.max_batch
    assert "warning" not in child.log


def test_two_variants_under_two_loads(tmp_path: Path) -> None:
    """JSON is the plan; what was asked is in it, and the variant that was not chosen is named among its candidates."""
    slow = models.write(models.slow(), tmp_path / "slow.onnx")
    fast = models.write(models.slow(channels=2), tmp_path / "fast.onnx")
    limits = ("--lanes", 1, "--threads", 1, "--max-batch", 1, "--finalists", 2, "--time-budget", "10s")
    loads = ("--quiet", "20/s", "--peak", "40/s", "--policies", "deadline")
    code, told, said = tune(slow, fast, "--p95", "500ms", *loads, *limits, "--json")
    assert code == 0, said
    plan = parse(told, "stdout")
    assert (plan.quiet, plan.peak) == (20, 40)
    assert plan.model == "fast.onnx"
    assert plan.sha256 == file_sha256(fast)
    assert [one.model for one in plan.candidates] == ["", "slow.onnx"]
    assert all(one.measured for one in plan.candidates)


def test_what_cannot_be_held_ends_with_13_and_no_plan(tiles: Tiles, tmp_path: Path) -> None:
    """One sentence with the wall and the nearest budget; the file of an earlier plan stays as it was."""
    out = tmp_path / "plan.json"
    out.write_text("an earlier one")
    limits = ("--lanes", 1, "--threads", 1, "--max-batch", 2, "--time-budget", "3s")
    code, told, said = tune(tiles.bundle, "--p95", "10us", *limits, "-o", out)
    assert code == 13
    assert told == ""
    assert "is the wall. The nearest budget is" in said
    assert out.read_text() == "an earlier one"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--quiet", "20/s"), "--quiet and --peak belong together"),
        (("--quiet", "90/s", "--peak", "20/s"), "is more than --peak"),
        (("--quiet", "0.01/s", "--peak", "9/s"), "--quiet 0.01/s is too few requests to tell a p95 by: give 2/s"),
        (("--policies", "timer"), "policies are deadline, greedy, not 'timer'"),
        (("--trace", "t.txt", "--quiet", "1/s", "--peak", "2/s"), "--trace has its own times"),
        (("--trace", "nowhere.txt"), "nowhere.txt cannot be read"),
        (("--cores", "900"), "--cores 900: this process may use"),
        (("--format", "octet", "tests.onnx", "tests.onnx"), "tests.onnx is given twice"),
        (("-o", "nowhere/plan.json"), "there is no folder nowhere"),
    ],
)
def test_what_cannot_be_meant_is_told_before_anything_runs(tiles: Tiles, words: tuple[str, ...], said: str) -> None:
    """Exit code 2 and a sentence."""
    code, told, err = tune(tiles.bundle, "--p95", "20ms", *words)
    assert (code, told) == (2, "")
    assert said in err


def test_a_budget_is_needed(tiles: Tiles) -> None:
    """It is what everything is judged by."""
    code, _, said = tune(tiles.bundle)
    assert code == 2
    assert "add --p95 20ms" in said


def test_a_trace_is_replayed(tiles: Tiles, tmp_path: Path) -> None:
    """Recorded arrivals in place of rates; the plan names the file."""
    trace = tmp_path / "monday.txt"
    trace.write_text("".join(f"{i / 50}\n" for i in range(1, 101)))
    limits = ("--lanes", 1, "--threads", 1, "--max-batch", 2, "--finalists", 1, "--time-budget", "6s")
    code, told, said = tune(tiles.bundle, "--p95", "500ms", "--trace", trace, *limits, "--json")
    assert code == 0, said
    plan = parse(told, "stdout")
    assert (plan.trace, plan.quiet) == (str(trace), None)
    assert json.loads(told)["trace"] == str(trace)
    assert plan.choice.measured is not None
    assert plan.choice.measured.peak_s <= 0.5
    assert "the busiest" not in " ".join(plan.notes)  # it was short enough to be replayed whole


def test_a_trace_of_too_few_requests_is_refused_before_anything_runs(tiles: Tiles, tmp_path: Path) -> None:
    """Exit code 2 and how many there are."""
    trace = tmp_path / "quiet.txt"
    trace.write_text("0\n0.5\n")
    code, _, said = tune(tiles.bundle, "--p95", "500ms", "--trace", trace)
    assert code == 2
    assert "have 2 requests, and a p95 wants 20" in said
    assert "profiling" not in said


def test_of_a_long_trace_the_busiest_stretch_is_replayed(tiles: Tiles, tmp_path: Path) -> None:
    """A calm hour with a burst in it: the burst is what the budget is for."""
    trace = tmp_path / "monday.txt"
    burst = [1800 + i / 100 for i in range(120)]
    trace.write_text("".join(f"{at}\n" for at in sorted([*range(0, 3600, 10), *burst])))
    limits = ("--lanes", 1, "--threads", 1, "--max-batch", 1, "--finalists", 1, "--time-budget", "5s")
    code, told, said = tune(tiles.bundle, "--p95", "500ms", "--trace", trace, *limits, "--json")
    assert code == 0, said
    plan = parse(told, "stdout")
    assert "from 1800 s on: 121 requests" in " ".join(plan.notes)
    assert plan.choice.trials[0].offered == 121
