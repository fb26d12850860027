"""Looking for a limit rate by load tests: which rate to offer next, and what the tests say together.

A rate holds where at least 95 % of all who asked were answered within the budget and at most 1 % were refused, which is
what is called goodput here. One that held outweighs lower ones that did not: a pause of the host fails any rate, and
nothing makes a server hold more than it can.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from onbudget.core.forecast import GOODPUT

UP, DOWN, LEAST = 1.15, 0.8, 0.3  # the next rate while only one side is known


class Tried(Protocol):
    """A load test at `rate` a second; shares are of all requests offered."""

    @property
    def rate(self) -> float:
        """Requests a second."""
        ...

    @property
    def in_budget(self) -> float:
        """The share that was answered within the budget."""
        ...

    @property
    def refused(self) -> float:
        """The share that got no answer."""
        ...


def holds(one: Tried, most_refused: float = GOODPUT, quantile: float = 0.95) -> bool:
    """Whether a rate held."""
    return one.in_budget >= quantile and one.refused <= most_refused


def next_rate(tried: Sequence[Tried], guess: float) -> float:
    """Which rate to try now: `guess` first, then up or down until one holds and one fails, then between the two.

    Up in steps that grow, down by as much as was missed.
    """
    low, high = _sides(tried, GOODPUT, 0.95)
    if low is None:
        return guess if high is None else high.rate * min(DOWN, max(LEAST, high.in_budget))
    return low.rate * UP ** len(tried) if high is None else (low.rate + high.rate) / 2


def limit_of(tried: Sequence[Tried], most_refused: float = GOODPUT, quantile: float = 0.95) -> float:
    """The rate at which the budget stops to be held: between the highest that holds and the lowest above that fails.

    The share in budget, and the one refused, are taken as straight between the two. Where none holds, it is below the
    lowest; where none fails, it is the highest. ValueError for no tests.
    """
    low, high = _sides(tried, most_refused, quantile)
    if low is None:
        if high is None:
            raise ValueError("no load tests tell no limit")
        return high.rate * min(1.0, high.in_budget / quantile)
    if high is None:
        return low.rate
    parts = [1.0]
    if high.in_budget < quantile:
        parts.append((low.in_budget - quantile) / (low.in_budget - high.in_budget))
    if high.refused > most_refused:
        parts.append((most_refused - low.refused) / (high.refused - low.refused))
    return low.rate + (high.rate - low.rate) * min(parts)


def _sides(tried: Sequence[Tried], most_refused: float, quantile: float) -> tuple[Tried | None, Tried | None]:
    """The highest rate that holds, and the lowest above it that fails."""
    good = [one for one in tried if holds(one, most_refused, quantile)]
    low = max(good, key=lambda one: one.rate, default=None)
    bad = [one for one in tried if not holds(one, most_refused, quantile) and (low is None or one.rate > low.rate)]
    return low, min(bad, key=lambda one: one.rate, default=None)
