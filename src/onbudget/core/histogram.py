"""Durations counted in fixed buckets: constant-time record, mergeable, and nothing lost at either end.

Bucket i holds values in (edges[i-1], edges[i]]; the last one holds everything above the last edge, infinity included.
Edges that a caller gives are edges exactly, so that "how many were within 20 ms" is a count and not an estimate. A
quantile errs by at most one bucket (7.5 % with the usual edges) and never falls on the other side of a given edge.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

_INF = math.inf


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile is never shown without the count that it comes from. `value` is in seconds."""

    value: float
    count: int


def log_edges(low: float = 1e-5, high: float = 1e3, per_decade: int = 32) -> list[float]:
    """Edges from `low` to `high` seconds, `per_decade` of them in each factor of ten."""
    steps = round(math.log10(high / low) * per_decade)
    return [low * 10 ** (i / per_decade) for i in range(steps + 1)]


class Histogram:
    """Counts of durations in seconds. Two histograms of the same edges can be merged and subtracted.

    `exact` are edges that must be there whatever the others are (a budget); `edges` replaces the usual ones.
    """

    __slots__ = ("count", "counts", "edges", "endless", "largest", "total")

    def __init__(self, *exact: float, edges: Sequence[float] | None = None) -> None:
        base = log_edges() if edges is None else edges
        self.edges: list[float] = sorted({float(edge) for edge in (*base, *exact)})
        if not self.edges or not all(0 < edge < _INF for edge in self.edges):
            raise ValueError(f"bucket edges must be finite numbers above zero, not {self.edges[:1] or 'none at all'}")
        self.counts: list[int] = [0] * (len(self.edges) + 1)
        self.count = 0
        self.endless = 0  # of `count`: values that were infinite
        self.total = 0.0  # sum of the finite values
        self.largest = 0.0  # of the finite values

    def record(self, value: float) -> None:
        """Count one value; infinity is a value (it never came). ValueError for NaN and negative ones."""
        if 0.0 <= value < _INF:
            self.total += value
            if value > self.largest:
                self.largest = value
        elif value == _INF:
            self.endless += 1
        else:
            raise ValueError(f"{value} is not a duration")
        self.counts[bisect_left(self.edges, value)] += 1
        self.count += 1

    def record_many(self, values: Sequence[float]) -> None:
        """Count several at once, which costs a fraction; ValueError as `record`, and then nothing is counted."""
        given = np.asarray(values, np.float64)
        if not (given >= 0).all():
            raise ValueError(f"{float(given[~(given >= 0)][0])} is not a duration")
        places, counts = np.unique(np.searchsorted(self.edges, given), return_counts=True)
        for place, count in zip(places.tolist(), counts.tolist(), strict=True):
            self.counts[place] += count
        finite = given[given < _INF]
        self.total += float(finite.sum())
        self.largest = max(self.largest, float(finite.max(initial=0.0)))
        self.endless += given.size - finite.size
        self.count += given.size

    def merge(self, other: Histogram) -> None:
        """Add the other's counts to this one. ValueError where the edges differ."""
        self._combine(other, 1)
        self.largest = max(self.largest, other.largest)

    def since(self, earlier: Histogram) -> Histogram:
        """What was recorded after `earlier`, a copy of this one; `largest` stays this one's. ValueError as in merge."""
        window = self.copy()
        window._combine(earlier, -1)
        if window.count < 0 or min(window.counts) < 0:
            raise ValueError("the earlier histogram has counts that this one has not")
        return window

    def _combine(self, other: Histogram, sign: int) -> None:
        if self.edges != other.edges:
            raise ValueError("histograms of different edges cannot be combined")
        self.counts = [mine + sign * theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.count += sign * other.count
        self.endless += sign * other.endless
        self.total += sign * other.total

    def copy(self) -> Histogram:
        """An equal one that shares nothing."""
        twin = Histogram(edges=self.edges)
        twin.merge(self)
        return twin

    def within(self, edge: float) -> int:
        """How many values were at most `edge`, exactly. ValueError where it is not one of the edges."""
        place = bisect_left(self.edges, edge)
        if place == len(self.edges) or self.edges[place] != edge:
            raise ValueError(f"{edge:g} s is not a bucket edge; give it when the histogram is made")
        return sum(self.counts[: place + 1])

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """(edge, values at most that edge) for each edge, then (infinity, all): Prometheus' form."""
        so_far = 0
        for edge, count in zip((*self.edges, _INF), self.counts, strict=True):
            so_far += count
            yield edge, so_far

    def quantile(self, q: float, at_least: int = 1) -> Quantile | None:
        """The value that a share `q` of all were at most, with the count; None below `at_least` values.

        Infinity where that value never came. ValueError for a `q` outside (0, 1].
        """
        if not 0 < q <= 1:
            raise ValueError(f"a quantile is a share above 0 and up to 1, not {q}")
        if self.count < max(1, at_least):
            return None
        rank = max(1, math.ceil(q * self.count - 1e-9))
        if rank > self.count - self.endless:
            return Quantile(_INF, self.count)
        place = before = 0
        while before + self.counts[place] < rank:
            before += self.counts[place]
            place += 1
        low = self.edges[place - 1] if place else 0.0
        high = min(self.edges[place], self.largest) if place < len(self.edges) else self.largest
        low = min(low, high)  # a window's largest may be older than the window
        return Quantile(low + (high - low) * (rank - before) / self.counts[place], self.count)


class Tally:
    """A histogram that counts later: for a hot path, which only keeps its values until they are folded in.

    `record` keeps a value: it is a list's append. Whoever records also folds, and every so often: what is kept has no
    bound. Others may read `histogram`, which lacks what was not folded yet.
    """

    __slots__ = ("_kept", "histogram", "record")

    def __init__(self, *exact: float, edges: Sequence[float] | None = None) -> None:
        self.histogram = Histogram(*exact, edges=edges)
        self._kept: list[float] = []
        self.record = self._kept.append

    def fold(self) -> Histogram:
        """Count what was kept. ValueError where some of it is no duration: then none of it is counted."""
        if self._kept:
            kept = self._kept.copy()
            self._kept.clear()
            self.histogram.record_many(kept)
        return self.histogram


def percentile(values: Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]], q: float) -> float:
    """The q-th percentile (0 to 100) with numpy's linear interpolation; values may be infinite.

    Between a finite value and an infinite one it is infinite, where numpy gives NaN. ValueError for no values, for NaN
    and for a `q` outside 0 to 100.
    """
    ordered = np.sort(np.asarray(values, np.float64))
    if not ordered.size or np.isnan(ordered[-1]):
        raise ValueError("no percentile of no values" if not ordered.size else "no percentile of NaN")
    if not 0 <= q <= 100:
        raise ValueError(f"a percentile is from 0 to 100, not {q}")
    place = (ordered.size - 1) * (q / 100)
    below = math.floor(place)
    share = place - below
    low, high = float(ordered[below]), float(ordered[min(below + 1, ordered.size - 1)])
    if share == 0 or low == high:
        return low
    if high == _INF:
        return _INF
    # from the nearer end, as numpy does it, so that both round alike
    return low + (high - low) * share if share < 0.5 else high - (high - low) * (1 - share)
