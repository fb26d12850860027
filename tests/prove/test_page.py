"""The tuner's page: all that a plan says is in it as plain HTML, and nothing from elsewhere or out of place."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from onbudget.core.overheads import Overheads
from onbudget.core.pick import Loads
from onbudget.core.plan import Candidate, Configuration, Plan, Trial
from onbudget.core.profile import Point
from onbudget.prove.page import page
from tests.support.browser import look
from tests.support.html import Read, loads_nothing

CHOSEN, SECOND, SLOW = Configuration(2, 1, 8), Configuration(1, 2, 16, "greedy"), Configuration(1, 1, 4)
BUSY = "this machine was busy"
TRIALS = (
    Trial(20.0, 300, 1.0, 0.0, 0.0041, 0.0039, 0.0044, "met"),
    Trial(800.0, 4000, 0.9996, 0.0001, 0.0113, 0.0101, 0.0127, "met"),
    Trial(1300.0, 5000, 0.4, 0.6, math.inf, 0.0, math.inf, "void", "it was sent late"),
)
WEAK = (Trial(800.0, 3900, 0.94, 0.01, 0.0212, 0.0188, math.inf, "missed", BUSY),)
CANDIDATES = (
    Candidate(SLOW, 0.0, Loads(0.0033, math.inf), model="tiles-int8.onnx"),
    Candidate(SECOND, 1175.0, Loads(0.0037, 0.0097), Loads(0.0043, 0.0212), trials=WEAK),
    Candidate(
        CHOSEN, 1234.0, Loads(0.003, 0.009), Loads(0.0041, 0.0113), None, ((600.0, 0.006), (1400.0, math.inf)), TRIALS
    ),
)
PLAN = Plan(
    model="tiles.onnx",
    sha256="0123456789abcdef" * 4,
    machine={"hash": "a" * 16, "cpu": "Good CPU", "cores": 2.0, "quota": 1.5, "onnxruntime": "1.99.0"},
    p95_s=0.02,
    quiet=20.0,
    peak=800.0,
    chosen=CHOSEN,
    candidates=CANDIDATES,
    notes=("a plain note", f"1 load test is in doubt: {BUSY}"),
    started="2026-01-02T03:04:05+00:00",
    seconds=42.0,
    made_by="onbudget 9.9",
    costs=(Point(1, 2, 1, 31, 0.001, 0.0012, 0.001), Point(1, 2, 8, 32, 0.0064, 0.007, 0.006)),
    overheads=Overheads(0.000123, 0.000034, 0.000095),
)
LIMIT = replace(
    PLAN,
    quiet=None,
    peak=None,
    candidates=tuple(
        replace(c, predicted=None, measured=None, measured_limit=1100.0 if c.trials else None) for c in CANDIDATES
    ),
)


def test_the_head_says_what_was_chosen_for_what_and_where() -> None:
    """Budget, configuration, p95 with its count and verdict, limit, model, machine, when, and the next step."""
    shown = Read(page(PLAN)).shown
    for said in (
        "tiles.onnx: p95 11.3 ms at 800 requests/s, within the budget of 20 ms",
        "Chosen: 2 lanes × 1 thread, max batch 8, deadline",
        "of 300 requests: met (predicted: 3 ms)",
        "of 4,000 requests: met (predicted: 9 ms)",
        "1,234/s",
        "sha256 0123456789ab…",
        "Good CPU, 2 cores, quota 1.5 cores, onnxruntime 1.99.0",
        "2026-01-02 03:04:05 UTC, took 42 s",
        "onbudget serve tiles.onnx --plan plan.json",
    ):
        assert said in shown


def test_a_highest_rate_is_told_as_measured_beside_as_predicted() -> None:
    """With how far they are apart; where no load test looked for it, it says that it is predicted."""
    shown = Read(page(LIMIT)).shown
    assert "tiles.onnx held 1,100 requests/s within a p95 of 20 ms" in shown
    assert "predicted: 1,234/s, 12.2 % more" in shown
    bare = replace(PLAN, quiet=None, peak=None, candidates=(Candidate(CHOSEN, 1234.0),))
    assert "tiles.onnx is predicted to hold 1,234 requests/s" in Read(page(bare)).shown


def test_a_p95_over_the_budget_is_said_in_the_headline() -> None:
    """Not within, whatever the plan chose."""
    over = replace(PLAN, candidates=(replace(CANDIDATES[2], measured=Loads(0.004, math.inf)),))
    assert "p95 no bound at 800 requests/s, not within the budget" in Read(page(over)).shown


def test_every_configuration_has_a_row_the_chosen_one_first_and_marked() -> None:
    """Predicted and measured, a measured p95 with its count; what is not within the budget is greyed and says so."""
    read = Read(page(PLAN))
    kind, cells = read.row("1 ← chosen")
    assert (kind, ", ".join(cells)) == (
        "chosen",
        "1 ← chosen, 2, 1, 8, deadline, tiles.onnx, 1,234/s, 3 ms, 9 ms, 4.1 ms of 300, 11.3 ms of 4,000, met",
    )
    kind, cells = read.row("2")
    assert (kind, cells[-2:]) == ("out", ["21.2 ms of 3,900", "missed, in doubt"])
    kind, cells = read.row("3")
    assert (kind, cells[5:]) == (
        "out",
        ["tiles-int8.onnx", "none", "3.3 ms", "no bound", "–", "–", "predicted to miss"],
    )


def test_those_that_fit_come_first_and_the_better_before_the_worse() -> None:
    """After the chosen one those that were tried, by their limits, measured or else predicted."""
    more = [Candidate(Configuration(3, 1, n), rate) for n, rate in ((1, 0.0), (2, 900.0), (3, 950.0))]
    tried = Candidate(Configuration(3, 1, 4), 800.0, measured_limit=1150.0)
    failed = Candidate(Configuration(3, 1, 5), 999.0, measured_limit=0.0)
    read = Read(page(replace(LIMIT, candidates=(*more, failed, tried, LIMIT.choice))))
    rows = [(cells[3], kind, cells[-1]) for kind, cells in read.rows if re.match(r"\d+( ←|$)", cells[0])]
    assert rows == [
        ("8", "chosen", "held"),
        ("4", "", "held"),
        ("3", "", "predicted to fit"),
        ("2", "", "predicted to fit"),
        ("5", "out", "missed"),
        ("1", "out", "predicted to miss"),
    ]


def test_every_load_test_has_a_row_and_no_bound_is_said_in_words() -> None:
    """Rate, requests, shares, p95 with its interval, verdict; only all is 100 %, only none is 0 %."""
    read = Read(page(PLAN))
    found = [cells[1:] for _, cells in read.rows if cells[0] == str(CHOSEN) and len(cells) == 8]
    assert found == [
        ["20/s", "300", "100 %", "0 %", "4.1 ms", "3.9 ms to 4.4 ms", "met"],
        ["800/s", "4,000", "99.9 %", "0.1 %", "11.3 ms", "10.1 ms to 12.7 ms", "met"],
        ["1,300/s", "5,000", "40.0 %", "60.0 %", "no bound", "–", "void"],
    ]
    assert read.row(str(SECOND))[1][-3:] == ["21.2 ms", "18.8 ms to no bound", "missed, in doubt"]


def test_doubts_are_marked_among_the_notes() -> None:
    """Once each, first; one that no note has names its load test."""
    notes = re.findall(r"<li\b(.*?)</li>", page(PLAN), re.DOTALL)
    assert notes == [
        f' class="doubt"><strong>In doubt:</strong> 1 load test is in doubt: {BUSY}',
        f' class="doubt"><strong>In doubt:</strong> it was sent late (1 load test: {CHOSEN} at 1,300/s)',
        ">a plain note",
    ]


def test_costs_are_told_in_numbers() -> None:
    """Runs by batch, an item's part, and what requests and batches cost beside them."""
    read = Read(page(PLAN))
    runs = [cells[1:] for _, cells in read.rows if cells[0] == "2 lanes × 1 thread"]
    assert runs == [["1", "31", "1 ms", "1.2 ms", "1 ms", "2,000"], ["8", "32", "6.4 ms", "7 ms", "800 µs", "2,500"]]
    assert read.row("a request let in")[1] == ["a request let in", "123 µs", "35.0 % of it after its run"]
    assert read.row("a request refused")[1][1] == "34 µs"
    assert read.row("a batch")[1][1] == "95 µs"


