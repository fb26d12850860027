"""Which waiting tickets form the next batch: pure functions of a queue and of times that are handed in.

The same object runs in the server's lanes, in the simulator and in the tests. A policy is asked by a free lane, never
by a timer: *pull*, so that a batch is whatever came while the lane was busy, and a lone request never waits.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol

from onbudget.core.queue import Queue


@dataclass(frozen=True, slots=True)
class Take:
    """Run now: up to `count` tickets of bucket `key`. `why` is a word for metrics: full, idle or wait."""

    key: Hashable
    count: int
    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again at `until`, or when something arrives."""

    until: float


class Policy(Protocol):
    """What a free lane asks."""

    @property
    def name(self) -> str:
        """A word for metrics and pages."""
        ...

    @property
    def max_batch(self) -> int:
        """The most items that it ever takes."""
        ...

    def next_batch(self, queue: Queue, now: float, since: float) -> Take | Wait | None:
        """The next batch for a lane that is free at `now`; None when nothing waits.

        `since` is when this lane, being free, first saw a waiting ticket (perhaps one that another lane took). Times
        are monotonic seconds.
        """
        ...


def _oldest(queue: Queue) -> tuple[Hashable, int, float] | None:
    """The bucket whose head has waited longest, its live tickets, and when that head arrived."""
    best = None
    for ticket, live in queue.heads():
        if best is None or ticket.group.arrived < best[0].group.arrived:
            best = ticket, live
    return (best[0].key, best[1], best[0].group.arrived) if best else None


@dataclass(frozen=True, slots=True)
class Greedy:
    """Take what is there, up to `max_batch`, the moment a lane is free."""

    max_batch: int
    name: str = "greedy"

    def next_batch(self, queue: Queue, now: float, since: float) -> Take | Wait | None:
        """Everything that waits in the oldest bucket, up to `max_batch`."""
        oldest = _oldest(queue)
        if oldest is None:
            return None
        key, live, _ = oldest
        return Take(key, self.max_batch, "full") if live >= self.max_batch else Take(key, live, "idle")


@dataclass(frozen=True, slots=True)
class Timer:
    """The usual server's rule, to compare with: a free lane waits up to `max_wait` seconds for a batch to fill."""

    max_batch: int
    max_wait: float
    name: str = "timer"

    def next_batch(self, queue: Queue, now: float, since: float) -> Take | Wait | None:
        """A full batch at once; a smaller one when `max_wait` has passed since the lane saw its first ticket."""
        oldest = _oldest(queue)
        if oldest is None:
            return None
        key, live, arrived = oldest
        if live >= self.max_batch:
            return Take(key, self.max_batch, "full")
        began = max(since, arrived)  # `since` may be of a ticket that is gone
        if now - began >= self.max_wait:
            return Take(key, live, "wait")
        return Wait(began + self.max_wait)
