"""Predictions over a queue: what ends when, and whom a plan can't serve."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onbudget.core.schedule import Seconds, choose, finish, first_late


def line(first: float, each: float) -> Seconds:
    """A cost curve: seconds by items."""
    return lambda count: first + each * count


COST = line(2.0, 1.0)


@pytest.mark.parametrize(
    ("free", "waiting", "items", "expected"),
    [
        ([0.0], 0, 1, 3.0),  # an idle lane: its own run
        ([5.0], 0, 1, 8.0),  # behind the running batch
        ([5.0], 3, 1, 11.0),  # rides with those that wait
        ([5.0], 4, 1, 5.0 + 6.0 + 3.0),  # the fifth: a batch of four, then alone
        ([5.0], 4, 5, 5.0 + 6.0 + 6.0 + 3.0),
        ([5.0, 1.0], 4, 1, 5.0 + 3.0),  # the lane that is free first takes the four; the other takes the fifth
        ([5.0, 1.0], 0, 1, 4.0),
        ([0.0, 0.0], 0, 5, 6.0),  # four on one lane end after the one on the other
    ],
)
def test_finish_counts_what_is_ahead(free: list[float], waiting: int, items: int, expected: float) -> None:
    """The prediction is the running batches' rest, the full batches ahead, and the own run."""
    assert finish(free, waiting, items, 4, COST) == expected


def test_a_roomy_head_lets_a_full_batch_go() -> None:
    """Where everybody has time, the batch is what greedy takes."""
    assert choose([100.0] * 6, [], 4, COST) == ([], [0, 1, 2, 3])


def test_an_urgent_head_gets_the_largest_batch_that_it_allows() -> None:
    """One tight deadline shrinks its own batch, and loses nobody, when the rest still gets through."""
    assert choose([4.0, 50.0, 50.0, 50.0], [], 4, COST) == ([], [0, 1])


def test_a_lost_head_is_given_up_alone() -> None:
    """A head that is late even alone goes, and thirty others with time keep theirs: no mass kill."""
    lost, run = choose([1.0] + [94.0] * 30, [], 16, COST)
    assert (lost, run) == ([0], list(range(1, 17)))


def test_heads_do_not_shrink_batches_to_one() -> None:
    """Under overload with equal deadlines the oldest are given up and the batch stays large."""
    lost, run = choose([3.5, 3.6, 9.0, 9.1, 9.2, 9.3, 9.4, 9.5], [], 4, line(2.0, 1.0))
    assert lost == [0, 1]
    assert len(run) == 4


COSTS = st.builds(line, st.floats(0, 5), st.floats(0.01, 5))
DEADLINES = st.lists(st.floats(-5, 200), max_size=40).map(sorted)


@given(DEADLINES, st.lists(st.floats(0, 50), max_size=3), st.integers(1, 16), COSTS)
def test_every_item_is_lost_run_or_left(deadlines: list[float], others: list[float], most: int, cost: Seconds) -> None:
    """Nothing is both lost and run; a batch fits its limit and its deadlines; only a prefix is touched."""
    lost, run = choose(deadlines, others, most, cost)
    assert sorted(lost + run) == list(range(len(lost) + len(run)))
    assert len(run) <= most
    assert all(cost(len(run)) <= deadlines[i] for i in run)
    if not run:
        assert len(lost) == len(deadlines)


@given(DEADLINES, st.lists(st.floats(0, 50), max_size=3), st.integers(1, 16), COSTS)
def test_nobody_is_lost_who_could_be_served(
    deadlines: list[float], others: list[float], most: int, cost: Seconds
) -> None:
    """When full batches, as greedy forms them, serve everybody in time, nobody is given up."""
    plans = ([*others, 0.0], [0.0])
    if all(first_late(deadlines, free, most, cost) is None for free in plans):
        assert choose(deadlines, others, most, cost)[0] == []


@given(st.floats(0.01, 100), st.lists(st.floats(0, 50), max_size=3), COSTS)
def test_a_lone_request_that_fits_is_run(deadline: float, others: list[float], cost: Seconds) -> None:
    """A free lane never sits beside a lone request that can be in time."""
    lost, run = choose([deadline], others, 8, cost)
    assert run == ([0] if cost(1) <= deadline else [])
    assert lost == ([] if run else [0])


# ---- classes ----


