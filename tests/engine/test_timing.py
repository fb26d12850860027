"""What a call costs, told by a clock that the test turns."""

from __future__ import annotations

import numpy as np
import pytest

from onbudget.engine.timing import curve, per_item_ms


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


@pytest.mark.parametrize(
    ("seconds_an_item", "preparing", "sizes"),
    [(0.0001, 0.0, [1, 2, 4, 8, 16]), (0.002, 0.0, [1, 2]), (0.0001, 0.003, [1, 2, 4, 8]), (0.1, 0.0, [])],
)
def test_a_curve_has_the_sizes_that_its_budget_pays_for(
    seconds_an_item: float, preparing: float, sizes: list[int]
) -> None:
    """Each first run is left out, and the whole, preparing included, ends within the budget unless one run does not."""
    now, seen = 0.0, []

    def run(size: int) -> float:
        nonlocal now
        took = seconds_an_item * size * (1 if size in seen else 3)
        seen.append(size)
        now += preparing + took
        return took

    found = curve(run, (1, 2, 4, 8, 16), 0.045, clock=lambda: now)
    assert list(found) == sizes
    assert found == pytest.approx({size: seconds_an_item * size for size in sizes})
    assert now <= 0.045 or seen == [1]
