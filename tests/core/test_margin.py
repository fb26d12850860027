"""Margins that follow what happens: by what they move, how far, and that they come back."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onbudget.core.cost import Cost, Online
from onbudget.core.deadline import MARGIN, Deadline, batch_for, reserve
from onbudget.core.errors import Shed
from onbudget.core.margin import ANSWERS, GRACE, HALF_LIFE, LEAST, MOST, RUNS, SHARE, Margins
from onbudget.core.outcome import Outcome
from onbudget.core.plant import Noise, Plant
from onbudget.core.queue import Queue
from onbudget.core.simulate import simulate
from onbudget.core.traffic import poisson

BUDGET, RESERVE = 0.020, 0.001
ON_TIME, SLOW_RUN, STALLED, SLOW_LOOP = range(4)


def fresh() -> Margins:
    return Margins(MARGIN, RESERVE, BUDGET)


def tell(margins: Margins, kind: int, taken: float) -> None:
    """An answer from a run that began then: 4 ms were there for it, and then what is kept for the loop."""
    due = taken + 0.004 + margins.reserve(taken)
    ran = taken + {SLOW_RUN: 0.0056, STALLED: 0.012}.get(kind, 0.004)
    margins.answered(due + 1e-4, taken, ran, ran + (0.003 + margins.reserve(taken) if kind == SLOW_LOOP else 0.0))


def window(margins: Margins, at: float, kind: int = ON_TIME, share: float = 0.0, runs: int = RUNS) -> float:
    """As many answers as make a window, `share` of them of this kind, in so many runs and one second."""
    for number in range(ANSWERS):
        mine = int((number + 1) * share) > int(number * share)
        tell(margins, kind if mine else ON_TIME, at + number * runs // ANSWERS / runs)
    return at + 1.0


@pytest.mark.parametrize(
    ("kind", "share", "run", "loop"),
    [
        (ON_TIME, 0.0, MARGIN - 0.01, 0.0),
        (SLOW_RUN, 0.004, MARGIN - 0.01, 0.0),
        (SLOW_RUN, 0.01, MARGIN, 0.0),  # few, but some
        (SLOW_RUN, 0.05, MARGIN + 0.02, 0.0),
        (SLOW_RUN, 0.5, MARGIN + 0.05, 0.0),  # no further in one window
        (STALLED, 0.5, MARGIN, 0.0),  # no margin is for that
        (SLOW_LOOP, 0.02, MARGIN - 0.01, 0.01 * 0.4 * BUDGET),
        (SLOW_LOOP, 0.5, MARGIN - 0.01, 0.05 * 0.4 * BUDGET),
    ],
)
def test_each_moves_by_what_it_can_help(kind: int, share: float, run: float, loop: float) -> None:
    """Late by a run raises the margin on runs, late by the loop what is kept for it, and nothing the other one."""
    margins = fresh()
    now = window(margins, 100.0, kind, share)
    assert margins.run(now) == pytest.approx(run, abs=1e-3)
    assert margins.reserve(now) == pytest.approx(RESERVE + loop, abs=2e-5)


def test_a_window_has_its_answers_and_its_runs() -> None:
    """One answer less, or all of them from few runs, moves nothing."""
    margins = fresh()
    for number in range(ANSWERS - 1):
        tell(margins, SLOW_RUN, 100.0 + number / ANSWERS)
    assert margins.run(101.0) == MARGIN
    few = fresh()
    assert few.run(window(few, 100.0, SLOW_RUN, 1.0, runs=RUNS - 1)) == MARGIN
    assert few.run(window(few, 101.0, SLOW_RUN, 1.0, runs=RUNS)) > MARGIN


def test_what_was_raised_is_forgotten_without_an_answer() -> None:
    """There may be nobody left who waits and is answered. Each minute after the first half of it goes."""
    margins, now = fresh(), 100.0
    for _ in range(10):
        now = window(margins, now, SLOW_RUN, 1.0)
    for _ in range(30):
        now = window(margins, now, SLOW_LOOP, 0.9)
    high = margins.reserve(now)
    assert high == SHARE * BUDGET
    assert margins.reserve(now + GRACE) == high
    assert margins.reserve(now + GRACE + HALF_LIFE) == pytest.approx((high + RESERVE) / 2, rel=0.01)
    assert margins.run(now) == LEAST
    assert margins.run(now + GRACE + 20 * HALF_LIFE) == pytest.approx(MARGIN)
    assert (margins.run(math.inf), margins.reserve(math.inf)) == (MARGIN, RESERVE)
    tell(margins, ON_TIME, now + 1e9)  # and a window goes on from there
    assert margins.run(now + 1e9) == pytest.approx(MARGIN)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1), st.floats(0, 300)), min_size=1, max_size=15))
def test_they_stay_within_bounds_and_come_back(windows: list[tuple[int, float, float]]) -> None:
    """Whatever happens; and when answers are on time again, both are at their least."""
    margins, now = fresh(), 100.0
    for kind, share, pause in windows:
        now = window(margins, now + pause, kind, share)
        assert LEAST <= margins.run(now) <= MOST
        assert RESERVE <= margins.reserve(now) <= SHARE * BUDGET
    for _ in range(60):
        now = window(margins, now)
    assert margins.run(now) == LEAST
    assert margins.reserve(now) == RESERVE


class Held(Margins):
    """They stay as they are."""

    __slots__ = ()

    def answered(self, deadline: float, taken: float, ran: float, now: float) -> None:
        """Nothing follows."""


COST = Cost.of({b: 0.002 + 0.001 * b for b in (1, 64)})


def at_overload(plant: Plant, kind: type[Margins], budget: float = 0.030) -> tuple[Outcome, Deadline]:
    """At 1.5 times the capacity, judged once the margins have had their time."""
    most = batch_for(plant.cost, budget, 64)
    made = Deadline(most, budget, Online(plant.cost), reserve(budget))
    made.margins = kind(MARGIN, reserve(budget), budget)
    rate = 1.5 * plant.cost.capacity(most) * plant.lanes
    told = simulate(made, plant, poisson(rate, 30_000 / rate, 3), budget, warmup_s=15_000 / rate, seed=3)
    return told, made


@pytest.mark.parametrize("lanes", [1, 2])
def test_where_runs_are_steady_little_changes(lanes: int) -> None:
    """Runs that vary by 10 %, and one in a hundred takes three times as long: as good as the fixed margin."""
    plant = Plant(COST, lanes=lanes, noise=Noise(jitter=0.1, rare=0.01))
    (moved, _), (fixed, _) = (at_overload(plant, kind) for kind in (Margins, Held))
    assert moved.late_share < 0.03
    assert moved.good > 0.99 * fixed.good


def test_where_runs_vary_the_promise_is_kept() -> None:
    """By 30 %: with the fixed margin more than 5 % are late, with one that follows fewer, and more are good."""
    (moved, made), (fixed, _) = (at_overload(Plant(COST, noise=Noise(jitter=0.3)), kind) for kind in (Margins, Held))
    assert fixed.late_share > 0.06
    assert moved.late_share < 0.05
    assert moved.good > 1.02 * fixed.good
    assert made.margins._run > 1.25
    assert made.margins._reserve == reserve(0.030)


def test_answers_that_are_dear_to_write_get_their_time() -> None:
    """A millisecond each: what is kept for the loop grows to what a batch of them takes, and runs keep their margin."""
    (moved, made), (fixed, _) = (at_overload(Plant(COST, reply_s=0.001, noise=Noise(0.05)), k) for k in (Margins, Held))
    assert fixed.late_share > 0.1
    assert moved.late_share < 0.03
    assert moved.good > 1.15 * fixed.good
    assert made.margins._reserve > 3 * reserve(0.030)
    assert made.margins._run <= MARGIN


def test_a_margin_that_was_raised_too_far_does_not_refuse_for_ever() -> None:
    """Who would just be in time is refused after a bad stretch, and let in when nobody was answered for a while."""
    cost = Online(Cost.of({1: 0.010, 4: 0.016}))
    made, now = Deadline(4, 0.030, cost), 100.0
    assert made.margins.run(now) == MARGIN
    for _ in range(10):
        for number in range(ANSWERS):
            made.margins.answered(now, now - 0.010, now + number * 1e-9, now + 0.003)
        now += 1.0
    assert made.margins.run(now) == MOST
    queue, running = Queue(10, 10), [(4, 0.0)]
    with pytest.raises(Shed):
        made.admit(queue, running, 1, age=0.0, now=now)
    made.admit(queue, running, 1, age=0.0, now=now + GRACE + 10 * HALF_LIFE)