def test_the_charts_data_parses_back() -> None:
    """Curves, load tests with their bars, marks; a time without bound is null, what concludes nothing is hollow."""
    charts = Read(page(PLAN)).data()
    assert list(charts) == ["capacity", "runs", "items"]
    told = charts["capacity"]
    assert told["lines"][1] == {"label": str(CHOSEN), "x": [600, 1400], "y": [6, None]}
    assert [(p["line"], p["x"], p["y"], p["low"], p["high"], p["hollow"]) for p in told["points"]] == [
        (0, 800, 21.2, 18.8, None, True),
        (1, 20, 4.1, 3.9, 4.4, False),
        (1, 800, 11.3, 10.1, 12.7, False),
        (1, 1300, None, None, None, True),
    ]
    assert told["across"] == [{"at": 20, "label": "budget 20 ms"}]
    assert [mark["label"] for mark in told["upright"]] == ["quiet 20/s", "peak 800/s", "predicted limit 1,234/s"]
    assert charts["runs"]["lines"] == [{"label": "2 lanes × 1 thread", "x": [1, 8], "y": [1, 6.4]}]
    assert [point["high"] for point in charts["runs"]["points"]] == [1.2, 7]
    assert charts["items"]["lines"][0]["y"] == [1, 0.8]


@pytest.mark.parametrize(("p95_s", "scale"), [(0.079, "linear"), (0.081, "log")])
def test_times_far_over_the_budget_make_the_scale_logarithmic(p95_s: float, scale: str) -> None:
    """On a linear one those around the budget would all lie on the floor."""
    trial = replace(TRIALS[1], p95_s=p95_s, high_s=p95_s)
    found = replace(PLAN, candidates=(replace(CANDIDATES[2], trials=(trial,)),))
    assert Read(page(found)).data()["capacity"]["y"]["scale"] == scale


