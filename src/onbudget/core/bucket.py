"""Tickets that may share a batch: one line for each class, so that each is in the order of its deadlines.

Rules of this file. A withdrawn ticket may lie in its line until whoever is before it has left; `live` leaves it out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from onbudget.core.priority import FIRST, LAST

if TYPE_CHECKING:
    from onbudget.core.queue import Group, Ticket


class Line:
    """Tickets of one class, soonest deadline first and then oldest."""

    __slots__ = ("live", "tickets")

    def __init__(self) -> None:
        self.tickets: deque[Ticket] = deque()
        self.live = 0

    def add(self, ticket: Ticket) -> None:
        """To its place: nearly everybody has the same budget and so comes last."""
        tickets, deadline = self.tickets, ticket.group.deadline
        if not tickets or tickets[-1].group.deadline <= deadline:
            tickets.append(ticket)
        else:
            tickets.insert(bisect_right(tickets, deadline, key=_deadline), ticket)
        self.live += 1
        ticket.queued = True

    def leave(self, ticket: Ticket) -> None:
        """It is withdrawn. In a line that nobody takes from, the soonest deadlines leave first: so it stays short."""
        ticket.queued = False
        self.live -= 1
        self._trim()

    def take(self, count: int) -> list[Ticket]:
        """Up to `count` live tickets, in order."""
        tickets = self.tickets
        taken: list[Ticket] = []
        while tickets and len(taken) < count:
            ticket = tickets.popleft()
            if ticket.queued:
                ticket.queued = False
                taken.append(ticket)
        self.live -= len(taken)
        self._trim()
        return taken

    def sweep(self) -> None:
        """Forget the withdrawn ones."""
        self.tickets = deque(ticket for ticket in self.tickets if ticket.queued)

    def _trim(self) -> None:
        """The first ticket is a live one, if there is one."""
        tickets = self.tickets
        while tickets and not tickets[0].queued:
            tickets.popleft()


def _deadline(ticket: Ticket) -> float:
    return ticket.group.deadline


class Bucket:
    """A line for each class, the most urgent first."""

    __slots__ = ("lines",)

    def __init__(self) -> None:
        self.lines = tuple(Line() for _ in range(FIRST, LAST + 1))

    def line(self, group: Group) -> Line:
        """Where the tickets of this group wait."""
        return self.lines[group.priority - FIRST]

    @property
    def live(self) -> int:
        """How many wait."""
        first, second, third = self.lines
        return first.live + second.live + third.live

    def head(self) -> Ticket:
        """The first that waits, of at least one."""
        return next(line.tickets[0] for line in self.lines if line.live)

    def take(self, count: int) -> list[Ticket]:
        """Up to `count` that wait, in order."""
        taken: list[Ticket] = []
        for line in self.lines:
            if line.live and len(taken) < count:
                taken += line.take(count - len(taken))
        return taken

    def __iter__(self) -> Iterator[Ticket]:
        """Those that wait, in order."""
        return (ticket for line in self.lines for ticket in line.tickets if ticket.queued)