def as_it_was(deadlines: list[float], others: list[float], most: int, cost: Seconds) -> tuple[list[int], list[int]]:
    """The rule for one class, in full: the head shrinks its batch, or goes."""
    kept, lost = list(range(len(deadlines))), list[int]()
    while kept:
        full = min(len(kept), most)
        count = full
        while count and cost(count) > deadlines[kept[0]]:
            count -= 1
        lanes, late = [*others, cost(count)], False
        rest = kept[count:]
        for start in range(0, len(rest), most):
            lane = lanes.index(min(lanes))
            lanes[lane] += cost(len(rest[start : start + most]))
            late = late or lanes[lane] > deadlines[rest[start]]
        if count and (count == full or not late):
            return lost, kept[:count]
        lost.append(kept.pop(0))
    return lost, []


@given(DEADLINES, st.lists(st.floats(0, 50), max_size=3), st.integers(1, 16), COSTS, st.sampled_from([1, 3]))
def test_one_class_is_served_as_if_there_were_none(
    deadlines: list[float], others: list[float], most: int, cost: Seconds, number: int
) -> None:
    """Whatever the class, where all have the same one the heads are given up, and batches stay large."""
    expected = as_it_was(deadlines, others, most, cost)
    assert choose(deadlines, others, most, cost) == expected
    assert choose(deadlines, others, most, cost, [number] * len(deadlines)) == expected


@pytest.mark.parametrize(
    ("deadlines", "classes", "lost", "run"),
    [
        # an urgent one that came last has time for a batch of two: three of the others would be late behind it
        ([4.0, 9.0, 9.0, 9.0, 9.0, 9.0], [1, 2, 2, 2, 2, 2], [1], [0, 2]),
        # the same of one class: the head goes, and the batch stays large
        ([4.0, 9.0, 9.0, 9.0, 9.0, 9.0], [2] * 6, [0], [1, 2, 3, 4]),
        # one that is lost anyway goes alone, whatever its class
        ([1.0, 50.0, 50.0], [1, 2, 3], [0], [1, 2]),
        ([50.0, 50.0, 1.0], [1, 2, 3], [2], [0, 1]),
        # of those before whom it fails the least urgent class pays, and in it the one that is due first
        ([50.0, 50.0, 4.0, 5.0], [1, 2, 3, 3], [2], [0, 1, 3]),
        # who waits behind a batch that is full anyway is not looked at yet
        ([50.0, 50.0, 50.0, 50.0, 1.0], [1, 1, 1, 1, 3], [], [0, 1, 2, 3]),
        # a full batch later would be too much for the second of the urgent: it goes without the less urgent
        ([3.0, 8.0, 90.0, 90.0, 90.0, 90.0], [1, 1, 2, 2, 2, 2], [], [0]),
    ],
)
def test_the_least_urgent_pay(deadlines: list[float], classes: list[int], lost: list[int], run: list[int]) -> None:
    """By hand: four at most, 3 s alone and 1 s for each further one."""
    assert choose(deadlines, [], 4, COST, classes) == (lost, run)


WAITING = st.lists(st.tuples(st.integers(1, 3), st.floats(-5, 200)), max_size=40).map(sorted)


@given(WAITING, st.lists(st.floats(0, 50), max_size=3), st.integers(1, 16), COSTS)
def test_classes_lose_nobody_else(
    waiting: list[tuple[int, float]], others: list[float], most: int, cost: Seconds
) -> None:
    """Lost or run or left: a batch is the first of those that are kept, in time, in order and within the limit."""
    classes, deadlines = [item[0] for item in waiting], [item[1] for item in waiting]
    lost, run = choose(deadlines, others, most, cost, classes)
    assert len(set(lost)) == len(lost)
    assert run == [i for i in range(len(waiting)) if i not in lost][: len(run)]
    assert len(run) <= most
    assert all(cost(len(run)) <= deadlines[i] for i in run)
    assert run or len(lost) == len(waiting)


@given(WAITING, st.lists(st.floats(0, 50), max_size=3), st.integers(1, 16), COSTS)
def test_less_urgent_ones_cost_a_more_urgent_class_nobody(
    waiting: list[tuple[int, float]], others: list[float], most: int, cost: Seconds
) -> None:
    """Where those of the first class would all be served without the others, they are served with them."""
    classes, deadlines = [item[0] for item in waiting], [item[1] for item in waiting]
    first = classes.count(1)
    if not choose(deadlines[:first], others, most, cost)[0]:
        lost, run = choose(deadlines, others, most, cost, classes)
        assert all(classes[i] > 1 for i in lost)
        assert run or not first
