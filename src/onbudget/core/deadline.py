"""The policy that holds a budget: refuse at the door what would end late, and repair inside the queue what went wrong.

Rules of this file. Every decision is a function of the queue, of when the lanes are free, of the time left, and of the
cost as it is believed just now. Refusing the newest at the door is the rule, because it has cost nothing yet; giving up
somebody who was admitted is the exception. An idle lane always runs a lone request: so the belief about costs is
corrected by runs however wrong it is, and "refuse everything" can't last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable

from onbudget.core.cost import Cost, Online
from onbudget.core.errors import Shed, TooLarge
from onbudget.core.late import BACKLOG, Spare
from onbudget.core.policy import Drop, Entry, Running, Take, Wait, lone, urgent
from onbudget.core.priority import NORMAL
from onbudget.core.queue import Queue
from onbudget.core.schedule import Seconds, choose, finish, first_late, given_up

MARGIN = 1.1  # on a run's predicted time; at 1.5 times the capacity 2.3-2.9 % of the admitted are late, at 1.0 7 %
RESERVE_S, RESERVE = 0.0003, 0.03  # seconds, and a part of the budget, for reading and replying
PLANNED = 4  # full batches of those who wait: how far a lane plans
LINE = 64  # tickets: who comes behind more, and more than a lane plans, is judged by the backlog alone
BATCH_S = 0.0003  # seconds a batch costs beside its run, where that is not measured


def reserve(budget: float) -> float:
    """The part of `budget` seconds that a server spends outside its lanes."""
    return RESERVE_S + RESERVE * budget


def batch_for(cost: Cost, budget: float, most: int) -> int:
    """The largest batch to hold `budget` seconds with, up to `most`: the smallest that loses next to no capacity.

    Every batch costs the loop and the lane something beside the run, which larger ones share. And a request may arrive
    just after a batch has left and ride in the next one, so two runs must fit.
    """
    whole = Cost(tuple((batch, seconds + BATCH_S) for batch, seconds in cost.points))
    return max(1, min(whole.best_batch(most), whole.largest_within(budget / 2, most)))


def fits_inline(cost: Cost, max_batch: int, budget: float) -> bool:
    """Whether runs are so short that a lone lane may work on the event loop's thread: a quarter of `budget` seconds."""
    return cost.seconds(max_batch) <= budget / 4


