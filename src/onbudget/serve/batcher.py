"""A micro-batcher over any Python classifier, inside a running event loop: one `predict` for many callers.

It asks the server's own `Timer` which tiles go together, so that the rule exists once. Rules of this file. Everything
but `predict` happens on the event loop; whoever waits always hears: its own answer, its batch's exception, or the stop.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Hashable, Sequence
from typing import Any, Protocol

import numpy as np

from onbudget.core.errors import NotReady, RunFailed, UsageError
from onbudget.core.policy import Take, Timer, Wait, next_run
from onbudget.core.queue import Group, Queue, Ticket

log = logging.getLogger("onbudget")
clock = time.monotonic
_UNBOUNDED = sys.maxsize  # whoever submits holds the tile anyway, so a bound would save no memory


class Predicts(Protocol):
    """What is batched: any object with this method. It is called by one thread at a time."""

    def predict(self, items: Any, /) -> Sequence[Any]:
        """Stacked items → one answer each, in order."""
        ...


class MicroBatcher:
    """Collects single items of many callers into batches of one `classifier.predict` each, in a thread.

    A batch opens when the worker takes its first waiting item and closes at `max_batch` items or `max_wait_ms` later.
    `batch_sizes` has the size of every batch so far. UsageError for sizes and times that can't be meant.
    """

    def __init__(self, classifier: Predicts, max_batch: int = 16, max_wait_ms: float = 2.0) -> None:
        if max_batch < 1 or not max_wait_ms >= 0:
            raise UsageError(f"max_batch must be at least 1 and max_wait_ms 0 or more, not {max_batch}, {max_wait_ms}")
        self.classifier = classifier
        self.max_batch = max_batch
        self.max_wait = max_wait_ms / 1000  # seconds
        self.batch_sizes: list[int] = []
        self.queue: Queue | None = None
        self.worker: asyncio.Task[None] | None = None  # from the first submit; after a stop the one that was
        self._policy = Timer(max_batch, self.max_wait)
        self._arrived = asyncio.Event()
        self._open: set[asyncio.Future[Any]] = set()
        self._one = threading.Lock()  # a predict that outlived its stop is not joined by another

    async def submit(self, tile: Any) -> Any:
        """The answer for one item, once its batch has run; starts the worker where there is none.

        Raises what `predict` raised for its batch, NotReady where `stop` came first, RuntimeError from a second loop.
        """
        queue = self._started()
        item = np.asarray(tile)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        group = Group(clock(), 0, _never, future)
        group.add(item, _bucket(item))
        self._open.add(future)
        queue.offer(group)
        self._arrived.set()
        try:
            return await future
        finally:
            self._open.discard(future)
            queue.withdraw(group)  # a caller that was cancelled leaves its place
            queue.close(group)

    def stop(self) -> None:
        """End the worker; whoever still waits hears so (NotReady). The next submit starts anew."""
        self._end(NotReady("the batcher was stopped before this item was done", reason="stopped"))

    def _started(self) -> Queue:
        loop = asyncio.get_running_loop()
        if self.worker is not None and self.queue is not None and self.worker.get_loop() is not loop:
            if not self.worker.get_loop().is_closed():
                raise RuntimeError(
                    "this MicroBatcher works for another event loop, which is running; make a second one"
                )
            self.queue = None
            self._open.clear()  # that loop's callers ended with it
        if self.queue is None:
            self.queue, self._arrived = Queue(_UNBOUNDED, _UNBOUNDED), asyncio.Event()
            self.worker = loop.create_task(self._run(self.queue, self._arrived))
            self.worker.add_done_callback(self._ended)
        return self.queue

    async def _run(self, queue: Queue, arrived: asyncio.Event) -> None:
        since = -1.0  # when this worker, being free, first saw what waits
        while True:
            now = clock()
            since = now if since < 0 and queue.pending else since
            decision, _ = next_run(self._policy, queue, now, since)
            if isinstance(decision, Take):
                await self._answer(decision.tickets(queue))
                since = -1.0
                continue
            arrived.clear()
            try:
                async with asyncio.timeout(decision.until - now if isinstance(decision, Wait) else None):
                    await arrived.wait()
            except TimeoutError:
                continue  # the wait is over
            if not queue.pending:
                since = -1.0

    async def _answer(self, tickets: list[Ticket]) -> None:
        """One predict for these, and each its own answer or all of them the exception."""
        self.batch_sizes.append(len(tickets))
        answers, error = await asyncio.to_thread(self._predict, np.stack([ticket.payload for ticket in tickets]))
        for index, ticket in enumerate(tickets):
            future = ticket.group.note
            if future.done():  # cancelled meanwhile
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(answers[index])

    def _predict(self, items: Any) -> tuple[Sequence[Any], BaseException | None]:
        """In a thread. An exception is handed over as a value: some kinds can't cross a future's border as they are."""
        try:
            with self._one:
                answers = self.classifier.predict(items)
            if len(answers) != len(items):
                raise RunFailed(f"predict gave {len(answers)} answers for a batch of {len(items)}")
        except StopIteration as error:  # a future refuses it
            stopped = RuntimeError("predict raised StopIteration")
            stopped.__cause__ = error
            return (), stopped
        except BaseException as error:  # noqa: BLE001 - it is its callers', whatever it is
            return (), error
        return answers, None

    def _ended(self, worker: asyncio.Task[None]) -> None:
        """The worker ended without a stop: it was cancelled, or something here is wrong. Nobody is left waiting."""
        if worker is not self.worker or self.queue is None:
            return
        if worker.cancelled():
            self.stop()
        else:
            log.error("the batcher's worker ended", exc_info=worker.exception())
            self._end(RunFailed("an internal error while a batch was formed; the log has it"))

    def _end(self, error: Exception) -> None:
        worker, self.queue = self.worker, None
        waiting, self._open = self._open, set()
        if worker is None or worker.get_loop().is_closed():
            return
        worker.cancel()
        for future in waiting:
            if not future.done():
                future.set_exception(error)


def _bucket(item: np.ndarray[Any, Any]) -> Hashable:
    """Items of one shape and type stack; text of any length does."""
    return item.shape, item.dtype.kind if item.dtype.kind in "US" else item.dtype.str


def _never(_: Group) -> None:
    """A group's reply, unused: futures are answered directly."""
