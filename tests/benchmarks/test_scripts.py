"""The pure parts of the measuring scripts: what they make of their rounds, rows and windows."""

from __future__ import annotations

import math
from typing import Any

import bench_lanes
import bench_quiet
import bench_refusals
import bench_thin
import numpy as np
from bench_growth import points, rows
from bench_soak import drift, window
from bodies import contract, shape

from onbudget.core.records import Hits, Outcome
from onbudget.engine.embedded import bundle_path


def test_what_a_server_adds_is_the_difference_of_the_medians() -> None:
    """Of three sound rounds the middle one counts; a void one does not, and kinds not measured yet are left out."""
    rounds = [{"kind": "bare", "p50_ms": 1.0, "p95_ms": v, "void": False} for v in (2.0, 9.0, 2.2)]
    rounds += [{"kind": "json", "p50_ms": 1.5, "p95_ms": v, "void": v == 40.0} for v in (2.9, 40.0, 2.8, 30.0)]
    told = bench_quiet.judged(rounds)

    assert told["json"] == {"p50_ms": 1.5, "p95_ms": 2.9, "rounds": 3, "added_p50_ms": 0.5, "added_p95_ms": 0.7}
    assert set(told) == {"bare", "json"}


def test_lanes_are_compared_within_a_round() -> None:
    """The machine was twice as fast in the second round: the ratios are the same."""
    rounds = [
        {"form": "json", "round": number, "arm": arm, "rate": fast * rate, "cpu_us_per_answer": cpu / fast}
        for number, fast in enumerate((1, 2))
        for arm, rate, cpu in (
            ("two", 1800.0, 550.0),
            ("two, 1 ms", 1710.0, 550.0),
            ("two, 20 ms", 1800.0, 550.0),
            ("thread", 1000.0, 500.0),
            ("inline", 1200.0, 400.0),
            ("bare two", 4000.0, 1.0),
            ("bare one", 2000.0, 1.0),
        )
    ]
    told = bench_lanes.judged(rounds)

    assert told["json: rate, two / thread"] == {"median": 1.8, "rounds": [1.8, 1.8]}
    assert told["json: cpu_us_per_answer, two / thread"]["median"] == 1.1
    assert told["json: rate, two / inline"]["median"] == 1.5
    assert told["json: rate, two, 1 ms / two"]["median"] == 0.95


def test_a_share_of_bare_is_that_of_the_same_round() -> None:
    """The bare session was twice as fast in the second round, and so were the others."""
    rounds = [
        {"round": number, "arm": arm, "items_rate": fast * rate, "cpu_us_per_item": 1e6 / (fast * rate)}
        for number, fast in enumerate((1, 2))
        for arm, rate in (("bare", 1000.0), ("thin", 800.0), ("ours", 700.0))
    ]
    told = bench_thin.judged(rounds)

    assert told["ours"]["of_bare"] == 0.7
    assert told["thin"]["of_bare_rounds"] == [0.8, 0.8]
    assert told["ours"]["items_rate"] == 1050.0


def test_points_keep_the_connections_that_they_name() -> None:
    """A thousand connections are a thousand clients; other axes leave the connections to the load test."""
    found = list(points(["connections", "items", "padded"], shape(contract(bundle_path()))))

    assert [(p.connections, p.clients) for p in found if p.axis == "connections"] == [
        (n, n) for n in (1, 10, 100, 1000)
    ]
    assert [p.items for p in found if p.axis == "items"] == [1, 2, 4, 8, 16, 32]
    assert [p.value for p in found if p.axis == "padded"] == sorted({len(p.item.body) for p in found if p.own})


def test_rows_are_medians_of_repeats_and_no_answer_is_infinite() -> None:
    """One p95 of three that never came leaves the larger of the others; two of three leave none."""

    def one(p95: float | None, void: bool = False) -> dict[str, Any]:
        return {"axis": "items", "value": 2, "load": "over", "p95_ms": p95, "void": void}

    assert rows([one(3.0), one(None, True), one(5.0)]) == [
        {"axis": "items", "value": 2, "load": "over", "repeats": 3, "p95_ms": 5.0, "void": 1}
    ]
    assert rows([one(None), one(4.0), one(None)])[0]["p95_ms"] is None


def test_a_window_knows_what_each_request_should_get() -> None:
    """A 400 that was wanted is no error, one that was not is; a refusal is neither, and infinitely late."""
    outcomes = (Outcome(200), Outcome(400, "not JSON"), Outcome(429, "late"), Outcome(0, "timed out"))
    became = np.array([0, 1, 2, 1, 3, 0], np.int16)
    done = np.array([0.002, 0.001, 0.001, 0.001, math.nan, 0.004])
    hits = Hits(np.arange(6) / 10, np.zeros(6), np.zeros(6), done, became, outcomes)
    told = window(hits, [200, 400, 200], 0.025)  # so the fifth should be told what is wrong

    assert told["errors"] == {"400 not JSON": 1, "0 timed out": 1}
    assert (told["as_wanted"], told["told_what_is_wrong"], told["refused"]) == (3, 1, 1)
    assert told["p95_ms"] is None


def test_drift_is_the_last_third_over_the_first() -> None:
    """Medians within the thirds; a third that is mostly without a p95 tells no drift."""
    assert drift([2.0, 2.0, 9.0, 5.0, 5.0, 5.0, 2.2, 2.2, 2.1]) == 1.1
    assert drift([2.0, 3.0, None]) is None


def test_what_a_refusal_costs_is_found_among_answers() -> None:
    """400 µs an answer and 40 µs a refusal are found again; trials that refused next to nobody do not count."""
    trials = [
        {"times": times, "all_answered": good, "all_refused": no, "cpu_s": (400 * good + 40 * no) / 1e6}
        for times, good, no in ((2, 9000, 9000), (3, 8000, 19000), (4, 7200, 27000), (2, 9100, 8900))
    ]
    assert bench_refusals.costs(trials[:3]) is None
    calm = {"times": 3, "all_answered": 9000, "all_refused": 90, "cpu_s": 9.0}
    assert bench_refusals.costs([*trials[:3], calm]) is None
    told = bench_refusals.costs([*trials, calm])
    assert told == {"answer_us": 400.0, "refusal_us": 40.0, "refusal_error_us": 0.0, "trials": 4}


def test_when_the_refused_learn_it_counts_from_the_due_moment() -> None:
    """One answered in time, one late, one refused at once, one refused after the budget, one without any answer."""
    hits = Hits(
        due=np.arange(5.0),
        lag=np.zeros(5),
        sent=np.zeros(5),
        done=np.array([0.010, 0.030, 0.002, 0.040, math.nan]),
        outcome=np.array([0, 0, 1, 1, 2], np.int16),
        outcomes=(Outcome(200), Outcome(429, "late"), Outcome(0, "timeout")),
    )
    assert bench_refusals.seen(hits, 0.025, 2.0) == {
        "offered": 5,
        "answered": 2,
        "refused": 2,
        "unanswered": 1,
        "in_budget_rate": 0.5,
        "late_of_answered": 0.5,
        "told_p50_ms": 21.0,
        "told_p95_ms": 38.1,
        "told_after_budget": 1,
    }
