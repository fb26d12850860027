"""One lane on the event loop's own thread: for one core and short runs, where a second thread only costs wake-ups.

The loop reads what came, then runs one batch, then reads again: a single server, whose queue is exact. Nothing can be
read while a run is on, so runs must be a small part of the budget; `models` decides that. A batch with a photo in it,
which takes long to decode, or of arrays that a caller batched, is worked on by a thread meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from onbudget.core.policy import Policy, Take, Wait, give_up, next_run
from onbudget.core.queue import Group, Queue
from onbudget.serve.job import Job
from onbudget.serve.lanes import Batch, Lane, clock, formed, run_batch
from onbudget.serve.polls import Polls

GUARD = 0.25  # seconds between looks at a run that may hang


class Inline:
    """What `Lanes` is, with the loop's thread for its only lane. Everything but the guard runs on the loop."""

    restarts = 0  # a run that does not stop can't be replaced here: its thread is the server's
    last_restart = ""

    def __init__(self, job: Job, policy: Policy, queue: Queue, deliver: Callable[[Batch], None], polls: Polls) -> None:
        self._job = job
        self._policy = policy
        self._queue = queue
        self._deliver = deliver
        self._polls = polls
        self._bench = job.bench()
        self._lane = Lane(0)
        self._turn_due: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._away: asyncio.Future[None] | None = None  # a batch that a thread works on
        self._since = -1.0
        self._last, self._behind = 0.0, False
        self._ended = threading.Event()
        self._stuck_after = float("inf")

    def start(self) -> None:
        """Start the guard."""
        threading.Thread(target=self._guard, name="onbudget-guard", daemon=True).start()

    def submit(self, group: Group) -> None:
        """Queue a group; it runs once the loop has read what else is there. Shed when the queue is full."""
        self._queue.offer(group)
        self._schedule()

    def withdraw(self, group: Group) -> None:
        """Nobody waits for this group any more: its tickets that still wait are skipped."""
        self._queue.withdraw(group)

    def expire(self, now: float) -> tuple[list[Group], float]:
        """Take out whoever waits too long → those groups, and when the next one will."""
        lost = give_up(self._queue, self._queue.expired(now), self._policy.spare)
        return lost, self._queue.expires()

    def stop(self, timeout: float = 5.0) -> list[Group]:
        """End it → the groups that still waited, for the caller to refuse."""
        self._ended.set()
        return list(self._queue.drain())

    def running(self, now: float) -> list[tuple[int, float]]:
        """Whoever asks this on the loop finds the lane idle, or busy with a photo."""
        batch = self._lane.batch
        return [(len(batch.tickets), now - batch.taken) if batch is not None else (0, 0.0)]

    @property
    def alive(self) -> bool:
        """Whether a run is still on, when the loop asks."""
        return self._away is not None

    @property
    def busy(self) -> int:
        """Lanes that run a batch, for a scrape from another thread."""
        return int(self._lane.batch is not None)

    def __len__(self) -> int:
        return 1

    def watch(self, now: float, stuck_after: float) -> None:
        """Tell the guard how long a run may take; the loop itself can't watch what blocks it."""
        self._stuck_after = stuck_after

    def _turn(self) -> None:
        """One batch, between two reads of the sockets."""
        self._turn_due = None
        now = clock()
        if self._since < 0:
            self._since = now
        decision, lost = next_run(self._policy, self._queue, now, self._since)
        loop = asyncio.get_running_loop()
        if isinstance(decision, Take) or lost:
            batch = formed(self._queue, decision, lost, now)
            if self._behind:  # somebody waited through the reads since the last run, so they are part of the cost
                batch.began = self._last
            self._since = -1.0
            if batch.odd:
                self._away = loop.run_in_executor(None, self._run, batch)
                self._away.add_done_callback(lambda done: self._back(batch))
                return
            if batch.tickets:
                self._run(batch)
            self._done(batch)
        if isinstance(decision, Wait):
            self._timer = loop.call_later(max(0.0, decision.until - clock()), self._schedule)
        else:
            self._schedule()
        self._polls.end()

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()  # who arrives may fill the batch that it waits for
            self._timer = None
        if self._queue.pending and self._turn_due is None and self._away is None and not self._ended.is_set():
            self._turn_due = asyncio.get_running_loop().call_soon(self._turn)

    def _done(self, batch: Batch) -> None:
        self._deliver(batch)
        self._last, self._behind = batch.ran, self._queue.pending > 0

    def _back(self, batch: Batch) -> None:
        """A batch that a thread worked on is done."""
        self._away = None
        self._done(batch)
        self._schedule()

    def _run(self, batch: Batch) -> None:
        lane = self._lane
        with lane.lock:
            lane.batch = batch
            if lane.stopping:  # the last run was told to stop; the switch is not reusable
                lane.renew()
        run_batch(self._job, self._bench, lane, batch)
        with lane.lock:
            lane.batch = None

    def _guard(self) -> None:
        while not self._ended.wait(GUARD):
            with self._lane.lock:
                batch = self._lane.batch
                if batch is not None and clock() - batch.taken > self._stuck_after and not self._lane.stopping:
                    self._lane.stopping = True
                    self._lane.stop.set()
