"""The server without its sockets: a request goes in, a response comes out by one callback, all on the event loop.

States: loading → ready → draining → stopped; loading → failed; a stopped one may be started again. Whoever owns the
sockets (`app`, `protocol`) calls `predict`; lanes post batches back with one hop to the loop each.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from onbudget.core.errors import (
    BundleError,
    NotParseable,
    NotReady,
    OnbudgetError,
    RequestError,
    RunFailed,
    Shed,
    TooLarge,
)
from onbudget.core.policy import Entry
from onbudget.core.queue import Group
from onbudget.core.units import show_size
from onbudget.engine import images
from onbudget.engine.told import told
from onbudget.serve.adapted import Adapted
from onbudget.serve.exchange import EMPTY, Head, Refusal, Request
from onbudget.serve.gate import Gate
from onbudget.serve.items import Format, Parsed
from onbudget.serve.lanes import Batch
from onbudget.serve.metrics import Metrics
from onbudget.serve.models import Model
from onbudget.serve.polls import Polls
from onbudget.serve.seam import Seam
from onbudget.serve.settings import Settings
from onbudget.serve.status import Status
from onbudget.serve.wire import PREDICT

log = logging.getLogger("onbudget")
clock = time.monotonic
WATCH_EVERY = 0.25  # seconds between the watchdog's looks


class Call:
    """A request that was admitted: how to word its answer, and who waits for it."""

    __slots__ = ("batch", "format", "parsed", "reply")

    def __init__(self, parsed: Parsed, format: Format, reply: Callable[[Any], None]) -> None:
        self.parsed = parsed
        self.format = format
        self.reply = reply
        self.batch: Batch | None = None  # the last one that carried an item of it


class Service:
    """One model behind `predict`; `name` is what callers call it, and `version` which of its files is served."""

    def __init__(
        self, source: Path | Adapted, settings: Settings | None = None, seam: Seam | None = None, name: str = ""
    ) -> None:
        self._source = source  # a model's file, or a Python classifier
        path = source.path if isinstance(source, Adapted) else source
        self.name = name or path.stem
        self.version = "1"
        self._seam = seam
        self.settings = settings or Settings()
        self.state = "loading"
        self.error: OnbudgetError | None = None
        self.model: Model | None = None
        self._gate: Gate | None = None
        self.metrics = Metrics(self.settings.p95)
        self.live_status = Status(self.metrics.live)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None  # one for all: at the soonest deadline of those that wait
        self._expires = math.inf  # when that is
        self._starting: asyncio.Task[None] | None = None
        self._drain_by: float | None = None  # until when accepted requests may take, once the doors are closed
        self._open: set[Group] = set()
        self.polls: Polls | None = None  # once it is loaded

    # ---- life ----

    def start(self) -> asyncio.Task[None]:
        """Load in the background; the task ends when the model is ready, or raises why it can't be served.

        Once a life: a second call returns the same task. A service that was stopped begins another life, and so does
        one whose event loop was closed without a stop.
        """
        if self.state == "stopped" or self.orphaned:
            if self.model is not None and self.state != "stopped":
                self._open.clear()  # that loop's callers ended with it
                self.model.lanes.stop(timeout=0)
            self.state, self.error, self.model, self._drain_by, self._starting = "loading", None, None, None, None
            self._gate, self.live_status = None, Status(self.metrics.live)
            self._expiry, self._expires = None, math.inf
        if self._starting is None:
            self._loop = asyncio.get_running_loop()
            self._starting = self._loop.create_task(self._start())
        return self._starting

    @property
    def orphaned(self) -> bool:
        """Whether the event loop that it lived on is closed: nobody stops an application that is mounted in another."""
        return self._loop is not None and self._loop.is_closed()

    async def _start(self) -> None:
        assert self._loop is not None
        try:
            model = await asyncio.to_thread(Model, self._source, self.settings, self._seam)
        except Exception as error:
            self.state = "failed"
            name = getattr(self._source, "path", self._source)
            self.error = error if isinstance(error, OnbudgetError) else BundleError(f"{name}: {told(error)}")
            raise
        if self.state != "loading":  # told to stop meanwhile
            return
        self.polls = Polls(self._loop)
        model.start(partial(self._post, self._loop), self._deliver, self.polls)
        self.model = model
        self._gate = Gate(model, self.metrics.live)
        self.metrics.serve(model, lambda: self.state == "ready")
        self.state = "ready"
        self._tick()
        # After ready: what the first picture and the first scrape would else pay for, with everybody waiting.
        if model.contract.pictures:
            await asyncio.to_thread(images.warm, self.settings.accept)
        self.metrics.fold()
        await asyncio.to_thread(self.metrics.render)
        self.metrics.live.steady = clock()
        await asyncio.to_thread(model.remember)

    def _post(self, loop: asyncio.AbstractEventLoop, batch: Batch) -> None:
        """Called by the lanes: one hop to the loop."""
        try:
            loop.call_soon_threadsafe(self._deliver, batch)
        except RuntimeError:
            if not loop.is_closed():
                raise
            log.warning("a batch of %d came back after its event loop was closed", len(batch.tickets))

    def _tick(self) -> None:
        assert self._loop is not None
        assert self.model is not None
        self._watch = self._loop.call_later(WATCH_EVERY, self._tick)  # first: a look that fails is not the last one
        self.model.lanes.watch(clock(), self.settings.stuck_after)
        self.metrics.fold()
        self.metrics.live.roll(clock(), time.process_time())

    def drain(self) -> None:
        """From now on `/ready` says no; what was accepted, and what still comes, is answered."""
        if self.state in ("loading", "ready"):
            self.state = "draining"

    def close(self) -> None:
        """The doors are closed: from now on `drain_timeout` counts."""
        self._drain_by = clock() + self.settings.drain_timeout

    async def stop(self) -> None:
        """Answer what was accepted, for as long as `drain_timeout` allows; then end the lanes."""
        self.drain()
        self.live_status.foresight.stop()
        if self._starting is not None and not self._starting.done():
            with contextlib.suppress(Exception):  # it was told to whoever waits for `start`, and is in `error`
                await self._starting
        end = self._drain_by or clock() + self.settings.drain_timeout
        while self._open and clock() < end:  # noqa: ASYNC110 - once in a server's life; an event would cost each request
            await asyncio.sleep(0.01)
        for timer in (self._watch, self._expiry):
            if timer is not None:
                timer.cancel()
        self._expiry, self._expires = None, math.inf
        self.state = "stopped"
        for group in list(self._open):
            group.fail(NotReady("the server stopped before this request was done", reason="stopped"))
        if self.model is not None:
            await asyncio.to_thread(self.model.lanes.stop)

    @property
    def hung(self) -> bool:
        """After `stop`: whether a run did not listen, so that its thread is still there."""
        return self.model is not None and self.model.lanes.alive

    # ---- requests ----

    def predict(self, request: Request, reply: Callable[[Any], None], format: Format = PREDICT) -> Group | None:
        """Parse, admit and queue a request; `reply` is called once, now or later, unless `cancel` comes first.

        It is called with what `format` makes of the answers or of an error: a Response, by default. Returns the group
        that waits, for `cancel`; None when the reply has been given already.
        """
        model = self.model
        failed: RequestError
        try:
            if model is None or self.state not in ("ready", "draining"):
                raise self.not_ready()
            parsed = format.parse(request, model.contract, self.settings)
            head = request.head
            if head.fault:
                raise NotParseable(head.fault)
            within, priority = head.within(self.settings.p95), head.priority
            if parsed.within is not None:
                within = parsed.within
            if parsed.priority is not None:
                priority = parsed.priority
            now = clock()
            entry = model.policy.admit(
                model.queue, model.lanes.running(now), len(parsed.items), now - request.arrived, now, within, priority
            )
            call = Call(parsed, format, reply)
            wanted = model.promise if within is None else within
            deadline = math.inf if wanted is None else request.arrived + wanted
            own = within is not None
            group = Group(request.arrived, len(request.body), self._reply, call, deadline, own, priority)
            if entry is Entry.AT_ONCE:
                group.expires = math.inf  # it does not wait: it runs, however late it will be
            elif entry is Entry.LATE and model.spare is not None:
                group.demote("door", model.spare.longest)
            for kind, data, key in parsed.items:
                group.add((kind, data), key)
            model.lanes.submit(group)
        except RequestError as error:
            failed = error.with_traceback(None)  # a cycle with this frame would keep the body for the collector
            if isinstance(error, Shed) and self._gate is not None:
                self._gate.refused = clock()
        except Exception:
            log.exception("a request could not be read; it is answered 500")
            failed = RunFailed("an internal error while the request was read; the server's log has it")
        else:
            self._open.add(group)
            if group.expires < self._expires:
                self._expire_at(group.expires)
            return group
        self.metrics.live.refuse(failed.reason)
        self.metrics.request(failed.code, clock() - request.arrived, format.route)
        reply(format.refusal(failed))
        return None

    def check_size(self, size: int) -> None:
        """TooLarge when a body of `size` bytes, declared or read so far, is over the limit."""
        limit = self.settings.max_body
        if size > limit:
            raise TooLarge(f"the body has {show_size(size)} or more; the limit is {show_size(limit)} (--max-body)")

    def count(self, outcome: str, since: float | None = None, route: str = PREDICT.route) -> None:
        """A request that ended before it reached `predict`; `since` is when its head was read."""
        self.metrics.request(outcome, clock() - since if since is not None else 0.0, route)

    def calm(self) -> bool:
        """Whether the door need not be asked about a request that has come whole."""
        return self._gate is not None and self._gate.calm(clock())

    def gate(self, length: int, age: float, head: Head = EMPTY) -> Refusal | None:
        """The refusal of a request whose head was read, by its declared length in bytes; None lets it in for now.

        Costs a small part of what reading it would: that is why it is asked before.
        """
        if self._gate is None or self.state not in ("ready", "draining"):
            return None
        return self._gate.ask(length, age, head)

    def cancel(self, group: Group) -> None:
        """The caller hung up: its places are free at once, and what runs for it is thrown away."""
        if group.withdrawn:
            return
        group.withdrawn = True
        self._end(group)
        self.metrics.request("gone", clock() - group.arrived, group.note.format.route)

    def _expire_at(self, when: float) -> None:
        assert self._loop is not None
        if self._expiry is not None:
            self._expiry.cancel()
        self._expires = when
        self._expiry = self._loop.call_later(max(0.0, when - clock()), self._expire)

    def _expire(self) -> None:
        """Tell whoever still waits at its deadline: at once, however long the lanes go on with what they run."""
        assert self.model is not None
        lost, when = self.model.lanes.expire(clock())
        self._expiry, self._expires = None, math.inf
        if when < math.inf:  # first: an answer that fails is not the last one
            self._expire_at(when)
        for group in lost:
            group.fail(_expired())

    def _end(self, group: Group) -> None:
        assert self.model is not None
        self._open.discard(group)
        self.metrics.live.accepted += 1
        if group.late:
            self.metrics.live.demote(group.late)
        if group.left:
            self.model.lanes.withdraw(group)
        self.model.queue.close(group)
        group.tickets = []  # each knows its group: a cycle would keep the body until the collector comes by

    def _deliver(self, batch: Batch) -> None:
        """A lane's batch is back: every ticket has its answer or its error."""
        if self._gate is not None:
            self._gate.forget()
        if batch.rows and not (batch.error or batch.odd) and self.model is not None and self.model.cost is not None:
            self.model.cost.observe(batch.rows, batch.cpu, max(batch.ran - batch.began, 1e-6), batch.ran)
        for group in batch.lost:
            group.fail(_expired())
        for ticket, result in batch.settled:
            group = ticket.group
            group.note.batch = batch
            if isinstance(result, RequestError):
                group.fail(result)
            else:
                group.settle(ticket.index, result)
        if batch.error is not None:
            for ticket in batch.tickets:
                ticket.group.fail(batch.error)
        self.metrics.batch(batch, clock())
        # Its groups know it, and their bodies are large: a cycle would keep them until the collector comes by.
        batch.tickets, batch.settled = [], []

    def _reply(self, group: Group) -> None:
        """A group has ended, well or not: the one place where answers leave. Never raises: batch-mates come after."""
        self._end(group)
        call: Call = group.note
        try:
            response = call.format.refusal(group.error) if group.error is not None else self._worded(group, call)
        except Exception:
            log.exception("an answer could not be written as JSON; its request is answered 500")
            group.error = RunFailed("an internal error while the answer was written; the server's log has it")
            response = call.format.refusal(group.error)
        outcome = "ok"
        if group.error is not None:
            outcome = group.error.code
            self.metrics.live.refuse(group.error.reason)
        self.metrics.request(outcome, clock() - group.arrived, call.format.route)
        try:
            call.reply(response)
        except Exception:
            log.exception("an answer could not be handed over")

    def _worded(self, group: Group, call: Call) -> Any:
        assert call.batch is not None
        batch = call.batch
        timing = b"decode;dur=%.3f, queue;dur=%.3f, infer;dur=%.3f" % (
            (batch.decoded - batch.taken) * 1e3,
            (batch.taken - group.arrived) * 1e3,
            (batch.ran - batch.decoded) * 1e3,
        )
        headers = [(b"server-timing", timing)]
        over = clock() - group.deadline
        if over > 0:
            headers.append((b"x-onbudget-late", b"%.1f" % (over * 1e3)))
            assert self.model is not None
            if self.model.spare is not None and not (group.late or group.own):
                self.model.spare.surprise()
        return call.format.answer(call.parsed, group.answers, headers)

    def not_ready(self) -> NotReady:
        """Why it can't be asked now."""
        words = {
            "loading": "the model is still loading",
            "draining": "the server is shutting down",
            "stopped": "the server has stopped",
            "failed": f"the model can't be served: {self.error}",
        }
        return NotReady(words[self.state], reason=self.state)


def _expired() -> Shed:
    return Shed("it waited until it could not be in time any more", reason="expired", retry_after_s=1.0)
