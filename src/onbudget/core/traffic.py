"""Arrivals for simulations: times in seconds from 0, ascending, the same for the same seed.

The same seed gives the same pattern at every rate, only faster, so that two rates differ by the rate and not by luck.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def poisson(rate: float, seconds: float, seed: int = 0) -> Floats:
    """Independent callers, `rate` a second on average, for `seconds`. ValueError for numbers that can't be meant."""
    _check(rate=rate, seconds=seconds)
    return _unit(rate * seconds, np.random.default_rng(seed)) / rate


def bursty(rate: float, seconds: float, seed: int = 0, *, swing: float = 0.8, phase_s: float = 10.0) -> Floats:
    """Busy and calm phases in turn: Poisson at (1 + `swing`) times `rate`, then at (1 - `swing`) times it.

    Each phase's length is exponential with mean `phase_s` seconds (a Markov-modulated Poisson process of two states).
    ValueError for numbers that can't be meant.
    """
    _check(rate=rate, seconds=seconds, phase_s=phase_s)
    if not 0 <= swing <= 1:
        raise ValueError(f"a swing of {swing} can't be meant; it is from 0 to 1")
    draw = np.random.default_rng(seed)
    ends = [0.0]
    while ends[-1] < seconds:
        ends.append(ends[-1] + draw.exponential(phase_s))
    edges = np.array(ends)
    pace = np.where(np.arange(len(edges) - 1) % 2 == 0, 1 + swing, 1 - swing)
    expected = np.concatenate([[0.0], np.cumsum(np.diff(edges) * pace)]) * rate  # callers by the end of each phase
    until = float(np.interp(seconds, edges, expected))
    found: Floats = np.interp(_unit(until, draw), expected, edges)
    return found


def _unit(until: float, draw: np.random.Generator) -> Floats:
    """One a second on average, up to `until` seconds."""
    times = np.zeros(0)
    last = 0.0
    while last < until:
        more = last + np.cumsum(draw.standard_exponential(4096))
        times, last = np.concatenate([times, more]), float(more[-1])
    return times[times < until]


def _check(**numbers: float) -> None:
    for name, value in numbers.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name}={value} can't be meant; it is above 0")
