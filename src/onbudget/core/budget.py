"""A latency budget, and whether a run of answers met it: met, missed, or undecided and how many more it would take.

Rules of this file. A refusal, an error and no answer at all are infinitely late. What comes after the stated warm-up
counts, all of it: MSER-5 only *advises* a longer warm-up, because a cut that moves by itself cuts stalls away. A run
whose latency rises (or falls) all the way has no percentile: whatever one measured would only tell how long one did.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from onbudget.core.confidence import (
    FEWEST,
    Interval,
    batches_for,
    crowding,
    quantile_interval,
    share_interval,
    student_t,
    values_needed,
)
from onbudget.core.confidence import trend as rank_trend

Floats = npt.NDArray[np.float64]
Word = Literal["met", "missed", "undecided"]

_HOPELESS = 50  # "n more" is not said where it is more than this many times what was measured
_TREND = 4.0  # deviations of Kendall's test; M/D/1 at a load of 0.9 passes it 5 times in 1000, at 1.2 always
_GROWTH = 1.5  # and this much between the first and the last quarter, so that a slow drift of 1 % is no alarm


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run says of a budget.

    `late` of `count` were late; the true share is within `share` with the budget's confidence. `crowding` is how many
    requests tell as much as one independent one. `more` is how many more requests would settle an undecided verdict;
    None where it is settled, or where even fifty times as many would not do.
    """

    word: Word
    late: int
    count: int
    share: Interval
    crowding: float
    more: int | None


@dataclass(frozen=True, slots=True)
class Budget:
    """At least `quantile` of all requests offered must be answered within `p95_s` seconds, said with `confidence`.

    ValueError for numbers that cannot be meant.
    """

    p95_s: float
    quantile: float = 0.95
    confidence: float = 0.95

    def __post_init__(self) -> None:
        """Refuse what is no duration or no share."""
        if not 0 < self.p95_s < math.inf:
            raise ValueError(f"a budget is a time above zero, not {self.p95_s}")
        for name in ("quantile", "confidence"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} is a share between 0 and 1, not {getattr(self, name)}")

    def judge(self, latencies: npt.ArrayLike) -> Verdict:
        """`latencies` in seconds, one for every request offered after the warm-up, in the order in which they were due.

        The result is: *met* where the whole interval of the late share is at most 5 %, *missed* where it is above,
        *undecided* between. ValueError for NaN.
        """
        values = np.asarray(latencies, np.float64)
        if np.isnan(values).any():
            raise ValueError("a latency is NaN; no answer is infinity")
        count, allowed = len(values), 1 - self.quantile
        late = int((values > self.p95_s).sum())
        if count < FEWEST:
            least = math.ceil(values_needed(0.0, allowed, self._t(FEWEST)))
            return Verdict("undecided", late, count, Interval(0.0, 1.0), 1.0, least - count)
        t, crowd = self._t(count), self._crowding(values)
        told, share = count / crowd, late / count
        interval = share_interval(share, told, t)
        if interval.high <= allowed:
            return Verdict("met", late, count, interval, crowd, None)
        if interval.low > allowed:
            return Verdict("missed", late, count, interval, crowd, None)
        needed = values_needed(share, allowed, t) * crowd - count
        more = max(1, math.ceil(needed)) if needed < _HOPELESS * count else None
        return Verdict("undecided", late, count, interval, crowd, more)

    def _t(self, count: int) -> float:
        return student_t((1 + self.confidence) / 2, batches_for(count) - 1)

    def _crowding(self, values: Floats) -> float:
        """Seen at the budget and at the run's own p95, whichever is worse: two late answers tell little of a crowd."""
        rank = math.ceil(self.quantile * len(values)) - 1
        own = np.partition(values, rank)[rank]
        return max(crowding(values > self.p95_s), crowding(values > own))


def p95_interval(latencies: npt.ArrayLike, confidence: float = 0.95) -> Interval | None:
    """Where the true p95 lies, correlation reckoned with; None below FEWEST values. Order and units as in `judge`."""
    values = np.asarray(latencies, np.float64)
    count = len(values)
    if count < FEWEST:
        return None
    ordered = np.sort(values)
    crowd = crowding(values > ordered[math.ceil(0.95 * count) - 1])
    t = student_t((1 + confidence) / 2, batches_for(count) - 1)
    return quantile_interval(ordered, 0.95, count / crowd, t)


@dataclass(frozen=True, slots=True)
class Steadiness:
    """Whether a run had settled: medians (seconds) of its first and last quarter, and which way they moved."""

    word: Literal["steady", "rising", "falling", "unknown"]
    first: float
    last: float


def steadiness(latencies: npt.ArrayLike) -> Steadiness:
    """Whether latency rose or fell all through the run; "unknown" below FEWEST values. Order and units as in `judge`.

    Both are asked for: a trend of batch medians that chance would not make, and a change of half or more between the
    quarters. A stall in the middle is neither. (In-flight at the end against Little's mean sees no steady growth: the
    end of a straight line is only twice its mean.)
    """
    values = np.asarray(latencies, np.float64)
    count = len(values)
    if count < FEWEST:
        return Steadiness("unknown", math.nan, math.nan)
    quarter = count // 4
    first, last = float(np.median(values[:quarter])), float(np.median(values[-quarter:]))
    batches = batches_for(count)
    length = count // batches
    moved = rank_trend(_medians(values[count - length * batches :].reshape(batches, length)))
    limit = min(_TREND, _most(batches) * 0.8)  # ten batches cannot be as sure as twenty
    if moved >= limit and last >= _GROWTH * first:
        return Steadiness("rising", first, last)
    if moved <= -limit and first >= _GROWTH * last:
        return Steadiness("falling", first, last)
    return Steadiness("steady", first, last)


def _medians(rows: Floats) -> Floats:
    """Each row's lower median: a mean of a finite and an infinite value would say nothing."""
    ordered: Floats = np.sort(rows, axis=1)[:, (rows.shape[1] - 1) // 2]
    return ordered


def _most(batches: int) -> float:
    """The largest value that the trend test can take."""
    return rank_trend(np.arange(batches))


def settling(latencies: npt.ArrayLike) -> int | None:
    """How many values to drop at the front by MSER-5 (White 1997), for advice; None where it never settled.

    The cut is where the mean of the rest is most sure: least variance over count, in batches of five. Infinite values
    count as twice the largest finite one.
    """
    values = np.asarray(latencies, np.float64)
    finite = values[np.isfinite(values)]
    count = len(values) // 5
    if count < 10 or not len(finite):
        return None
    capped = np.minimum(values, 2 * finite.max())
    means = capped[: count * 5].reshape(count, 5).mean(axis=1)
    left = np.arange(count, 0, -1, dtype=np.float64)
    sums, squares = np.cumsum(means[::-1])[::-1], np.cumsum((means**2)[::-1])[::-1]
    errors = (squares - sums**2 / left) / left**2
    cut = int(np.argmin(errors[: count // 2 + 1]))
    return None if cut == count // 2 else cut * 5
