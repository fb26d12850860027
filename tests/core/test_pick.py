"""Which configuration is served: within the budget under both loads, then the best at peak."""

from __future__ import annotations

import math

import pytest

from onbudget.core.pick import Loads, pick


@pytest.mark.parametrize(
    ("measured", "chosen"),
    [
        ({}, None),
        ({"a": Loads(0.010, 0.020)}, "a"),  # exactly the budget is within it
        ({"a": Loads(0.010, 0.0201)}, None),
        ({"a": Loads(0.021, 0.005)}, None),  # best at peak, but too slow when it is quiet
        ({"a": Loads(0.021, 0.005), "b": Loads(0.001, 0.019), "c": Loads(0.019, 0.018)}, "c"),
        ({"a": Loads(0.002, 0.018), "b": Loads(0.001, 0.018)}, "a"),  # equals: the first
        ({"a": Loads(math.nan, 0.001), "b": Loads(0.001, math.nan), "c": Loads(0.001, math.inf)}, None),
    ],
)
def test_the_lowest_peak_of_those_that_fit_both_loads(measured: dict[str, Loads], chosen: str | None) -> None:
    """A budget of 20 ms."""
    assert pick(measured, 0.020) == chosen
