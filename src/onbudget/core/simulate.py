"""A server in virtual time: the policy and the queue are the real ones, the machine around them is pretended.

Rules of this file. Nothing reads a clock; time jumps from event to event. A simulation of the decisions alone would
make them in the wrong world, so the event loop is part of it: it reads one request after the other, each costs it
time, and whoever arrives meanwhile lies unread and grows older where no policy sees it. Where the lane is inline, a run
blocks the loop too. The calls of a policy are in `_Asked` and nowhere else.
"""

from __future__ import annotations

import heapq
import itertools
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from onbudget.core.deadline import Deadline
from onbudget.core.errors import RequestError, RunFailed, Shed
from onbudget.core.outcome import Outcome
from onbudget.core.plant import Death, Plant
from onbudget.core.policy import Entry, Policy, Running, Take, Wait, give_up, next_run
from onbudget.core.priority import NORMAL
from onbudget.core.queue import Group, Queue, Ticket


def simulate(
    policy: Policy,
    plant: Plant,
    arrivals: Sequence[float],
    budget_s: float,
    *,
    items: int = 1,
    warmup_s: float = 0.0,
    seed: int = 0,
    priorities: Sequence[int] = (),
) -> Outcome:
    """Serve requests of `items` items that arrive at these times (seconds, ascending), until each has ended.

    Those before `warmup_s` are served and not judged. `seed` is of the noise. `priorities` are the requests' classes,
    one for each where they don't all have the usual one. A policy that learns keeps what it has learnt: hand in a fresh
    one. ValueError where the times aren't ascending, or the classes not as many.
    """
    times = [float(at) for at in arrivals]
    if any(a > b for a, b in itertools.pairwise(times)):
        raise ValueError("arrivals are told in ascending order")
    if len(priorities) not in (0, len(times)):
        raise ValueError(f"{len(priorities)} classes are told of {len(times)} arrivals")
    server = (_Inline if plant.inline else _Threads)(policy, plant, times, items, seed, priorities)
    server.run()
    first = bisect_right(times, warmup_s) if warmup_s > 0 else 0
    why = Counter(word for word in server.why[first:] if word)
    failed = why.pop(RunFailed.code, 0)
    return Outcome(
        budget_s=budget_s,
        seconds=max(times[-1] - warmup_s, 0.0) if times else 0.0,
        arrived=np.array(times[first:]),
        latency=np.array(server.latency[first:]),
        refused=dict(why),
        failed=failed,
        batches=dict(sorted(server.batches.items())),
    )


class _Asked:
    """A policy, as the server asks it: the only place that knows its interface."""

    def __init__(self, policy: Policy, queue: Queue) -> None:
        self._policy = policy
        self._queue = queue
        self._online = policy.cost if isinstance(policy, Deadline) else None
        self._budget = policy.budget if isinstance(policy, Deadline) else math.inf

    def admit(self, group: Group, running: Running, now: float) -> RequestError | None:
        """Prepare a group for the queue; else why it is refused."""
        group.deadline = group.expires = group.arrived + self._budget
        try:
            told = self._policy.admit(
                self._queue, running, len(group.tickets), now - group.arrived, now, priority=group.priority
            )
        except RequestError as error:
            return error
        if told is Entry.AT_ONCE:
            group.expires = math.inf
        elif told is Entry.LATE and self._policy.spare is not None:
            group.demote("door", self._policy.spare.longest)
        return None

    def next(self, now: float, since: float, others: Running = ()) -> Take | Wait | None:
        """What to run; whoever the policy gives up has failed by then."""
        told, lost = next_run(self._policy, self._queue, now, since, others)
        self._expired(lost)
        return told

    def expire(self, now: float) -> None:
        """What the server's timer does: whoever waits past its deadline leaves."""
        self._expired(give_up(self._queue, self._queue.expired(now), self._policy.spare))

    def _expired(self, lost: list[Group]) -> None:
        for group in lost:
            group.fail(Shed("it could not be in time any more", reason="expired", retry_after_s=1.0))

    def answered(self, group: Group, when: float) -> None:
        """It was answered, perhaps late."""
        if when > group.deadline and self._policy.spare is not None and not group.late:
            self._policy.spare.surprise()

    def ran(self, batch: int, seconds: float, now: float) -> None:
        if self._online is not None and seconds > 0:
            self._online.observe(batch, 0.0, seconds, now)


class _Server:
    """What both kinds of lanes share: reading requests, ending them, and time that stands still in a stall."""

    def __init__(
        self, policy: Policy, plant: Plant, times: list[float], items: int, seed: int, priorities: Sequence[int]
    ) -> None:
        self.queue = Queue(plant.max_items, 2**62)
        self.asked = _Asked(policy, self.queue)
        self.plant, self.times, self.items, self.priorities = plant, times, items, priorities
        self.timed = len(set(priorities)) > 1  # of one class whoever is due first goes first, and needs no timer
        self.latency = [math.inf] * len(times)
        self.why: list[str | None] = [None] * len(times)  # of those without an answer: what they were told
        self.batches: Counter[int] = Counter()
        self.now = 0.0
        self.read = 0  # how many requests have been read
        self.loop_free = 0.0
        self.after = plant.after
        self._factors = plant.noise.factors(seed)

    def run_time(self, batch: int) -> float:
        self.batches[batch] += 1
        return self.plant.cost.seconds(batch) * next(self._factors)

    def accept(self, running: Running, at: float) -> Group | None:
        """The loop reads the next request `at`; None where it is refused. `loop_free` is when the loop is done."""
        index, self.read = self.read, self.read + 1
        priority = self.priorities[index] if self.priorities else NORMAL
        group = Group(self.times[index], 0, self._end, index, priority=priority)
        for _ in range(self.items):
            group.add(None)
        if self.timed:
            self.asked.expire(at)
        refused = self.asked.admit(group, running, at)
        self.loop_free = self.after(at, self.plant.refuse_s if refused else self.plant.accept_s)
        if refused:
            self.why[index] = refused.reason or refused.code
            return None
        return group

    def offer(self, group: Group) -> None:
        try:
            self.queue.offer(group)
        except RequestError as error:
            self.why[group.note] = error.reason or error.code

    def _end(self, group: Group) -> None:
        if group.error is None:
            # the loop writes the answer when it has a moment
            self.loop_free = self.after(max(self.now, self.loop_free), self.plant.reply_s)
            self.latency[group.note] = self.loop_free - group.arrived
            self.asked.answered(group, self.loop_free)
        else:
            self.why[group.note] = group.error.reason or group.error.code
        if group.left:
            self.queue.withdraw(group)
        self.queue.close(group)


