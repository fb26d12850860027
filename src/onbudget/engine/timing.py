"""What a call costs, measured on this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sized
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
