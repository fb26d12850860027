"""Requests that wait: groups of tickets, most urgent class first and then soonest deadline, one bucket for each shape.

Beside them is the background: groups that can't be in time any more and are answered late, when nobody else waits.

Rules of this file. It holds no lock and reads no clock: whoever shares a queue between threads guards it. A group is
one request and is admitted whole; its tickets are its items. A withdrawn group (its caller left, or one of its items
failed) gives its places back at once, and its tickets are skipped when a batch is formed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import islice
from typing import Any, NoReturn

from onbudget.core.bucket import Bucket
from onbudget.core.errors import RequestError, Shed, TooLarge
from onbudget.core.priority import LAST, NORMAL


class Ticket:
    """One item of a group: what to decode, and where its answer goes. `key` is its bucket: items that stack."""

    __slots__ = ("group", "index", "key", "payload", "queued")

    def __init__(self, group: Group, index: int, payload: Any, key: Hashable) -> None:
        self.group = group
        self.index = index
        self.payload = payload
        self.key = key
        self.queued = False


class Group:
    """One request. `arrived` is the time of its last body byte; `reply` is called once, when it has ended.

    `deadline` is the time by which its answer is wanted, infinity where nobody said; `own` where its caller said so
    itself. `expires` is when to tell it so if it still waits: at its deadline, unless somebody sets it to later.
    `priority` is its class, 1 to 3, the most urgent first.
    """

    __slots__ = (
        "answers",
        "arrived",
        "deadline",
        "error",
        "expires",
        "late",
        "left",
        "nbytes",
        "note",
        "own",
        "priority",
        "reply",
        "taken",
        "tickets",
        "withdrawn",
    )

    def __init__(
        self,
        arrived: float,
        nbytes: int,
        reply: Callable[[Group], None],
        note: Any = None,
        deadline: float = math.inf,
        own: bool = False,
        priority: int = NORMAL,
    ) -> None:
        self.arrived = arrived
        self.deadline = self.expires = deadline
        self.own = own
        self.priority = priority
        self.late = ""  # where it was found that it can't be in time and may be late: door or queue
        self.nbytes = nbytes
        self.reply = reply
        self.note = note  # the server's own: how to word the answer
        self.tickets: list[Ticket] = []
        self.answers: list[Any] = []
        self.left = 0
        self.error: RequestError | None = None
        self.withdrawn = False
        self.taken = 0.0

    def add(self, payload: Any, key: Hashable = None) -> None:
        """One more item; only before the group is offered to a queue."""
        self.tickets.append(Ticket(self, len(self.tickets), payload, key))
        self.answers.append(None)
        self.left += 1

    def demote(self, where: str, longest: float) -> None:
        """It can't be in time: it may be late, but wait no longer than `longest` seconds from its arrival."""
        self.late, self.expires = where, self.arrived + longest

    def settle(self, index: int, answer: Any) -> None:
        """Item `index` has its answer; the last one replies."""
        if self.withdrawn:
            return
        self.answers[index] = answer
        self.left -= 1
        if self.left == 0:
            self.withdrawn = True  # ended: later settles and failures are of no interest
            self.reply(self)

    def fail(self, error: RequestError) -> None:
        """The group ends with an error; the first one is the one that is told."""
        if self.withdrawn:
            return
        self.withdrawn = True
        self.error = error
        self.reply(self)


