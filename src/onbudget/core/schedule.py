"""What fits: predictions over a queue, as arithmetic on numbers that are handed in.

`seconds(b)` is the predicted time of a run of b items, margin included. `free` lists in how many seconds each lane is
free, one number a lane, 0 for an idle one. Lanes pull: whichever is free first takes the oldest `max_batch` that wait.

Two places decide with this. At the door a request is refused when it would end late (`finish`): the newest is refused,
because refusing it has cost nothing yet. Inside the queue a forecast that proved wrong is repaired (`choose`): the
largest batch that its most urgent item allows, and items are given up only where the plan can't serve them. Giving up
goes one item at a time, as in Moore's rule for late jobs (Management Science 15(1), 1968), so that one lost item
never costs the others their batch.

Whom a failing plan gives up. It fails for somebody, and only whoever goes before them, or they themselves, can help. Of
those goes the least urgent class, and in it the one that is due first. So an item weighs what its class says, and any
number of a less urgent class weighs less than one item of a more urgent one: whoever was let in behind its own class
alone could else be given up for those that it was let in before. A request's items don't share its weight: many small
requests would outweigh a large one, and a large one would go wherever somebody's batch has to shrink. They are due at
the same time and wait side by side, so whoever takes a lost item's whole request out and asks again takes out nobody
for nothing.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

Seconds = Callable[[int], float]


def finish(free: Sequence[float], waiting: int, items: int, max_batch: int, seconds: Seconds) -> float:
    """In how many seconds the last of `items` new items is done, behind `waiting` older ones."""
    lanes = list(free)
    heapq.heapify(lanes)
    left = waiting + items
    last = 0.0
    while left > 0:
        count = min(left, max_batch)
        end = lanes[0] + seconds(count)
        heapq.heapreplace(lanes, end)
        left -= count
        if left < items:  # this batch carries a new item
            last = max(last, end)
    return last


def choose(
    deadlines: Sequence[float],
    others: Sequence[float],
    max_batch: int,
    seconds: Seconds,
    classes: Sequence[int] = (),
) -> tuple[list[int], list[int]]:
    """For a lane that is free now: the waiting items to give up, and those to run, as indices into `deadlines`.

    `deadlines` are seconds from now, by `classes`, which ascend, and soonest first in each; without them all are of
    one. `others` says when the other lanes are free. Nothing is to run only where nothing waits or nothing can be in
    time any more.
    """
    classes = classes or [0] * len(deadlines)
    kept = list(range(len(deadlines)))
    lost: list[int] = []
    while kept:
        full = min(len(kept), max_batch)
        soonest = list(accumulate([deadlines[i] for i in kept[:full]], min))
        count = full
        while count and seconds(count) > soonest[count - 1]:
            count -= 1
        # A shrunken batch is only worth its head if everybody behind it still gets through; else heads would shrink
        # batches down to one, and an overloaded server would lose its capacity for the sake of its oldest requests.
        fails: int | None = 0
        if count == full:
            fails = None
        elif count:
            rest = kept[count:]
            due, ranks = [deadlines[i] for i in rest], [classes[i] for i in rest]
            fails = first_late(due, [*others, seconds(count)], max_batch, seconds, ranks)
        if fails is None:
            return lost, kept[:count]
        least = classes[kept[count + fails]]
        lost.append(kept.pop(next(n for n, i in enumerate(kept) if classes[i] == least)))
    return lost, []


def given_up(
    deadlines: Sequence[float],
    free: Sequence[float],
    max_batch: int,
    seconds: Seconds,
    classes: Sequence[int] = (),
) -> int:
    """How many of these the lanes would give up, each taking by `choose` when it is free and nobody else arriving.

    They are in `choose`'s order.
    """
    dues, ranks = list(deadlines), list(classes or [0] * len(deadlines))
    lanes = list(free)
    heapq.heapify(lanes)
    count = 0
    while dues:
        now = heapq.heappop(lanes)
        lost, run = choose([due - now for due in dues], [free - now for free in lanes], max_batch, seconds, ranks)
        count += len(lost)
        gone = {*lost, *run}
        dues = [due for i, due in enumerate(dues) if i not in gone]
        ranks = [rank for i, rank in enumerate(ranks) if i not in gone]
        heapq.heappush(lanes, now + seconds(len(run)) if run else now)
    return count


def first_late(
    deadlines: Sequence[float],
    free: Sequence[float],
    max_batch: int,
    seconds: Seconds,
    classes: Sequence[int] = (),
) -> int | None:
    """The first of these that is late when the lanes take them in order, in full batches; None where nobody is.

    They are in `choose`'s order. A batch that is too full for somebody goes without whoever is of a less urgent class.
    """
    classes = classes or [0] * len(deadlines)
    lanes = list(free)
    heapq.heapify(lanes)
    start = 0
    while start < len(deadlines):
        end = min(start + max_batch, len(deadlines))
        while True:
            done = lanes[0] + seconds(end - start)
            late = next((i for i in range(start, end) if deadlines[i] < done), None)
            if late is None:
                break
            fill = bisect_right(classes, classes[late], start, end)
            if fill == end:
                return late
            end = fill
        heapq.heapreplace(lanes, done)
        start = end
    return None
