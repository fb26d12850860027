"""Made-up numbers, the same on every machine, without the 25 ms that importing numpy.random adds to a cold start."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_STEP = 0x9E3779B97F4A7C15


class Noise:
    """A stream of numbers by splitmix64 (Steele, Lea and Flood, OOPSLA 2014), with numpy.random's method names."""

    def __init__(self, seed: int = 0) -> None:
        self._at = np.uint64((seed << 32) & 0xFFFFFFFFFFFFFFFF)

    def random(self, shape: Sequence[int]) -> npt.NDArray[np.float64]:
        """Uniform in 0 … 1, without 1."""
        count = math.prod(shape)
        with np.errstate(over="ignore"):  # wrapping around is how it works
            x = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_STEP) + self._at
            self._at = self._at + np.uint64(count) * np.uint64(_STEP)
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
        return ((x >> np.uint64(11)) * np.float64(2.0**-53)).astype(np.float64).reshape(tuple(shape))

    def integers(self, low: int, high: int, shape: Sequence[int]) -> npt.NDArray[np.int64]:
        """Whole numbers from `low` to `high` - 1."""
        return low + np.floor(self.random(shape) * (high - low)).astype(np.int64)

    def standard_normal(self, shape: Sequence[int]) -> npt.NDArray[np.float64]:
        """Mean 0, variance 1, by Box and Muller's transform."""
        radius = np.sqrt(-2.0 * np.log1p(-self.random(shape)))
        angle: npt.NDArray[Any] = 2.0 * math.pi * self.random(shape)
        return np.asarray(radius * np.cos(angle))
