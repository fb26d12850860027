"""Which waiting tickets form the next batch: pure functions of a queue and of times that are handed in.

The same object runs in the server's lanes, in the simulator and in the tests. A policy is asked by a free lane, never
by a timer: *pull*, so that a batch is whatever came while the lane was busy, and a lone request never waits.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from onbudget.core.late import Spare
from onbudget.core.priority import NORMAL
from onbudget.core.queue import Group, Queue, Ticket

# Of each lane: how many items it runs (0: it is idle), and for how many seconds it has done so.
Running = Sequence[tuple[int, float]]


class Entry(Enum):
    """How a request is let in."""

    WAITS = 0  # for its turn
    AT_ONCE = 1  # an idle lane takes it: it can't expire
    LATE = 2  # it can't be in time, and waits in the background


class Take(NamedTuple):
    """Run now: up to `count` tickets of bucket `key`, or of the background's if `late`.

    Up to `ride` tickets of the background ride along where the batch has room. `why` is a word for metrics: full, idle,
    wait, deadline or late.
    """

    key: Hashable
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody asks a Take
    why: str
    late: bool = False
    ride: int = 0

    def tickets(self, queue: Queue) -> list[Ticket]:
        """Take them out of the queue."""
        taken = queue.take(self.key, self.count, self.late)
        return taken + queue.take(self.key, self.ride, late=True) if self.ride else taken


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again at `until`, or when something arrives."""

    until: float


@dataclass(frozen=True, slots=True)
class Drop:
    """These requests can't be in time any more: move or end them (`next_run`), and ask again."""

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

    @property
    def spare(self) -> Spare | None:
        """Who may be answered late; None where nobody is sent to the background."""
        ...

    def admit(
        self,
        queue: Queue,
        running: Running,
        items: int,
        age: float,
        now: float,
        within: float | None = None,
        priority: int = NORMAL,
        look: bool = False,
    ) -> Entry:
        """Let a request of `items` in behind those of its class and of more urgent ones, or raise Shed or TooLarge.

        `running` tells of each lane; `age` is for how many seconds the request has existed; `within` is for how many it
        may, where its caller said so; `priority` is its class. With `look` whoever gets in will be asked about
        again, and is not counted yet.
        """
        ...

    def next_batch(self, queue: Queue, now: float, since: float, others: Running = ()) -> Take | Wait | Drop | None:
        """The next batch for a lane that is free at `now`; None when nothing waits.

        `since` is when this lane, being free, first saw a waiting ticket (perhaps one that another lane took); `others`
        tells of the other lanes. Times are monotonic seconds.
        """
        ...


def next_run(
    policy: Policy, queue: Queue, now: float, since: float, others: Running = ()
) -> tuple[Take | Wait | None, list[Group]]:
    """Ask a policy until something is to be done → that, and the groups that it gave up, taken out of the queue."""
    lost: list[Group] = []
    while isinstance(decision := policy.next_batch(queue, now, since, others), Drop):
        lost += give_up(queue, decision.groups, policy.spare)
    return decision, lost


def give_up(queue: Queue, groups: Sequence[Group], spare: Spare | None) -> list[Group]:
    """Groups that can't be in time: some move to the background, the others are taken out → those, each once."""
    lost = []
    for group in dict.fromkeys(groups):
        if spare is not None and spare.moves(group, queue.behind):
            queue.demote(group, spare.longest)
        else:
            queue.withdraw(group)
            lost.append(group)
    return lost


def urgent(queue: Queue, late: bool = False) -> tuple[Hashable, int, float] | None:
    """The bucket whose head goes next, its live tickets, and the head's arrival.

    The head of the most urgent class goes next; of those the one that is due soonest, and then the one that has waited
    longest.
    """
    best = None
    for ticket, live in queue.heads(late):
        group = ticket.group
        order = (group.priority, group.deadline, group.arrived)
        if best is None or order < best[0]:
            best = order, ticket.key, live
    return (best[1], best[2], best[0][2]) if best else None


def lone(waiting: int, running: Running, items: int) -> bool:
    """Whether this is a single item, nobody waits, and a lane is idle."""
    return items == 1 and waiting == 0 and any(rows == 0 for rows, _ in running)


@dataclass(frozen=True, slots=True)
class Greedy:
    """Take what is there, up to `max_batch`, the moment a lane is free."""

    max_batch: int
    name: str = "greedy"
    spare: None = None

    def admit(
        self,
        queue: Queue,
        running: Running,
        items: int,
        age: float,
        now: float,
        within: float | None = None,
        priority: int = NORMAL,
        look: bool = False,
    ) -> Entry:
        """Everybody comes in; only the queue's own bounds refuse."""
        return Entry.AT_ONCE if lone(queue.waiting, running, items) else Entry.WAITS

    def next_batch(self, queue: Queue, now: float, since: float, others: Running = ()) -> Take | Wait | Drop | None:
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
    spare: None = None

    def admit(
        self,
        queue: Queue,
        running: Running,
        items: int,
        age: float,
        now: float,
        within: float | None = None,
        priority: int = NORMAL,
        look: bool = False,
    ) -> Entry:
        """Everybody comes in; only the queue's own bounds refuse. A free lane may wait for company."""
        return Entry.WAITS

    def next_batch(self, queue: Queue, now: float, since: float, others: Running = ()) -> Take | Wait | Drop | None:
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