@pytest.mark.parametrize("plan", [PLAN, LIMIT, replace(PLAN, trace="monday.txt")], ids=["loads", "limit", "trace"])
def test_it_is_one_file_that_loads_nothing(plan: Plan) -> None:
    """Nothing but its own scripts and styles is allowed or asked for, and no address is in it."""
    text = page(plan)
    loads_nothing(text)
    assert "://" not in re.sub(r"/\*!.*?\*/", "", text, flags=re.DOTALL)


def test_a_trace_is_told_by_its_name() -> None:
    """In the headline and in the columns; the only load test of each is the trace's."""
    read = Read(page(replace(PLAN, trace="monday.txt", quiet=None, peak=None)))
    assert "p95 11.3 ms under monday.txt, within" in read.shown
    assert "p95 under monday.txt, measured" in read.shown


EVIL = "</script><script>alert(1)</script>\"'&<!--\udcff.onnx"


def test_no_name_gets_out_of_its_place() -> None:
    """A model's file, a variant's, a trace's, a note, a doubt and the machine may hold any characters."""
    variant = replace(
        CANDIDATES[2], model=EVIL, configuration=SECOND, trials=(replace(TRIALS[0], doubt=EVIL, word=EVIL),)
    )
    machine = PLAN.machine | {"cpu": EVIL, "onnxruntime": EVIL, "system": EVIL}
    evil = {"model": EVIL, "sha256": EVIL, "trace": EVIL, "started": EVIL, "made_by": EVIL, "notes": (EVIL, "x")}
    text = page(replace(PLAN, **evil, machine=machine, candidates=(variant, CANDIDATES[2])))
    read, plain = Read(text), Read(page(PLAN))
    shown = EVIL.replace("\udcff", "?")
    assert text.encode()
    assert [tag for tag, _, _ in read.inline] == [tag for tag, _, _ in plain.inline]
    assert read.data()["capacity"]["lines"][0]["label"] == f"{EVIL}: {SECOND}"
    assert read.shown.count(shown) > 10
    assert "--plan plan.json" in read.shown
    assert shown.partition('"')[0] in read.shown.partition("onbudget serve '")[2][:60]  # quoted for a shell


def test_a_plan_of_the_first_version_has_a_page() -> None:
    """It has neither trials nor costs, and its machine may tell little: no chart, and a table all the same."""
    read = Read(
        page(replace(PLAN, machine={"hash": "a"}, candidates=(Candidate(CHOSEN, 7.5),), costs=(), overheads=None))
    )
    assert read.data() == {}
    assert not [attrs for _, attrs in read.tags if attrs.get("class") == "plot"]
    assert read.row("1 ← chosen")[1][-1] == "predicted to fit"


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.needs("chromium")
def test_a_browser_draws_it(tmp_path: Path) -> None:
    """Three charts, and not one complaint: the policy lets our scripts run and nothing else is asked for."""
    (tmp_path / "tune.html").write_text(page(PLAN))
    drawn, complaints = look(tmp_path / "tune.html")
    assert complaints == ""
    assert drawn.count("<canvas") == 3
