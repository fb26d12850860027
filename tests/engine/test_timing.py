"""What a call costs, told by a clock that the test turns."""

from __future__ import annotations

import numpy as np
import pytest

from onbudget.engine.timing import per_item_ms


def test_the_median_per_item_after_two_untimed_calls() -> None:
    """The two slow first calls and a single stall do not count; the figure is for one item, in milliseconds."""
    costs = iter([9.0, 9.0, *([0.004] * 10), 5.0, *([0.004] * 9)])
    now, seen = 0.0, []

    def run(batch: np.ndarray) -> None:  # type: ignore[type-arg]
        nonlocal now
        seen.append(batch.shape)
        now += next(costs)

    assert per_item_ms(run, np.zeros((8, 3)), clock=lambda: now) == pytest.approx(0.5)
    assert seen == [(8, 3)] * 22


def test_a_real_call_takes_time() -> None:
    """With the real clock a call that does something costs more than nothing."""
    assert per_item_ms(sorted, list(range(1000, 0, -1)), repeats=3) > 0


@pytest.mark.parametrize(("items", "repeats"), [([], 20), ([1], 0)])
def test_nothing_cannot_be_timed(items: list[int], repeats: int) -> None:
    """An empty batch or no repeats is a mistake, not a division by zero."""
    with pytest.raises(ValueError, match="nothing to time"):
        per_item_ms(sorted, items, repeats)
