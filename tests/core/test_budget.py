"""core.budget: met, missed, or undecided and how many more; steady or not."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from onbudget.core.budget import Budget, p95_interval, settling, steadiness

Floats = npt.NDArray[np.float64]
BUDGET = Budget(0.02)


def md1(rng: np.random.Generator, n: int, load: float, dropped: int = 1000) -> Floats:
    """n response times, in units of the service time, of a queue with Poisson arrivals: Lindley's recursion."""
    walk = np.cumsum(1 - rng.exponential(1 / load, n + dropped))
    waits: Floats = walk - np.minimum.accumulate(np.minimum(walk, 0))
    return (waits + 1)[dropped:]


def test_all_in_time_is_met() -> None:
    """A thousand answers in half the budget: nothing late, and the interval says below 5 %."""
    verdict = BUDGET.judge(np.full(1000, 0.01))

    assert (verdict.word, verdict.late, verdict.count, verdict.more) == ("met", 0, 1000, None)
    assert (verdict.share.low, verdict.crowding) == (0.0, 1.0)
    assert 0 < verdict.share.high <= 0.05


def test_an_answer_at_exactly_the_budget_is_in_time() -> None:
    """The budget belongs to the budget, the next float does not."""
    assert BUDGET.judge([0.02] * 100).late == 0
    assert BUDGET.judge([math.nextafter(0.02, 1)] * 100).late == 100


def test_refused_and_unanswered_requests_are_late() -> None:
    """6 % fast answers that never came miss a budget that the other 94 % meet a hundred times over."""
    latencies = np.full(20_000, 0.0002)
    latencies[np.random.default_rng(1).choice(20_000, 1200, replace=False)] = math.inf
    verdict = BUDGET.judge(latencies)

    assert (verdict.word, verdict.late) == ("missed", 1200)
    assert verdict.share.low > 0.05


def test_few_answers_are_undecided_and_say_how_many_more() -> None:
    """60 answers in time prove nothing at 97.5 % a side; 98 do (10 batches, t of 9 degrees), as was said."""
    verdict = BUDGET.judge([0.01] * 60)
    assert verdict.word == "undecided"
    assert verdict.more is not None

    assert BUDGET.judge([0.01] * (60 + verdict.more)).word == "met"
    assert BUDGET.judge([0.01] * (59 + verdict.more)).word == "undecided"


@pytest.mark.parametrize("count", [0, 1, 19])
def test_hardly_any_answers_are_undecided_whatever_they_are(count: int) -> None:
    """Below twenty nothing is said, not even of nineteen late ones."""
    verdict = BUDGET.judge([math.inf] * count)

    assert (verdict.word, verdict.late, verdict.count) == ("undecided", count, count)
    assert (verdict.share.low, verdict.share.high) == (0.0, 1.0)
    assert verdict.more is not None
    assert verdict.more + count == 98


def test_a_share_near_five_percent_is_undecided_without_a_promise() -> None:
    """4.9 % late in 2000 would take hundreds of thousands more: no number is told."""
    latencies = np.full(2000, 0.01)
    latencies[np.random.default_rng(5).choice(2000, 98, replace=False)] = 0.03
    verdict = BUDGET.judge(latencies)

    assert (verdict.word, verdict.more) == ("undecided", None)


def test_lateness_in_one_crowd_convinces_less() -> None:
    """8 % late spread evenly is missed; the same 8 % in one stall is one event, and undecided."""
    spread, stall = np.full(5000, 0.01), np.full(5000, 0.01)
    spread[np.random.default_rng(6).choice(5000, 400, replace=False)] = 0.05
    stall[2000:2400] = 0.05

    assert BUDGET.judge(spread).word == "missed"
    assert BUDGET.judge(stall).word == "undecided"
    assert BUDGET.judge(stall).crowding > 50


@pytest.mark.parametrize(("load", "least"), [(0.6, 0.91), (0.8, 0.86)])
def test_the_interval_covers_the_truth_in_a_queue(load: float, least: float) -> None:
    """Where the textbook's 95 % would hold 45 and 18 times in 100, ours holds nearly as often as it says."""
    rng = np.random.default_rng(7)
    truth = np.concatenate([md1(rng, 100_000, load) for _ in range(5)])
    budget = Budget(float(np.quantile(truth, 0.95)))
    rounds, held, falsely = 200, 0, 0
    for _ in range(rounds):
        verdict = budget.judge(md1(rng, 2000, load))
        held += verdict.share.low <= 0.05 <= verdict.share.high
        falsely += verdict.word == "met"

    assert least <= held / rounds <= 0.995
    assert falsely / rounds <= 0.12


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_a_budget_is_a_time(bad: float) -> None:
    """Zero, negative, infinite and NaN budgets are refused."""
    with pytest.raises(ValueError, match="above zero"):
        Budget(bad)


