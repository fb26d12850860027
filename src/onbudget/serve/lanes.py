"""The only threads: each lane pulls a batch from the shared queue when it is free, runs it, and posts it back whole.

Rules of this file. The queue's buckets are touched under one lock. A batch is posted exactly once: by its lane, or by
the watchdog when the lane died or hung; whoever closes it first wins. Groups are settled on the event loop only, in
the callback that a batch is posted to.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from onbudget.core.errors import RequestError, RunFailed
from onbudget.core.policy import Policy, Running, Take, Wait, give_up, next_run
from onbudget.core.queue import Group, Queue, Ticket
from onbudget.engine.session import Stop
from onbudget.serve.items import PHOTO, WHOLE
from onbudget.serve.job import Bench, Job, Settled

log = logging.getLogger("onbudget")
clock = time.monotonic
_ODD = (PHOTO, WHOLE)
GRACE = 2.0  # seconds between telling a stuck run to stop and giving its thread up


class Batch:
    """Tickets that a lane took together. Times are monotonic seconds; `settled` pairs each ticket with its answer."""

    __slots__ = (
        "began",
        "closed",
        "cpu",
        "decoded",
        "error",
        "lost",
        "odd",
        "ran",
        "rows",
        "settled",
        "taken",
        "tickets",
        "why",
    )

    def __init__(self, tickets: list[Ticket], why: str, taken: float) -> None:
        self.tickets = tickets
        self.why = why
        self.taken = self.decoded = self.ran = taken
        self.began = taken  # where its cost is counted from: an inline lane's reads before it belong to it
        self.rows = 0  # what went through the model
        self.cpu = 0.0  # seconds of the lane's own thread, decoding included
        self.lost: list[Group] = []  # given up by the policy when this batch was formed
        self.settled: Settled = []
        self.error: RequestError | None = None  # of the run: every ticket's
        self.closed = False
        # Decoding takes longer than the run, or rows were not counted: it says nothing of what other batches cost.
        self.odd = any(ticket.payload[0] in _ODD for ticket in tickets)


class Lane:
    """One thread and what the watchdog must know of it."""

    __slots__ = ("abandoned", "batch", "lock", "number", "stop", "stopping", "thread")

    def __init__(self, number: int) -> None:
        self.number = number
        self.batch: Batch | None = None
        self.stop = Stop()
        self.stopping = False  # told to end its run
        self.abandoned = False
        self.lock = threading.Lock()  # guards batch, stop and closing against the watchdog
        self.thread: threading.Thread | None = None

    def renew(self) -> None:
        """A fresh stop switch: one that was set stays set."""
        self.stop, self.stopping = Stop(), False


class Lanes:
    """`count` lanes over one queue; `post` is called from their threads with each finished batch."""

    def __init__(self, job: Job, policy: Policy, queue: Queue, count: int, post: Callable[[Batch], Any]) -> None:
        self._job = job
        self._policy = policy
        self._queue = queue
        self._post = post
        self._wake = threading.Condition()
        self._idle = 0
        self._ending = False
        self.restarts = 0
        self.last_restart = ""
        self._lanes = [Lane(number) for number in range(count)]
        self._abandoned: list[Lane] = []

    def start(self) -> None:
        """Start the threads."""
        for lane in self._lanes:
            self._launch(lane)

    def submit(self, group: Group) -> None:
        """Queue a group for the lanes; Shed when the queue is full. Never blocks for longer than a take."""
        with self._wake:
            self._queue.offer(group)
            if self._idle:
                self._wake.notify()

    def withdraw(self, group: Group) -> None:
        """Nobody waits for this group any more: its tickets that still wait are skipped."""
        with self._wake:
            self._queue.withdraw(group)

    def expire(self, now: float) -> tuple[list[Group], float]:
        """Take out whoever waits too long → those groups, and when the next one will."""
        with self._wake:
            lost = give_up(self._queue, self._queue.expired(now), self._policy.spare)
            return lost, self._queue.expires()

    def stop(self, timeout: float = 5.0) -> list[Group]:
        """End the lanes → the groups that still waited, for the caller to refuse. Runs that are on are told to stop."""
        with self._wake:
            self._ending = True
            left = list(self._queue.drain())
            self._wake.notify_all()
        for lane in self._lanes:
            with lane.lock:
                if lane.batch is not None:
                    lane.stopping = True
                    lane.stop.set()
        end = clock() + timeout
        for lane in self._lanes:
            if lane.thread is not None:
                lane.thread.join(max(0.0, end - clock()))
        return left

    def running(self, now: float) -> list[tuple[int, float]]:
        """Of each lane: how many tickets it works on, and for how many seconds; (0, 0) for an idle one."""
        return self._running(now, None)

    def _running(self, now: float, but: Lane | None) -> list[tuple[int, float]]:
        batches = [lane.batch for lane in self._lanes if lane is not but]
        return [(len(batch.tickets), now - batch.taken) if batch is not None else (0, 0.0) for batch in batches]

    @property
    def alive(self) -> bool:
        """Whether a thread still runs; after `stop`: whether a run did not listen."""
        return any(lane.thread is not None and lane.thread.is_alive() for lane in self._lanes + self._abandoned)

    @property
    def busy(self) -> int:
        """Lanes that are running a batch."""
        return sum(lane.batch is not None for lane in self._lanes)

    def __len__(self) -> int:
        return len(self._lanes)

    # ---- a lane's thread ----

    def _launch(self, lane: Lane) -> None:
        name = f"onbudget-lane-{lane.number}"
        lane.thread = threading.Thread(target=self._work, args=(lane,), name=name, daemon=True)
        lane.thread.start()

    def _work(self, lane: Lane) -> None:
        bench = self._job.bench()
        while True:
            batch = self._next(lane)
            if batch is None:
                return
            if not batch.tickets:
                self._post(batch)
                continue
            with lane.lock:
                lane.batch = batch
                if lane.stopping:  # the last run was told to stop; the switch is not reusable
                    lane.renew()
            run_batch(self._job, bench, lane, batch)
            with lane.lock:
                lane.batch = None
                mine = not batch.closed
                batch.closed = True
            if mine:
                self._post(batch)
            if lane.abandoned:
                return

    def _next(self, lane: Lane) -> Batch | None:
        """Wait for the policy's next batch; None when the lanes end."""
        since = -1.0
        with self._wake:
            while True:
                now = clock()
                if since < 0 and self._queue.pending:
                    since = now
                others: Running = self._running(now, lane) if len(self._lanes) > 1 else ()
                decision, lost = next_run(self._policy, self._queue, now, since, others)
                if isinstance(decision, Take) or lost:
                    batch = formed(self._queue, decision, lost, now)
                    if self._idle and self._queue.pending:
                        self._wake.notify()  # a group wakes one lane, however many batches it makes
                    return batch
                if self._ending:
                    return None
                self._idle += 1
                self._wake.wait(decision.until - now if isinstance(decision, Wait) else None)
                self._idle -= 1
                if not self._queue.pending:
                    since = -1.0

    # ---- the watchdog, called by the event loop every so often ----

    def watch(self, now: float, stuck_after: float) -> None:
        """Stop runs longer than `stuck_after` seconds; replace lanes whose thread died or would not stop."""
        for index, lane in enumerate(self._lanes):
            with lane.lock:
                batch = lane.batch
                dead = lane.thread is not None and not lane.thread.is_alive() and not self._ending
                age = now - batch.taken if batch is not None else 0.0
                if batch is not None and age > stuck_after and not lane.stopping:
                    lane.stopping = True
                    lane.stop.set()
                hung = batch is not None and age > stuck_after + GRACE
                if not (dead or hung):
                    continue
                lane.abandoned = True
                mine = batch is not None and not batch.closed
                if batch is not None:
                    batch.closed = True
            why = "its thread died" if dead else f"its run did not stop after {stuck_after:g} s"
            if batch is not None and mine:  # its callers first: a new thread may not be had
                batch.error = RunFailed(f"the lane was restarted: {why}")
                self._post(batch)
            self._replace(index, why)

    def _replace(self, index: int, why: str) -> None:
        self.restarts += 1
        self.last_restart = f"lane {index}: {why}"
        log.warning("restarted %s", self.last_restart)
        self._abandoned.append(self._lanes[index])
        self._lanes[index] = Lane(index)
        self._launch(self._lanes[index])


