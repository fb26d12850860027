"""Arrivals for simulations: as many as asked for, in bunches where asked for, and the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from onbudget.core.traffic import bursty, poisson


def spread(times: np.ndarray, window: float) -> float:
    """Variance of the counts in windows over their mean: 1 for Poisson, more for bunches."""
    counts = np.bincount((times // window).astype(int))
    return float(counts.var() / counts.mean())


def test_independent_callers_come_at_the_rate_and_at_no_pace() -> None:
    """The count is within four deviations of what was asked for, and counts vary as Poisson ones do."""
    times = poisson(50, 400, seed=3)
    assert abs(len(times) - 20_000) < 4 * 20_000**0.5
    assert times[0] > 0
    assert times[-1] < 400
    assert (np.diff(times) >= 0).all()
    assert spread(times, 1.0) == pytest.approx(1.0, abs=0.25)


def test_bursts_keep_the_mean_and_come_in_bunches() -> None:
    """Phases of 2 s at 1.8 and 0.2 times the rate."""
    times = bursty(50, 2000, seed=3, swing=0.8, phase_s=2.0)
    assert len(times) == pytest.approx(100_000, rel=0.06)
    assert (np.diff(times) >= 0).all()
    assert spread(times, 1.0) > 10


def test_a_seed_is_a_pattern_at_every_rate() -> None:
    """Twice the rate is the same callers in half the time; another seed is others."""
    slow, fast = poisson(10, 100, seed=5), poisson(20, 50, seed=5)
    np.testing.assert_allclose(slow, 2 * fast)
    np.testing.assert_array_equal(bursty(10, 100, seed=5), bursty(10, 100, seed=5))
    assert poisson(10, 100, seed=6)[0] != slow[0]


@pytest.mark.parametrize("wrong", [{"rate": 0}, {"seconds": -1}, {"swing": 1.5}, {"phase_s": 0}])
def test_numbers_that_cannot_be_meant(wrong: dict[str, float]) -> None:
    """A rate of nothing, no time, calm phases with fewer than nobody."""
    with pytest.raises(ValueError, match="can't be meant"):
        bursty(**{"rate": 1.0, "seconds": 1.0, **wrong})