@pytest.mark.parametrize("kind", ["quantile", "confidence"])
def test_shares_are_between_nought_and_one(kind: str) -> None:
    """95 is not a share."""
    with pytest.raises(ValueError, match=kind):
        Budget(0.02, **{kind: 95.0})


def test_nan_is_no_latency() -> None:
    """What never came is infinity; NaN is somebody's mistake."""
    with pytest.raises(ValueError, match="NaN"):
        BUDGET.judge([0.01, math.nan])


def test_a_p95_interval_holds_the_true_p95_and_widens_with_the_load() -> None:
    """Relative to the p95 it is several times wider at 0.9 than at 0.3, at the same count."""
    rng = np.random.default_rng(8)
    widths = []
    for load in (0.3, 0.9):
        found = [p95_interval(md1(rng, 3000, load)) for _ in range(20)]
        p95 = float(np.quantile(md1(rng, 200_000, load), 0.95))
        assert sum(i is not None and i.low <= p95 <= i.high for i in found) >= 14
        widths.append(float(np.median([(i.high - i.low) / p95 for i in found if i is not None])))

    assert widths[1] > 3 * widths[0]
    assert p95_interval([0.01] * 19) is None


@pytest.mark.parametrize("load", [0.5, 0.9])
def test_a_busy_queue_is_steady(load: float) -> None:
    """At loads that a server can keep up with for ever, at most one run in fifty is called rising."""
    rng = np.random.default_rng(9)
    words = [steadiness(md1(rng, 1600, load)).word for _ in range(50)]

    assert words.count("steady") >= 49


@pytest.mark.parametrize(("load", "n"), [(1.2, 400), (1.2, 1600), (2.0, 1600)])
def test_a_growing_backlog_is_rising(load: float, n: int) -> None:
    """More than can be served: latency rises all the way, also when a warm-up was cut off, and both ends are told."""
    rng = np.random.default_rng(10)
    found = [steadiness(md1(rng, n, load, dropped=n // 4)) for _ in range(20)]

    assert sum(s.word == "rising" for s in found) >= 18
    assert all(s.last > 1.5 * s.first for s in found if s.word == "rising")


def test_requests_that_stop_being_answered_half_way_are_rising() -> None:
    """Latency grows until clients give up: the later ones are infinite, and that is no steady state."""
    grows = np.minimum(np.arange(1000) * 0.02, 10.0)
    grows[600:] = math.inf

    assert steadiness(grows).word == "rising"


def test_a_warm_up_that_is_still_under_way_is_falling() -> None:
    """A latency that falls to a third over the run had not settled."""
    falls = 0.01 + 0.02 * np.exp(-np.arange(1000) / 400) + np.random.default_rng(11).normal(0, 0.0005, 1000)

    assert steadiness(falls).word == "falling"


@pytest.mark.parametrize("at", [0, 400, 700, 900])
def test_a_stall_is_not_a_trend(at: int) -> None:
    """A pause of a tenth of the run, wherever it is, does not make the run unsteady: it must show in p95 (pain 70)."""
    rng = np.random.default_rng(12)
    stalled = 0.01 + rng.normal(0, 0.0005, 1000)
    stalled[at : at + 100] += np.linspace(2, 0, 100)

    assert steadiness(stalled).word == "steady"


def test_a_slow_drift_is_steady() -> None:
    """A processor that warms up and gets 5 % slower gives a perfect trend and no alarm."""
    assert steadiness(np.linspace(0.0100, 0.0105, 1000)).word == "steady"


def test_hardly_any_answers_are_neither_steady_nor_not() -> None:
    """Below twenty nothing is said."""
    assert steadiness([0.01] * 19).word == "unknown"


def test_settling_finds_the_end_of_a_slow_start() -> None:
    """Two hundred slow answers before eight hundred level ones: drop about two hundred."""
    values = 0.01 + np.random.default_rng(13).normal(0, 0.0005, 1000)
    values[:200] += np.linspace(0.05, 0, 200)

    assert 150 <= (settling(values) or 0) <= 210


def test_settling_drops_hardly_anything_of_a_level_run() -> None:
    """A run that was level from the first answer keeps nearly all of it."""
    rng = np.random.default_rng(14)
    cuts = [settling(0.01 + rng.normal(0, 0.0005, 1000)) for _ in range(20)]

    assert float(np.median([500 if cut is None else cut for cut in cuts])) < 200


def test_a_run_that_never_levels_has_no_settling() -> None:
    """A straight climb, nothing finite, or fewer than fifty values: there is no cut to advise."""
    assert settling(np.linspace(0.01, 1, 1000)) is None
    assert settling(np.full(1000, math.inf)) is None
    assert settling([0.01] * 40) is None