def formed(queue: Queue, decision: Take | Wait | None, lost: list[Group], now: float) -> Batch:
    """The batch that a policy decided on; without tickets where it only gave groups up."""
    batch = Batch(decision.tickets(queue), decision.why, now) if isinstance(decision, Take) else Batch([], "lost", now)
    batch.lost = lost
    return batch


def run_batch(job: Job, bench: Bench, lane: Lane, batch: Batch) -> None:
    """Decode and run a batch on this thread; whatever happens, every ticket has its answer or the batch its error."""
    cpu = time.thread_time()
    try:
        feeds, good, batch.settled = job.prepare(bench, batch.tickets)
        batch.decoded = clock()
        batch.rows = len(good)
        if good:
            batch.settled += job.run(feeds, good, lane.stop)
    except RunFailed as error:
        batch.error = _told(error, lane)
    except Exception:
        log.exception("a lane's work raised; its %d items are answered 500", len(batch.tickets))
        batch.error = RunFailed("an internal error while the batch was worked on; the server's log has it")
    batch.ran = clock()
    batch.cpu = time.thread_time() - cpu


def _told(error: RunFailed, lane: Lane) -> RunFailed:
    """A run that we stopped says so, and not what ONNX Runtime calls it."""
    return RunFailed("the run took too long and was stopped (--stuck-after)") if lane.stopping else error
