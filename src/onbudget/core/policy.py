"""Which waiting tickets form the next batch: pure functions of a queue and of times that are handed in.

The same object runs in the server's lanes, in the simulator and in the tests. A policy is asked by a free lane, never
by a timer: *pull*, so that a batch is whatever came while the lane was busy, and a lone request never waits.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from onbudget.core.queue import Group, Queue

# Of each lane: how many items it runs (0: it is idle), and for how many seconds it has done so.
Running = Sequence[tuple[int, float]]


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


@dataclass(frozen=True, slots=True)
class Drop:
    """These requests can't be in time any more: answer them so, and ask again."""

    groups: list[Group]


class Policy(Protocol):
    """What the door and a free lane ask."""

    @property
    def name(self) -> str:
        """A word for metrics and pages."""
        ...

    @property
    def max_batch(self) -> int:
        """The most items that it ever takes."""
        ...

    def admit(
        self, waiting: int, running: Running, items: int, age: float, now: float, within: float | None = None
    ) -> bool:
        """Let a request of `items` in behind `waiting` ones, or raise Shed or TooLarge → whether a lane takes it now.

        `running` tells of each lane; `age` is for how many seconds the request has existed; `within` is for how many it
        may, where its caller said so.
        """
        ...

    def next_batch(self, queue: Queue, now: float, since: float) -> Take | Wait | Drop | None:
        """The next batch for a lane that is free at `now`; None when nothing waits.

        `since` is when this lane, being free, first saw a waiting ticket (perhaps one that another lane took). Times
        are monotonic seconds.
        """
        ...


def urgent(queue: Queue) -> tuple[Hashable, int, float] | None:
    """The bucket whose head is due soonest, and has then waited longest, its live tickets, and the head's arrival."""
    best = None
    for ticket, live in queue.heads():
        order = (ticket.group.deadline, ticket.group.arrived)
        if best is None or order < (best[0].group.deadline, best[0].group.arrived):
            best = ticket, live
    return (best[0].key, best[1], best[0].group.arrived) if best else None


def lone(waiting: int, running: Running, items: int) -> bool:
    """Whether this is a single item, nobody waits, and a lane is idle."""
    return items == 1 and waiting == 0 and any(rows == 0 for rows, _ in running)


@dataclass(frozen=True, slots=True)
class Greedy:
    """Take what is there, up to `max_batch`, the moment a lane is free."""

    max_batch: int
    name: str = "greedy"

    def admit(
        self, waiting: int, running: Running, items: int, age: float, now: float, within: float | None = None
    ) -> bool:
        """Everybody comes in; only the queue's own bounds refuse."""
        return lone(waiting, running, items)

    def next_batch(self, queue: Queue, now: float, since: float) -> Take | Wait | Drop | None:
        """Everything that waits in the oldest bucket, up to `max_batch`."""
        found = urgent(queue)
        if found is None:
            return None
        key, live, _ = found
        return Take(key, self.max_batch, "full") if live >= self.max_batch else Take(key, live, "idle")


@dataclass(frozen=True, slots=True)
class Timer:
    """The usual server's rule, to compare with: a free lane waits up to `max_wait` seconds for a batch to fill."""

    max_batch: int
    max_wait: float
    name: str = "timer"

    def admit(
        self, waiting: int, running: Running, items: int, age: float, now: float, within: float | None = None
    ) -> bool:
        """Everybody comes in; only the queue's own bounds refuse. A free lane may wait for company."""
        return False

    def next_batch(self, queue: Queue, now: float, since: float) -> Take | Wait | Drop | None:
        """A full batch at once; a smaller one when `max_wait` has passed since the lane saw its first ticket."""
        found = urgent(queue)
        if found is None:
            return None
        key, live, arrived = found
        if live >= self.max_batch:
            return Take(key, self.max_batch, "full")
        began = max(since, arrived)  # `since` may be of a ticket that is gone
        if now - began >= self.max_wait:
            return Take(key, live, "wait")
        return Wait(began + self.max_wait)
