"""core.versus: worse and better only where the whole interval says so, no worse within a margin, else undecided."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from onbudget.core.confidence import Interval, difference, share_interval
from onbudget.core.records import Ending
from onbudget.core.versus import Versus, versus
from onbudget.prove.load import Run
from tests.support.runs import made


def beside(before: Run, after: Run, margin: float = 0.1) -> Versus:
    return versus((before.header, before.summary()), (after.header, after.summary()), margin)


def test_a_difference_of_shares_is_newcombes() -> None:
    """His table of 1998, method 10: 56 of 70 and 48 of 80 differ by 0.0524 to 0.3339; 9 of 10 and 3 of 10 too."""
    for one, of, other, among, low, high in ((56, 70, 48, 80, 0.0524, 0.3339), (9, 10, 3, 10, 0.1705, 0.8090)):
        a, b = one / of, other / among
        found = difference(b, share_interval(b, among, 1.959964), a, share_interval(a, of, 1.959964))
        assert (found.low, found.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


def test_a_lopsided_interval_stays_lopsided() -> None:
    """What has no upper bound gives a difference without one, and nothing is lost on the other side."""
    found = difference(1.0, Interval(0.9, math.inf), 2.0, Interval(1.9, 2.2))
    assert found.low == -math.inf
    assert found.high == pytest.approx(1 + math.hypot(0.2, 0.1))


def test_twice_the_latency_is_worse_and_half_of_it_better() -> None:
    """Exit codes 10 and 0; the change is told as a factor with its interval."""
    slow, fast = made(0.010, seed=1), made(0.005, seed=2)
    worse, better = beside(fast, slow), beside(slow, fast)
    assert (worse.word, worse.exit_code, better.word, better.exit_code) == ("worse", 10, "better", 0)
    assert worse.p95 is not None
    assert worse.p95.change.low < 2 < worse.p95.change.high
    assert (worse.p95.before, worse.p95.after) == (fast.summary().latency.p95, slow.summary().latency.p95)


def test_no_worse_needs_an_interval_within_the_margin() -> None:
    """Two runs of the same server: with enough requests no worse, with few undecided, and how many more is told."""
    many = beside(made(count=20_000, seed=1), made(count=20_000, seed=2))
    few = beside(made(count=220, seed=1), made(count=220, seed=2))
    assert (many.word, many.exit_code) == ("no worse", 0)
    assert (few.word, few.exit_code) == ("undecided", 11)
    assert few.p95 is not None
    assert few.p95.longer is not None
    longer = beside(*(made(count=math.ceil(220 * few.p95.longer * 1.5), seed=s) for s in (1, 2)))
    assert longer.word == "no worse"


def test_a_margin_of_nothing_is_never_met_by_an_equal() -> None:
    """Not to see a change is not to know that there is none."""
    assert beside(made(count=20_000, seed=1), made(count=20_000, seed=2), 0.0).word == "undecided"
    with pytest.raises(ValueError, match="margin"):
        beside(made(), made(), -0.1)


def test_more_late_answers_are_worse_though_the_p95_is_the_same() -> None:
    """The share in budget is judged as well: 3 % more refusals, with one p95 below 5 % of them."""
    told = beside(made(count=11_000, seed=1), made(count=11_000, seed=2, refused=300))
    assert told.in_budget is not None
    assert (told.in_budget.word, told.word) == ("worse", "worse")
    assert told.in_budget.change.high < 0


def test_a_p95_without_bound_is_worse_than_any() -> None:
    """Over 5 % refused: the p95 is infinite, and surely so; compared the other way round it is better."""
    bad, good = made(refused=200), made()
    worse, better = beside(good, bad), beside(bad, good)
    assert (worse.word, better.word) == ("worse", "better")
    assert worse.p95 is not None
    assert worse.p95.change.high == math.inf
    assert beside(bad, bad).word == "undecided"


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"lag": np.full(1100, 0.004)}, "the second run is void"),
        ({"done": np.linspace(0.001, 0.019, 1100)}, "the second run is not steady"),
    ],
)
def test_what_cannot_be_believed_is_not_compared(broken: dict[str, object], why: str) -> None:
    """A void or unsteady run: exit code 11, with which and why, and no figure."""
    run = made()
    bad = dataclasses.replace(run, hits=dataclasses.replace(run.hits, **broken))  # type: ignore[arg-type]  # columns
    told = beside(run, bad)
    assert (told.why, told.p95, told.exit_code) == (why, None, 11)


def test_too_few_requests_are_not_compared() -> None:
    """Below twenty nothing is known of their crowding."""
    assert beside(made(count=20), made()).why == "the first run has only 18 requests to judge"


def test_without_a_common_budget_only_the_p95_is_compared() -> None:
    """A share within 20 ms and one within 30 ms are two different things."""
    told = beside(made(), made(p95_s=0.03))
    assert told.in_budget is None
    assert told.p95 is not None
    assert told.differs == ("budget 20 ms and 30 ms",)


def test_what_was_not_alike_is_named_with_both_values() -> None:
    """Everything that a repetition must share, and what it was done with."""
    other = made(rate=200.0, model={"sha256": "ab"}, ending=Ending(seconds=11.0))
    other = dataclasses.replace(other, header=dataclasses.replace(other.header, seed=8))
    told = beside(made(), other)
    assert told.differs == ("rate 100/s and 200/s", "seed 7 and 8", "model feedfeed and ab")
    assert beside(made(), made()).differs == ()


def crowded(rng: np.random.Generator) -> Run:
    """A run whose latencies come in crowds: each is 0.9 of the one before it and 0.1 of something new."""
    run = made(count=2200)
    noise = rng.standard_exponential(len(run.hits))
    done = np.empty(len(noise))
    last = 1.0
    for i, each in enumerate(noise):
        last = done[i] = 0.9 * last + 0.1 * each
    return dataclasses.replace(run, hits=dataclasses.replace(run.hits, done=done / 200))


def test_equals_are_rarely_called_different() -> None:
    """Of 150 pairs of runs of the same crowded queue at most one in twenty has an interval without its truth."""
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(150):
        told = beside(crowded(rng), crowded(rng))
        if told.p95 is not None:
            wrong += not told.p95.change.low <= 1 <= told.p95.change.high
    assert wrong <= 7