class Queue:
    """Bounded by items and by bytes, both counted until a request has its answer and not only while it waits."""

    def __init__(self, max_items: int, max_bytes: int) -> None:
        self.max_items = max_items
        self.max_bytes = max_bytes
        self.waiting = 0  # tickets that can be in time
        self.behind = 0  # tickets in the background
        self.items = 0  # items in flight: waiting or running
        self.nbytes = 0  # bytes in flight
        self.own = 0  # requests in flight that brought their own deadline
        self._waits = [0] * (LAST + 1)  # of `waiting`, by class
        self._buckets: dict[Hashable, Bucket] = {}  # by shape; where there is but one, None, and it stays when empty
        self._background: dict[Hashable, Bucket] = {}

    @property
    def pending(self) -> int:
        """Tickets that wait for a lane, in time or late."""
        return self.waiting + self.behind

    def ahead(self, priority: int) -> int:
        """Tickets that go before a new one of this class: those of its own and of more urgent ones."""
        return self.waiting - sum(self._waits[priority + 1 :])

    def groups(self, priority: int) -> list[Group]:
        """The group of each ticket that goes before a new one of this class, bucket by bucket.

        For whoever holds no lock: each line is copied at one stroke, since a lane may take from it meanwhile.
        """
        lines = [line for bucket in tuple(self._buckets.values()) for line in bucket.lines[:priority]]
        return [ticket.group for line in lines for ticket in tuple(line.tickets) if ticket.queued]

    def offer(self, group: Group) -> None:
        """Admit a group whole, or raise and change nothing: Shed, or TooLarge for what would not fit an empty queue."""
        count = len(group.tickets)
        if self.items + count > self.max_items or self.nbytes + group.nbytes > self.max_bytes:
            self._refuse(group, count)
        self.items += count
        self.nbytes += group.nbytes
        self.own += group.own
        if group.late:
            self.behind += count
            self._enter(group.tickets, self._background)
        else:
            self._waits[group.priority] += count
            self.waiting += count
            self._enter(group.tickets, self._buckets)

    def _refuse(self, group: Group, count: int) -> NoReturn:
        if self.items + count > self.max_items:
            if count > self.max_items:
                raise TooLarge(f"{count} items are more than the server ever holds: {self.max_items} (--max-queue)")
            raise Shed(
                f"the server is busy: {self.items} items are in flight and the limit is {self.max_items} (--max-queue)",
                reason="queue_full",
                retry_after_s=1.0,
            )
        if group.nbytes > self.max_bytes:
            raise TooLarge(
                f"{group.nbytes} bytes are more than the server ever holds: {self.max_bytes} (--max-queue-bytes)"
            )
        raise Shed(
            f"the server is busy: {self.nbytes} bytes are in flight and the limit is {self.max_bytes} "
            "(--max-queue-bytes)",
            reason="queue_bytes_full",
            retry_after_s=1.0,
        )

    @staticmethod
    def _enter(tickets: Sequence[Ticket], buckets: dict[Hashable, Bucket]) -> None:
        for ticket in tickets:
            bucket = buckets.get(ticket.key)
            if bucket is None:
                bucket = buckets[ticket.key] = Bucket()
            bucket.line(ticket.group).add(ticket)

    def demote(self, group: Group, longest: float) -> None:
        """Into the background with what still waits of a group, for at most `longest` seconds from its arrival."""
        tickets = [ticket for ticket in group.tickets if ticket.queued]
        self.withdraw(group)
        for key in {ticket.key for ticket in tickets} & self._buckets.keys():
            self._buckets[key].line(group).sweep()  # its tickets will wait again, elsewhere
        group.demote("queue", longest)
        self.behind += len(tickets)
        self._enter(tickets, self._background)

    def heads(self, late: bool = False) -> Iterator[tuple[Ticket, int]]:
        """The first live ticket of each bucket, those of the background if `late`, and how many it holds."""
        for bucket in (self._background if late else self._buckets).values():
            if live := bucket.live:
                yield bucket.head(), live

    def live(self, key: Hashable, late: bool = False) -> int:
        """How many live tickets a bucket holds; of the background's if `late`."""
        bucket = (self._background if late else self._buckets).get(key)
        return bucket.live if bucket is not None else 0

    def peek(self, key: Hashable, count: int) -> list[Ticket]:
        """Up to `count` live tickets of one bucket, in order, left where they are."""
        return list(islice(self._buckets[key], count))

    def take(self, key: Hashable, count: int, late: bool = False) -> list[Ticket]:
        """Up to `count` live tickets of one bucket, in order; of the background's if `late`."""
        buckets = self._background if late else self._buckets
        bucket = buckets[key]
        taken = bucket.take(count)
        if late:
            self.behind -= len(taken)
        else:
            self.waiting -= len(taken)
            for ticket in taken:
                self._waits[ticket.group.priority] -= 1
        if key is not None and not bucket.live:
            del buckets[key]
        return taken

    def withdraw(self, group: Group) -> None:
        """Free the group's waiting places; its tickets will be skipped. Its items stay in flight until `close`."""
        buckets, left = self._background if group.late else self._buckets, 0
        for ticket in group.tickets:
            if ticket.queued:
                bucket = buckets[ticket.key]
                bucket.line(group).leave(ticket)
                left += 1
                if ticket.key is not None and not bucket.live:
                    del buckets[ticket.key]
        if group.late:
            self.behind -= left
        else:
            self.waiting -= left
            self._waits[group.priority] -= left

    def expired(self, now: float) -> list[Group]:
        """Who expires by `now` while an item of theirs waits, soonest deadline first in each class of a bucket."""
        lost: dict[Group, None] = {}
        for bucket in self._all():
            for line in bucket.lines:
                for ticket in line.tickets:
                    if ticket.queued and ticket.group.expires <= now:
                        lost[ticket.group] = None
                    elif ticket.queued and ticket.group.expires < math.inf:
                        break
        return list(lost)

    def expires(self) -> float:
        """When somebody who waits expires, if nobody takes it before; infinity: never."""
        when = math.inf
        for bucket in self._all():
            for line in bucket.lines:
                for ticket in line.tickets:
                    if ticket.queued and ticket.group.expires < math.inf:
                        when = min(when, ticket.group.expires)
                        break
        return when

    def _all(self) -> list[Bucket]:
        return [*self._buckets.values(), *self._background.values()]

    def close(self, group: Group) -> None:
        """The group has ended: what it counted for is free again. Once a group."""
        self.items -= len(group.tickets)
        self.nbytes -= group.nbytes
        self.own -= group.own

    def drain(self) -> Sequence[Group]:
        """Take everything that still waits, for the server that stops: the groups, oldest first, each once."""
        groups: dict[Group, None] = {}
        for bucket in self._all():
            for ticket in bucket:
                groups[ticket.group] = None
        for group in groups:
            self.withdraw(group)
        return sorted(groups, key=lambda group: group.arrived)
