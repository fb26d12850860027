"""The open loop: every request goes out when it is due, whatever became of those before it.

Rules of this file. A due request takes an idle connection, or has another opened, up to the cap; beyond that it waits
in line with its clock running, and is counted as held. Of several idle ones it takes the one that was used last, so
that no more are open than are needed; with `clients` the one that has rested longest, and so many are kept open. Every
request that was due ends in exactly one outcome. A slow one is waited for until its timeout, also after the last one
was sent; only then is it unanswered. Times are monotonic seconds inside, and seconds after the due moment in the `Hits`
that come out.
"""

from __future__ import annotations

import asyncio
import gc
import math
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onbudget.core.errors import TargetError
from onbudget.core.histogram import Histogram, Quantile
from onbudget.core.records import Ending, Hits, Outcome
from onbudget.core.summary import NEVER_SENT, STOPPED, TIMED_OUT
from onbudget.prove.alarm import make_alarm
from onbudget.prove.arrivals import Schedule
from onbudget.prove.client import CLOSED_BEFORE, Answer, Connection, word_for

clock = time.monotonic

_SWEEP_S = 0.05  # between looks for requests that waited too long
_PROGRESS_S = 0.2
_GRACE_S = 1.0  # after a stop: how long what is under way may still take
_AT_ONCE = 128  # connections that are asked for together: fewer than any server's backlog
_MOST_OUTCOMES = 64  # words come from the server: no more kinds than this
_PENDING = Outcome(0, "pending")


@dataclass(frozen=True, slots=True)
class Progress:
    """A load test under way: seconds and counts so far.

    `latency` is the p95 from the due moment, after the warm-up, of those that have ended; `oldest_s` is how long the
    oldest of those under way has waited, which that p95 does not know of.
    """

    elapsed_s: float
    total_s: float
    sent: int
    answered: int
    refused: int
    failed: int
    in_flight: int
    latency: Quantile | None
    oldest_s: float = 0.0


