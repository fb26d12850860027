"""Who may be answered late: the part of a p95 that refusing everybody in doubt leaves unspent.

Rules of this file. A p95 lets 5 % be late, and a caller would rather have a late answer than none. So requests that are
*doomed* (they can't be in time, or proved not to be) wait in the background and are answered late, up to `LATE` of all.
Beyond that they are refused; and all of them where more than `DOOMED` of all are: an overloaded server has no time to
spare. Shares are averages over about the last `WINDOW` requests, by events and no clock. A caller that brings its own
deadline has said that later is worthless: it is never late on purpose, and not counted.

Each number has one writer, so that no lock is paid for: the thread of the door and the replies writes the averages,
whoever holds the queue's lock counts what happens in it.
"""

from __future__ import annotations

from onbudget.core.queue import Group

LATE = 0.045  # of all requests, answers that are late by surprise included
DOOMED = 0.08  # of all requests
WINDOW = 2000  # requests
KEPT = 1 - 1 / WINDOW  # of an average, with each request
BACKLOG = 4.0  # budgets: what the background may hold, in predicted time of a lane
LONGEST = 8.0  # budgets: who waits there longer is told so


class Spare:
    """How many requests were doomed and how many late, and whether one more may be. `budget` is in seconds.

    `room` is how many items the background may hold, as last predicted; `longest` is how long anybody may wait there,
    in seconds from its arrival.
    """

    __slots__ = (
        "_asked",
        "_doomed",
        "_late",
        "_lost",
        "_lost_seen",
        "_moved",
        "_moved_seen",
        "asked",
        "longest",
        "room",
    )

    def __init__(self, budget: float) -> None:
        self.longest = LONGEST * budget
        self.room = 0
        self.asked = self._asked = 0  # requests at the door; of those, how many the averages hold already
        self._doomed = self._late = 0.0
        self._lost = self._moved = 0  # doomed in the queue; of those, moved to the background
        self._lost_seen = self._moved_seen = 0  # of those, how many the averages hold already

    @property
    def doomed(self) -> float:
        """Of the requests lately, the share that was doomed."""
        return self._doomed * KEPT ** (self.asked - self._asked) + (self._lost - self._lost_seen) / WINDOW

    @property
    def late(self) -> float:
        """Of the requests lately, the share that was sent to the background, or late by surprise."""
        return self._late * KEPT ** (self.asked - self._asked) + (self._moved - self._moved_seen) / WINDOW

    def count(self, late: bool) -> None:
        """A doomed request is at the door, sent to the background or refused. One in time only adds to `asked`."""
        self.asked += 1
        self._add(late)

    def surprise(self) -> None:
        """One that was let in to be in time has been answered late."""
        self._add(True)

    def _add(self, late: bool) -> None:
        lost, moved = self._lost, self._moved
        kept = KEPT ** (self.asked - self._asked)
        self._doomed = self._doomed * kept + (1 + lost - self._lost_seen) / WINDOW
        self._late = self._late * kept + (late + moved - self._moved_seen) / WINDOW
        self._asked, self._lost_seen, self._moved_seen = self.asked, lost, moved

    def takes(self, items: int, behind: int) -> bool:
        """Whether a request of `items` may be late, with `behind` items in the background already."""
        return self.late < LATE and self.doomed < DOOMED and behind + items <= self.room

    def moves(self, group: Group, behind: int) -> bool:
        """Whether a group that waited and is doomed may be late; counts it, so it is asked once."""
        if group.own or group.late:
            return False
        self._lost += 1
        moves = self.takes(group.left, behind)
        self._moved += moves
        return moves
