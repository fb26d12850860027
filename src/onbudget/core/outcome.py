"""What became of every request of a simulation, and what that says of a budget.

Rules of this file. A refusal, a failure and no answer at all are infinitely late, so that no percentile gets better by
refusing. Every count is of the requests that are judged: those that arrived after the warm-up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from onbudget.core.traffic import Floats


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time from `start` seconds on in which more than 5 % of `offered` requests missed the budget."""

    start: float
    offered: int
    refused: int  # or failed
    late: int


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no one truth
class Outcome:
    """Of each request when it arrived and how long its answer took, in seconds; infinity where it got none.

    `refused` counts by reason, `failed` those whose run was lost, `batches` the runs by their size, warm-up included.
    """

    budget_s: float
    seconds: float  # for how long requests were offered and judged
    arrived: Floats
    latency: Floats
    refused: Mapping[str, int]
    failed: int
    batches: Mapping[int, int]

    @property
    def offered(self) -> int:
        """All who asked."""
        return len(self.latency)

    @property
    def answered(self) -> int:
        """Who got an answer, in time or not."""
        return int(np.isfinite(self.latency).sum())

    @property
    def good(self) -> int:
        """Who got it within the budget."""
        return int((self.latency <= self.budget_s).sum())

    @property
    def late(self) -> int:
        """Who got it after the budget."""
        return self.answered - self.good

    @property
    def good_share(self) -> float:
        """Of those who asked, the share that was answered in time; NaN where nobody asked."""
        return self.good / self.offered if self.offered else math.nan

    @property
    def late_share(self) -> float:
        """Of those who were answered, the share that was late: above 5 %, the promise is broken. 0 where nobody was."""
        return self.late / self.answered if self.answered else 0.0

    @property
    def unanswered_share(self) -> float:
        """Of those who asked, the share that was refused or failed; NaN where nobody asked."""
        return 1 - self.answered / self.offered if self.offered else math.nan

    @property
    def rate(self) -> float:
        """Answers in time a second; NaN where no time passed."""
        return self.good / self.seconds if self.seconds > 0 else math.nan

    @property
    def p95(self) -> float:
        """In seconds, of all who asked."""
        return self.quantile(0.95)

    def quantile(self, q: float) -> float:
        """The latency, in seconds, that a share `q` of all who asked did not exceed; NaN where nobody asked."""
        if not self.offered:
            return math.nan
        rank = max(0, math.ceil(q * self.offered) - 1)
        return float(np.partition(self.latency, rank)[rank])  # no interpolation: half of infinity says nothing

    def shortfalls(self, window_s: float) -> list[Window]:
        """The windows of `window_s` seconds in which more than 5 % missed the budget, in order."""
        if not self.offered:
            return []
        number = (self.arrived // window_s).astype(np.int64)
        size = int(number[-1]) + 1
        offered = np.bincount(number, minlength=size)
        lost = np.bincount(number[np.isinf(self.latency)], minlength=size)
        good = np.bincount(number[self.latency <= self.budget_s], minlength=size)
        missed = np.flatnonzero(offered - good > 0.05 * offered)
        return [
            Window(float(w * window_s), int(offered[w]), int(lost[w]), int(offered[w] - good[w] - lost[w]))
            for w in missed
        ]


def limit_rate(
    run: Callable[[float], Outcome], high: float, most_unanswered: float = 1.0, precision: float = 0.01
) -> float:
    """The highest rate, up to `high` and to `precision` of it, at which `run(rate)` has its p95 within the budget.

    `most_unanswered` is the largest share of refusals and failures that counts as holding: 0.01 for what is called
    goodput here. 0 where nothing above a thousandth of `high` holds. What holds at one rate is taken to hold at every
    lower one. ValueError for a `high` or a `precision` that is not above 0.
    """
    if not (0 < high < math.inf and precision > 0):
        raise ValueError(f"a search up to {high}/s to {precision} of it can't be meant")

    def holds(rate: float) -> bool:
        told = run(rate)
        return told.p95 <= told.budget_s and told.unanswered_share <= most_unanswered

    low, least = 0.0, high / 1000
    if holds(high):
        return high
    while high - low > precision * high and high > least:
        middle = (low + high) / 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low