class _Inline(_Server):
    """The loop reads what is there, runs one batch, and reads again."""

    def run(self) -> None:
        times, count = self.times, len(self.times)
        again, since, last = math.inf, -1.0, -1.0
        while self.read < count or self.queue.pending:
            due = times[self.read] if self.read < count else math.inf
            if self.queue.pending:
                due = min(due, again)
            self.now = now = self.after(max(due, self.loop_free), 0.0)
            self.loop_free = now
            while self.read < count and times[self.read] <= now:
                group = self.accept([(0, 0.0)], self.loop_free)
                if group is not None:
                    self.offer(group)
            self.now = now = self.loop_free
            again = -math.inf
            if not self.queue.pending:
                continue
            since = now if since < 0 else since
            told = self.asked.next(now, since)
            if isinstance(told, Wait):
                again = max(told.until, math.nextafter(now, math.inf))  # rounding must not stop time
            if not isinstance(told, Take):
                continue
            tickets, since = told.tickets(self.queue), -1.0
            self.now = self.loop_free = self.after(now, self.run_time(len(tickets)))
            # somebody waited through the loop's work since the last run, so it is part of its cost
            self.asked.ran(len(tickets), self.now - (last if last >= 0 else now), self.now)
            ran = self.now
            for ticket in tickets:
                ticket.group.settle(ticket.index, True)
            last = ran if self.queue.pending else -1.0


class _Lane:
    """A lane's thread: what it runs since when, and until when it is dead."""

    __slots__ = ("back", "since", "taken", "tickets")

    def __init__(self) -> None:
        self.tickets: list[Ticket] = []
        self.taken = 0.0
        self.since = -1.0  # when it first saw somebody wait
        self.back = -math.inf


class _Threads(_Server):
    """Lanes with cores of their own, which pull from the queue while the loop reads."""

    def run(self) -> None:
        self._lanes = [_Lane() for _ in range(self.plant.lanes)]
        self._again = -math.inf  # when somebody who waits is looked at again
        self._order = itertools.count()  # of events at the same time
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        for death in self.plant.deaths:
            self._at(death.at, partial(self._dies, death))
        events, count = self._events, len(self.times)
        while self.read < count or events:
            due = math.inf
            if self.read < count:
                due = self.after(max(self.times[self.read], self.loop_free), 0.0)
            if events and events[0][0] <= due:
                self.now, _, happens = heapq.heappop(events)
                happens()
            else:
                self.now = due
                self._reads()

    def _at(self, when: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), happens))

    def _reads(self) -> None:
        now = self.now
        group = self.accept(self._running(), now)
        if group is None:
            return
        if self.loop_free > now:
            self._at(self.loop_free, partial(self._arrives, group))
        else:
            self._arrives(group)

    def _running(self, but: _Lane | None = None) -> Running:
        """Of each lane, without this one."""
        now = self.now
        return [(len(i.tickets), now - i.taken if i.tickets else 0.0) for i in self._lanes if i is not but]

    def _arrives(self, group: Group) -> None:
        self.offer(group)
        self._pull()

    def _pull(self) -> None:
        """Every idle lane asks for its next batch."""
        now = self.now
        for lane in self._lanes:
            if lane.tickets or lane.back > now:
                continue
            if not self.queue.pending:
                lane.since = -1.0
                continue
            lane.since = now if lane.since < 0 else lane.since
            told = self.asked.next(now, lane.since, self._running(but=lane))
            if isinstance(told, Take):
                lane.tickets, lane.since, lane.taken = told.tickets(self.queue), -1.0, now
                end = self.after(now, self.run_time(len(lane.tickets)))
                self._at(end, partial(self._ends, lane, lane.tickets))
            elif isinstance(told, Wait):
                until = self.after(max(told.until, math.nextafter(now, math.inf)), 0.0)
                if until < self._again or self._again <= now:
                    self._again = until
                    self._at(until, self._pull)

    def _ends(self, lane: _Lane, tickets: list[Ticket]) -> None:
        """A run is done; one whose lane has died meanwhile never is."""
        if lane.tickets is not tickets or lane.back > self.now:
            return
        self.asked.ran(len(tickets), self.now - lane.taken, self.now)
        lane.tickets = []
        for ticket in tickets:
            ticket.group.settle(ticket.index, True)
        self._pull()

    def _dies(self, death: Death) -> None:
        lane = self._lanes[death.lane]
        lane.back = self.after(self.now, death.seconds)
        self._at(lane.back, partial(self._is_back, lane))

    def _is_back(self, lane: _Lane) -> None:
        """The watchdog has replaced a lane: what it ran is lost."""
        if lane.back > self.now:
            return  # it has died again meanwhile
        lost, lane.tickets = lane.tickets, []
        for ticket in lost:
            ticket.group.fail(RunFailed("its lane died"))
        self._pull()