class Generator:
    """One run of one schedule against one address. `run` once; `stop` ends it early, a second `stop` at once."""

    def __init__(
        self,
        address: tuple[str, int],
        requests: Sequence[bytes],
        schedule: Schedule,
        *,
        connections: int = 512,
        clients: int = 0,
        timeout_s: float = 10.0,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.schedule = schedule
        self._address = address
        self._requests = requests
        self._cap = max(connections, clients)
        self._clients = clients
        self._timeout_s = timeout_s
        self._on_progress = on_progress
        count = len(schedule.offsets)
        self._end = count  # requests to be sent in all; fewer after a stop
        self._fired = self._finished = self._oldest = 0
        self._taken, self._sent, self._done_at = (array("d", [math.nan]) * count for _ in range(3))
        self._outcome = array("h", [0]) * count
        self._outcomes: dict[Outcome, int] = {_PENDING: 0}
        self._good: dict[int, int] = {}  # 2xx status → its index
        self._idle: deque[Connection] = deque()
        self._rested = self._idle.popleft if clients else self._idle.pop
        self._open: set[Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._waiting: deque[int] = deque()
        self._resent: set[int] = set()
        self._opened = self._held = self._answered = self._refused = 0
        self._live = Histogram()
        self._stopped_at: float | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def run(self) -> tuple[Hits, Ending]:
        """Send everything, wait for the last answer or its timeout, and tell what became of each request."""
        loop = self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = loop.create_future()
        self._alarm = make_alarm(loop, self._tick)
        try:
            await self._meet()
            gc.collect()
            gc.freeze()  # what is here now will not be walked through again while requests are due
            cpu, starved, began = time.thread_time(), _starved_s(), clock()
            self._start = began + 0.02
            self._next_progress = self._start
            if self._stopped_at is None:
                self._alarm.set(self._start + self.schedule.offsets[0])
            self._sweeper = loop.call_later(_SWEEP_S, self._sweep)
            await self._done
        finally:
            self._close()
            gc.unfreeze()
        seconds = clock() - began
        waited = None if starved is None else ((_starved_s() or 0.0) - starved) / seconds
        return self._hits(), self._ending(time.thread_time() - cpu, waited)

    def stop(self) -> None:
        """Send nothing more and give what is under way a second; called again: give it none."""
        if self._done.done():
            return
        if self._stopped_at is not None:
            self._give_up()
            return
        self._stopped_at = clock()
        self._end = self._fired
        self._alarm.close()
        self._grace = self._loop.call_later(min(_GRACE_S, self._timeout_s), self._give_up)
        self._check_done()

    def fail(self, error: BaseException) -> None:
        """End the run with this error."""
        if not self._done.done():
            self._done.set_exception(error)

    async def _meet(self) -> None:
        """Every client's connection, before the first request is due. TargetError where one is not to be had."""
        host, port = self._address
        for first in range(0, self._clients, _AT_ONCE):
            count = min(_AT_ONCE, self._clients - first)
            try:
                async with asyncio.timeout(self._timeout_s):
                    await asyncio.gather(*(self._connect() for _ in range(count)))
            except OSError as error:  # the timeout's, too
                word = TIMED_OUT if isinstance(error, TimeoutError) and not error.errno else word_for(error)
                raise TargetError(
                    f"{host}:{port}: {word}, with {len(self._open)} of {self._clients} clients connected (--clients)"
                ) from None

    # ---- sending ----

    def _tick(self) -> None:
        """Send what is due, then sleep until the next one is."""
        if self._stopped_at is not None or self._done.done():
            return
        upto = self.schedule.due(clock() - self._start, self._fired)
        while self._fired < upto:
            hit = self._fired
            self._fired += 1
            self._fire(hit)
        if self._fired < self._end:
            self._alarm.set(self._start + self.schedule.offsets[self._fired])

    def _fire(self, hit: int) -> None:
        self._taken[hit] = clock()
        while self._idle:
            connection = self._rested()
            if not connection.closing:
                self._send(connection, hit)
                return
        self._waiting.append(hit)
        if len(self._open) + len(self._opening) >= self._cap:
            self._held += 1
        else:
            self._open_more(len(self._waiting))

    def _send(self, connection: Connection, hit: int) -> None:
        if self._sent[hit] != self._sent[hit]:  # NaN; one that is sent again keeps its first moment
            self._sent[hit] = clock()
        connection.send(hit, self._requests[hit % len(self._requests)])

    def _open_more(self, wanted: int) -> None:
        """Have so many connections under way, up to the cap."""
        while len(self._opening) < wanted and len(self._open) + len(self._opening) < self._cap:
            task = self._loop.create_task(self._connect())
            self._opening.add(task)
            task.add_done_callback(self._connected)

    async def _connect(self) -> None:
        await self._loop.create_connection(lambda: Connection(self), *self._address)

    def _connected(self, task: asyncio.Task[None]) -> None:
        """A connection was made (`opened` was called for it), or was not: then the oldest waiting request failed."""
        self._opening.discard(task)
        if task.cancelled() or self._done.done():
            return
        error = task.exception()
        if isinstance(error, OSError):
            hit = self._next_waiting()
            if hit >= 0:
                self._finish(hit, Outcome(0, word_for(error)))
        elif error is not None:
            self.fail(error)
        self._open_more(len(self._waiting))

    def _next_waiting(self) -> int:
        """The request that waits longest for a connection; -1 for none."""
        while self._waiting:
            hit = self._waiting.popleft()
            if not self._outcome[hit]:  # else it timed out where it stood
                return hit
        return -1

    def _free(self, connection: Connection) -> None:
        hit = self._next_waiting()
        if hit >= 0:
            self._send(connection, hit)
        else:
            self._idle.append(connection)

    # ---- what connections tell ----

    def opened(self, connection: Connection) -> None:
        self._opened += 1
        self._open.add(connection)
        if self._done.done():
            connection.abort()
        else:
            self._free(connection)

    def answered(self, connection: Connection, hit: int, arrived: float) -> None:
        if not self._outcome[hit]:
            self._done_at[hit] = arrived
            status = connection.status
            if 200 <= status < 300:
                self._answered += 1
                code = self._good.get(status) or self._good.setdefault(status, self._code(Outcome(status)))
                self._settle(hit, code)
                self._record(hit, arrived - self._start - self.schedule.offsets[hit])
            else:
                self._finish(hit, Outcome(status, _why(status, connection.body)))
        if not connection.closing:
            self._free(connection)

    def lost(self, connection: Connection, hit: int, word: str) -> None:
        self._open.discard(connection)
        if hit >= 0 and not self._outcome[hit]:
            stale = connection.used and not connection.amid and word in (CLOSED_BEFORE, "connection reset")
            if stale and hit not in self._resent:
                # The server closed an idle connection while we wrote on it; every client sends such a request again.
                self._resent.add(hit)
                self._waiting.appendleft(hit)
            else:
                self._finish(hit, Outcome(0, word))
        if not self._done.done():
            self._open_more(len(self._waiting))

    # ---- outcomes ----

    def _code(self, outcome: Outcome) -> int:
        if outcome not in self._outcomes and len(self._outcomes) >= _MOST_OUTCOMES:
            outcome = Outcome(outcome.status, "" if outcome.status else "another error")
        return self._outcomes.setdefault(outcome, len(self._outcomes))

    def _finish(self, hit: int, outcome: Outcome) -> None:
        """A request ended without being answered as asked."""
        self._refused += outcome.refused
        self._record(hit, math.inf)
        self._settle(hit, self._code(outcome))

    def _settle(self, hit: int, code: int) -> None:
        self._outcome[hit] = code
        self._finished += 1
        self._check_done()

    def _record(self, hit: int, latency: float) -> None:
        if self.schedule.offsets[hit] >= self.schedule.warmup_s:
            self._live.record(max(0.0, latency))

    def _check_done(self) -> None:
        if self._finished == self._end and self._fired == self._end and not self._done.done():
            self._done.set_result(None)

    def _sweep(self) -> None:
        """Give up what waited longer than the timeout, wherever it is; tell how it goes."""
        now = clock()
        passed = now - self._start - self._timeout_s
        while self._oldest < self._fired:
            if not self._outcome[self._oldest]:
                if self.schedule.offsets[self._oldest] > passed:
                    break
                self._expire(self._oldest, TIMED_OUT)
            self._oldest += 1
        if self._done.done():
            return
        if self._on_progress is not None and now >= self._next_progress:
            self._next_progress = now + _PROGRESS_S
            self._on_progress(self._progress(now))
        self._open_more(self._clients - len(self._open))  # only here: a server may close them as fast as they come
        self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)

    def _expire(self, hit: int, word: str) -> None:
        if self._outcome[hit]:
            return
        never = self._sent[hit] != self._sent[hit]
        self._finish(hit, Outcome(0, NEVER_SENT if never else word))
        for connection in [c for c in self._open if c.hit == hit]:
            connection.abort(word)

    def _give_up(self) -> None:
        for hit in range(self._oldest, self._fired):
            self._expire(hit, STOPPED)

    def _close(self) -> None:
        self._alarm.close()
        self._done.cancel()  # where it is not done: whoever is still connecting gives up then
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._stopped_at is not None:
            self._grace.cancel()
        for task in self._opening:
            task.cancel()
        for connection in list(self._open):
            connection.abort()

    # ---- telling ----

    def _progress(self, now: float) -> Progress:
        bad = self._finished - self._answered - self._refused
        waited = now - self._start - self.schedule.offsets[self._oldest] if self._oldest < self._fired else 0.0
        return Progress(
            elapsed_s=max(0.0, now - self._start),
            total_s=self.schedule.total_s,
            sent=self._fired,
            answered=self._answered,
            refused=self._refused,
            failed=bad,
            in_flight=self._fired - self._finished,
            latency=self._live.quantile(0.95, at_least=20),
            oldest_s=max(0.0, waited),
        )

    def _hits(self) -> Hits:
        count = self._fired
        due = np.frombuffer(self.schedule.offsets, np.float64)[:count].copy()
        at = due + self._start
        lag, sent, done = (np.frombuffer(c, np.float64)[:count] - at for c in (self._taken, self._sent, self._done_at))
        codes = np.frombuffer(self._outcome, np.int16)[:count].copy()
        return Hits(due, np.maximum(lag, 0.0), sent, done, codes, tuple(self._outcomes))

    def _ending(self, cpu_s: float, starved: float | None) -> Ending:
        total = self.schedule.total_s
        stopped = self._stopped_at
        return Ending(
            seconds=total if stopped is None else max(0.0, min(total, stopped - self._start)),
            partial=stopped is not None,
            connections=self._opened,
            held=self._held,
            resent=len(self._resent),
            cpu_s=round(cpu_s, 3),
            starved=None if starved is None else round(starved, 4),
        )


def _why(status: int, body: bytes) -> str:
    """The reason in a refusal's body, or the detail of another error's, short enough to be a kind."""
    told = Answer(status, body)
    if status in (429, 503):
        reason = (told.json() or {}).get("reason")
        return " ".join(reason.split())[:80] if isinstance(reason, str) else ""
    return told.detail()[:80] if body else ""


def _starved_s() -> float | None:
    """How long this thread has wanted a CPU and got none so far; None where the system does not tell."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None