class Deadline:
    """Greedy batches, up to `max_batch`, of requests that can be in time.

    `budget` is seconds from a request's last body byte to its answer, for all who bring no deadline of their own;
    `reserve` is the part of it that is spent outside the lanes (reading, replying), in seconds. With `demote` a
    request that can't be in time is answered late from the background while few of them are doomed.
    """

    name = "deadline"

    def __init__(self, max_batch: int, budget: float, cost: Online, reserve: float = 0.0, demote: bool = False) -> None:
        self.max_batch = max_batch
        self.budget = budget
        self.cost = cost
        self.reserve = reserve
        self._longest = MARGIN * cost.prior.seconds(max_batch)  # seconds of any run by the prior, margin included
        self.spare = Spare(budget) if demote else None
        if self.spare is not None:
            self._make_room(self.spare, 1, cost.prior.seconds)

    def _seconds(self, now: float) -> Callable[[int], float]:
        scale, prior = MARGIN * self.cost.scale(now), self.cost.prior.seconds
        return lambda count: scale * prior(count)

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
        """Let `items` in, in time or late, or raise Shed (late) or TooLarge (never fits).

        It is judged behind those of its class and of more urgent ones. A caller's own deadline is too, as if it could
        not overtake: so one that gets in leaves time for the full batches of its class before it.
        """
        spare = self.spare if within is None else None
        if lone(queue.waiting, running, items):
            return _let_in(Entry.AT_ONCE, None if look else spare)
        budget = self.budget if within is None else within
        left = budget - self.reserve - age
        # Nearly always there is time for a full run that has only just begun, and full ones of all who wait: no need to
        # know more.
        runs = 2 + (queue.waiting + items - 1) // self.max_batch
        if runs * self.cost.most * self._longest <= left and not queue.own:
            return _let_in(Entry.WAITS, None if look else spare)
        seconds = self._seconds(now)
        free = _free(running, seconds)
        end = finish(free, queue.ahead(priority), items, self.max_batch, seconds)
        mixed = queue.own > 0 and queue.ahead(priority) <= max(LINE, PLANNED * self.max_batch)
        crowds = end <= left and mixed and self._crowds(queue, free, [(priority, left)] * items, now, seconds)
        if end <= left and not crowds:
            return _let_in(Entry.WAITS, None if look else spare)
        most = self._most(items, len(free), budget, seconds)
        if most < items:
            raise TooLarge(
                f"{items} items take longer than the {_named(within)} of {budget * 1e3:g} ms even on an idle server; "
                f"send at most {most} a request"
            )
        if spare is not None:
            self._make_room(spare, len(free), seconds)
            late = spare.takes(items, queue.behind)
            if not (late and look):
                spare.count(late)
            if late:
                return Entry.LATE
        if crowds:
            raise Shed(
                "its answer would make another caller's late, who has less time and came before",
                reason="late",
                retry_after_s=seconds(items),
            )
        raise Shed(
            f"the answer would come {(end - left) * 1e3:.1f} ms after the {_named(within)} of {budget * 1e3:g} ms",
            reason="late",
            retry_after_s=end - left,
        )

    def _crowds(
        self, queue: Queue, free: list[float], new: list[tuple[int, float]], now: float, seconds: Seconds
    ) -> bool:
        """Whether somebody is late with the `new` items, each a class and seconds left, who is not without them.

        Where some have less time than others, a batch may have to leave without those who were counted into it. That
        is worked out only where full batches don't serve all, since it costs much more to know.
        """
        spent = self.reserve + now
        before = [(group.priority, group.deadline - spent) for group in queue.groups(new[0][0])]

        def plan(line: list[tuple[int, float]]) -> tuple[list[float], list[float], int, Seconds, list[int]]:
            line = sorted(line)
            return [left for _, left in line], free, self.max_batch, seconds, [rank for rank, _ in line]

        after = before + new
        return first_late(*plan(after)) is not None and given_up(*plan(after)) > given_up(*plan(before))

    def _most(self, items: int, lanes: int, budget: float, seconds: Callable[[int], float]) -> int:
        """The most items, up to `items` and at least one, that an idle server answers within `budget`."""
        room, idle = budget - self.reserve, [0.0] * lanes
        while items > 1 and finish(idle, 0, items, self.max_batch, seconds) > room:
            items -= 1
        return items

    def next_batch(self, queue: Queue, now: float, since: float, others: Running = ()) -> Take | Wait | Drop | None:
        """The largest batch that whoever is due first allows; Drop first, where items can't be in time any more."""
        found = urgent(queue)
        if found is None:
            return self._late(queue, now) if queue.behind else None
        key, live, _ = found
        left = -self.reserve - now
        if queue.waiting == 1:
            if not queue.behind:
                return Take(key, 1, "idle")
            due = queue.peek(key, 1)[0].group.deadline + left
            return Take(key, 1, "idle", ride=self._ride(queue, key, 1, due, now))
        seconds = self._seconds(now)
        waiting = queue.peek(key, PLANNED * self.max_batch)
        groups, free = [ticket.group for ticket in waiting], _free(others, seconds)
        dues = [group.deadline + left for group in groups]
        lost, run = choose(dues, free, self.max_batch, seconds, [group.priority for group in groups])
        if lost:
            if self.spare is not None:
                self._make_room(self.spare, 1 + len(free), seconds)
            return Drop([groups[i] for i in lost])
        count = len(run)
        why = "full" if count == self.max_batch else "deadline" if count < live else "idle"
        ride = self._ride(queue, key, count, min(dues[:count]), now) if queue.behind and count == queue.waiting else 0
        return Take(key, count, why, ride=ride)

    def _late(self, queue: Queue, now: float) -> Take | Drop | None:
        """From the background, when nobody else waits."""
        if lost := queue.expired(now):
            return Drop(lost)
        found = urgent(queue, late=True)
        if found is None:
            return None
        return Take(found[0], max(1, self._ride(queue, found[0], 0, math.inf, now)), "late", late=True)

    def _ride(self, queue: Queue, key: Hashable, count: int, due: float, now: float) -> int:
        """How many late ones may run with `count` others, of which the first is due in `due` seconds.

        A run with late ones in it leaves time for whoever arrives while it is on.
        """
        seconds = self._seconds(now)
        room = min(due, self.budget - self.reserve - seconds(1))
        most = min(self.max_batch, count + queue.live(key, late=True))
        while most > count and seconds(most) > room:
            most -= 1
        return most - count

    def _make_room(self, spare: Spare, lanes: int, seconds: Callable[[int], float]) -> None:
        spare.room = int(BACKLOG * self.budget * lanes * self.max_batch / seconds(self.max_batch))


def _let_in(entry: Entry, spare: Spare | None) -> Entry:
    if spare is not None:
        spare.asked += 1
    return entry


def _free(running: Running, seconds: Callable[[int], float]) -> list[float]:
    """In how many seconds each lane is free."""
    return [max(0.0, seconds(rows) - so_far) if rows else 0.0 for rows, so_far in running]


def _named(within: float | None) -> str:
    return "budget" if within is None else "caller's deadline"
