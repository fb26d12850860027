"""What a call costs, measured on this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence, Sized
from typing import Any, TypeVar

Items = TypeVar("Items", bound=Sized)

_UNTIMED = 2  # the first calls allocate and fill caches


def per_item_ms(
    fn: Callable[[Items], Any],
    items: Items,
    repeats: int = 20,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Median milliseconds an item of `fn(items)`, over `repeats` timed calls after two untimed ones.

    `items` is one batch (an array's first axis, or a sequence). ValueError for an empty batch or no repeats.
    """
    count = len(items)
    if count < 1 or repeats < 1:
        raise ValueError(f"nothing to time: {count} items, {repeats} repeats")
    for _ in range(_UNTIMED):
        fn(items)
    times = []
    for _ in range(repeats):
        start = clock()
        fn(items)
        times.append(clock() - start)
    return statistics.median(times) * 1e3 / count


def curve(
    run: Callable[[int], float],
    sizes: Sequence[int],
    budget: float,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[int, float]:
    """Median seconds of `run(size)`, which tells its own, for as many of the ascending `sizes` as `budget` pays for.

    Nothing but the first run is begun that is thought to end after `budget` seconds, preparing included: a run is
    thought to grow with its size. The first run of a size is not timed.
    """
    end = clock() + budget
    times: dict[int, list[float]] = {}
    before, both = 1, 0.0  # the size before, and what its untimed and its timed run took
    longest = 0.0
    for size in sizes:
        began = clock()
        if began + both * size / before > end:
            break
        run(size)
        middle = clock()
        if middle + (middle - began) > end:
            break
        times[size] = [run(size)]
        before, both, longest = size, clock() - began, clock() - middle
    while times:
        for size, seen in times.items():
            if clock() + longest > end:
                return {size: statistics.median(seen) for size, seen in times.items()}
            seen.append(run(size))
    return {}
