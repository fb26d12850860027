"""What fits: predictions over a queue, as arithmetic on numbers that are handed in.

`seconds(b)` is the predicted time of a run of b items, margin included. `free` lists in how many seconds each lane is
free, one number a lane, 0 for an idle one. Lanes pull: whichever is free first takes the oldest `max_batch` that wait.

Two places decide with this. At the door a request is refused when it would end late (`finish`): the newest is refused,
because refusing it has cost nothing yet. Inside the queue a forecast that proved wrong is repaired (`choose`): the
largest batch that the most urgent item allows, and items are given up only where the plan can't serve them. Giving up
goes one item at a time, as in Moore's rule for late jobs (Management Science 15(1), 1968), so that one lost item never
costs the others their batch.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

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
    deadlines: Sequence[float], others: Sequence[float], max_batch: int, seconds: Seconds
) -> tuple[list[int], list[int]]:
    """For a lane that is free now: the waiting items to give up, and those to run, as indices into `deadlines`.

    `deadlines` are seconds from now, soonest first; `others` says when the other lanes are free. Nothing is to run only
    where nothing waits or nothing can be in time any more.
    """
    kept = list(range(len(deadlines)))
    lost: list[int] = []
    while kept:
        urgent = deadlines[kept[0]]
        full = min(len(kept), max_batch)
        count = full
        while count and seconds(count) > urgent:
            count -= 1
        rest = [deadlines[i] for i in kept[count:]]
        # A shrunken batch is only worth its head if everybody behind it still gets through; else heads would shrink
        # batches down to one, and an overloaded server would lose its capacity for the sake of its oldest requests.
        if count and (count == full or clears(rest, [*others, seconds(count)], max_batch, seconds)):
            return lost, kept[:count]
        lost.append(kept.pop(0))
    return lost, []


def clears(deadlines: Sequence[float], free: Sequence[float], max_batch: int, seconds: Seconds) -> bool:
    """Whether all of these, soonest first, end in time when the lanes take them in full batches."""
    lanes = list(free)
    heapq.heapify(lanes)
    for start in range(0, len(deadlines), max_batch):
        count = min(max_batch, len(deadlines) - start)
        end = lanes[0] + seconds(count)
        if end > deadlines[start]:
            return False
        heapq.heapreplace(lanes, end)
    return True
