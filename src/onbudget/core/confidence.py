"""How far a measured share or percentile can be trusted when its values are not independent.

Latencies in a queue come in crowds: one late answer makes the next one late. At a load of 0.8 the textbook 95 %
interval of a late share covers the truth 18 times in 100 (we simulated it), because n values carry the news of n/45. So
the number of values is divided by how much their batch means vary beyond what independent ones would (batch means:
Law & Carson 1979; a residual correlation of neighbouring batches is added), and Student's t takes the place of the
normal distribution. Simulated on M/D/1 queues with 1,600 requests, intervals made this way cover the true late share 94
to 96 times in 100 up to a load of 0.6, 89 to 96 at 0.8 and 87 to 93 at 0.9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

FEWEST = 20  # below so many values nothing is said of their correlation
_BATCHES, _FEW_BATCHES = 20, 10
_FEW = 200  # below so many values: fewer, longer batches


@dataclass(frozen=True, slots=True)
class Interval:
    """From `low` to `high`, both included; `high` may be infinite."""

    low: float
    high: float

    def overlaps(self, other: Interval) -> bool:
        """Whether some value lies in both."""
        return self.low <= other.high and other.low <= self.high


def student_t(p: float, df: int) -> float:
    """The quantile `p` (between 0 and 1) of Student's t with `df` degrees of freedom; ValueError below 4 of them.

    Hill's expansion around the normal quantile (Abramowitz & Stegun 26.7.5); right to 1 % at 4 degrees, 0.01 % from 9.
    """
    if df < 4:
        raise ValueError(f"the expansion is too coarse for {df} degrees of freedom")
    from statistics import NormalDist  # 10 ms that serving does not pay

    z = NormalDist().inv_cdf(p)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return math.fsum(term / df**power for power, term in enumerate(terms))


def batches_for(n: int) -> int:
    """How many batches `n` values in their order are cut into."""
    return _BATCHES if n >= _FEW else _FEW_BATCHES


def crowding(flags: npt.NDArray[Any]) -> float:
    """How many values in a row tell what one independent value would; at least 1.

    `flags` are 0 or 1 in the order in which the values arose, FEWEST of them or more (ValueError). It is 1 where
    all are equal: nothing can be told then.
    """
    n = len(flags)
    if n < FEWEST:
        raise ValueError(f"{n} values are too few to tell their correlation")
    share = float(np.mean(flags))
    if share in (0.0, 1.0):
        return 1.0
    count = batches_for(n)
    length = n // count
    means = np.asarray(flags[n - length * count :], np.float64).reshape(count, length).mean(axis=1)
    off = means - means.mean()
    spread = float(off @ off)
    if spread == 0:
        return 1.0
    ratio = length * spread / (count - 1) / (share * (1 - share))
    neighbours = max(0.0, float(off[1:] @ off[:-1]) / spread)
    return max(1.0, ratio * (1 + 2 * neighbours))


def share_interval(share: float, n: float, t: float) -> Interval:
    """Wilson's score interval for a share seen in `n` (effective, so not always whole) values, at `t` deviations."""
    middle = share + t * t / (2 * n)
    half = t * math.sqrt(share * (1 - share) / n + t * t / (4 * n * n))
    scale = 1 + t * t / n
    return Interval(max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale))


def values_needed(share: float, target: float, t: float) -> float:
    """Independent values after which Wilson's interval of this share no longer holds `target`; may be infinite."""
    if share == target:
        return math.inf
    return t * t * target * (1 - target) / (share - target) ** 2


def quantile_interval(ordered: Floats, q: float, n: float, t: float) -> Interval:
    """Between which order statistics the q-quantile (share, 0 to 1) lies; `n` as in `share_interval`.

    `high` is infinite where there are too few values to bound it. ValueError for no values.
    """
    if not len(ordered):
        raise ValueError("no interval of no values")
    half = t * math.sqrt(q * (1 - q) / n)
    low = math.floor((q - half) * len(ordered)) - 1
    high = math.ceil((q + half) * len(ordered)) - 1
    return Interval(
        float(ordered[low]) if low >= 0 else 0.0,
        float(ordered[high]) if high < len(ordered) else math.inf,
    )


def difference(before: float, where: Interval, after: float, there: Interval) -> Interval:
    """Where `after - before` lies, from where each of two that were measured apart lies, at the same confidence.

    MOVER (Zou & Donner, Statistics in Medicine 27, 2008; of two shares with Wilson's intervals it is Newcombe's method
    10): halves are added as squares, each side with those that it is made of, so that lopsided intervals stay lopsided.
    """
    found = after - before
    low = found - math.hypot(max(0.0, after - there.low), max(0.0, where.high - before))
    high = found + math.hypot(max(0.0, there.high - after), max(0.0, before - where.low))
    return Interval(low, high)


def trend(values: npt.NDArray[Any]) -> float:
    """Kendall's rank test for a trend, in standard deviations: positive where values rise. 0 where all are equal."""
    n = len(values)
    rising = sum(
        int((values[i + 1 :] > one).sum()) - int((values[i + 1 :] < one).sum()) for i, one in enumerate(values)
    )
    ties = np.unique(values, return_counts=True)[1]
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    return rising / math.sqrt(variance) if variance > 0 else 0.0
