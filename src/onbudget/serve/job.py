"""A lane's work: tickets → rows of one array → one run → one answer a ticket.

Each lane has a `Bench` of its own, because ONNX Runtime reads the input buffer without a copy while it runs. An item
that can't be decoded is answered with its error and the rows close up, so that it never enters a run and never costs
its batch-mates anything.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pybase64

from onbudget.core.errors import BadContent, RequestError, RunFailed, TooLarge
from onbudget.core.queue import Ticket
from onbudget.core.tasks import Task
from onbudget.engine.images import decode
from onbudget.engine.session import Runner, Stop, example
from onbudget.engine.told import told
from onbudget.serve.contract import Contract
from onbudget.serve.items import ARRAYS, BASE64, OWN, PHOTO, PICTURE, ROW, WHOLE, where
from onbudget.serve.seam import Seam
from onbudget.serve.settings import Settings
from onbudget.serve.wire import array_item

log = logging.getLogger("onbudget")
Settled = list[tuple[Ticket, Any]]  # a ticket and its answer, or its RequestError


class Bench:
    """One lane's buffers: `rows[i]` is row i as an array, `raw[i]` the same memory as writable bytes."""

    def __init__(self, job: Job) -> None:
        self.rows: np.ndarray[Any, Any] | None = None
        self.raw: list[memoryview] = []
        contract = job.contract
        if contract.row_bytes:
            count = job.run_rows or job.max_batch
            self.rows = np.zeros((count, *(contract.shape or ())), contract.dtype)
            flat = self.rows.reshape(count, -1).view(np.uint8)
            self.raw = [memoryview(row) for row in flat]  # type: ignore[arg-type]  # an array is a buffer


class Job:
    """What every lane of a model does; holds no state of a batch.

    `max_batch` is the most rows that are run together; `run_rows` is what the file froze its batch axis at, else 0.
    """

    def __init__(
        self,
        runner: Runner,
        contract: Contract,
        task: Task,
        max_batch: int,
        settings: Settings,
        seam: Seam | None = None,
    ) -> None:
        self.runner = runner
        self.contract = contract
        self.task = task
        self.run_rows = contract.batch or 0
        self.max_batch = 1 if contract.why_alone else min(max_batch, self.run_rows or max_batch)
        self._name = contract.inputs[0].name
        self._seam = seam or Seam()
        self._decode = partial(decode, accept=settings.accept, max_pixels=settings.max_pixels)

    def bench(self) -> Bench:
        """Buffers for one lane."""
        return Bench(self)

    def prepare(self, bench: Bench, tickets: Sequence[Ticket]) -> tuple[dict[str, Any], list[Ticket], Settled]:
        """Decode the tickets into rows → feeds for the run, the tickets whose rows they are, and the failed ones."""
        if tickets[0].payload[0] is WHOLE:  # a bucket of its own, so it is alone
            feeds = zip(self.contract.inputs, tickets[0].payload[1], strict=True)
            return {port.name: array for port, array in feeds}, list(tickets), []
        good: list[Ticket] = []
        bad: Settled = []
        columns: list[tuple[Any, ...]] = []
        for ticket in tickets:
            try:
                if ticket.payload[0] is OWN:
                    columns.append(self._own(ticket, columns))
                elif bench.rows is None:
                    columns.append(ticket.payload[1])
                else:
                    self._place(bench, len(good), ticket)
            except RequestError as error:
                bad.append((ticket, error))
                continue
            good.append(ticket)
        return (self._feeds(bench, columns, len(good)) if good else {}), good, bad

    def _place(self, bench: Bench, row: int, ticket: Ticket) -> None:
        """One payload into one row."""
        assert bench.rows is not None
        kind, data = ticket.payload
        if kind is BASE64:
            try:
                bench.raw[row][:] = pybase64.b64decode(data, validate=True)
            except ValueError as error:  # junk characters, or padding that hid another length
                raise BadContent(f"{self._where(ticket)}: not valid base64 of one item: {error}") from error
        elif kind is ROW:
            bench.raw[row][:] = data
        elif kind is ARRAYS:
            bench.rows[row] = data[0]
        else:
            assert kind in (PICTURE, PHOTO)
            assert self.contract.recipe is not None
            try:
                self._decode(data, self.contract.recipe, out=bench.rows[row])
            except RequestError as error:
                raise type(error)(f"{self._where(ticket)}: {error}") from error
            except MemoryError as error:
                raise TooLarge(f"{self._where(ticket)}: not enough memory for its pixels") from error

    def _own(self, ticket: Ticket, before: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """What the application's own code makes of a payload, as the model's inputs."""
        place = self._where(ticket)
        value = self._seam.decoded(ticket.payload[1], place)
        if self.contract.free:
            array = np.asarray(value)
            if before and (array.shape, array.dtype) != (before[0][0].shape, before[0][0].dtype):
                other = f"{before[0][0].shape} {before[0][0].dtype}"
                raise RunFailed(f"{place}: decode made {array.shape} {array.dtype} of it and {other} of others")
            return (array,)
        try:
            arrays: tuple[Any, ...] = array_item(value, self.contract, place)[1]
        except BadContent as error:
            log.error("decode made what the model does not take: %s", error)
            raise RunFailed(f"decode made what the model does not take: {error}") from error
        return arrays

    def _where(self, ticket: Ticket) -> str:
        return where(ticket.group.note.parsed.name, ticket.index)

    def _feeds(self, bench: Bench, columns: list[tuple[Any, ...]], count: int) -> dict[str, Any]:
        if bench.rows is not None:
            if self.contract.batch == 0:
                return {self._name: bench.rows[0, ...]}  # an array even where the input is a single value
            if self.run_rows > count:  # the file wants exactly so many rows: the last one fills up
                bench.rows[count:] = bench.rows[count - 1]
            return {self._name: bench.rows[: self.run_rows or count]}
        inputs = self.contract.inputs
        if self.contract.batch == 0:
            return {port.name: columns[0][i] for i, port in enumerate(inputs)}
        if self.run_rows:
            columns = columns + [columns[-1]] * (self.run_rows - count)
        return {port.name: np.stack([c[i] for c in columns]) for i, port in enumerate(inputs)}

    def run(self, feeds: dict[str, Any], good: Sequence[Ticket], stop: Stop) -> Settled:
        """One run, and each ticket's answer; RunFailed when the model raises or answers the wrong number of rows."""
        parsed = [ticket.group.note.parsed for ticket in good]
        asked = {name: None for one in parsed for name in one.outputs}
        names = tuple({**dict.fromkeys(self.task.outputs), **asked}) if asked else self.task.outputs
        try:
            arrays = self.runner.run(feeds, names, stop)
        except Exception as error:
            raise RunFailed(f"the model's run failed: {told(error)}") from error
        if good[0].payload[0] is WHOLE:
            return [(good[0], dict(zip(names, arrays, strict=True)))]
        arrays = [[array] for array in arrays] if self.contract.batch == 0 else self._checked(names, arrays, len(good))
        if not asked:
            return list(zip(good, self._finished(arrays, good), strict=True))
        columns = dict(zip(names, arrays, strict=True))
        answers: list[Any] = [{name: columns[name][row] for name in one.outputs} for row, one in enumerate(parsed)]
        if not all(one.outputs for one in parsed):  # callers of both kinds shared the run
            finished = self._finished([columns[name] for name in self.task.outputs], good)
            answers = [raw or answer for raw, answer in zip(answers, finished, strict=True)]
        return list(zip(good, answers, strict=True))

    def _finished(self, arrays: list[Any], good: Sequence[Ticket]) -> list[Any]:
        """The task's answer to each ticket."""
        answers: list[Any] = list(self.task.finish(arrays, [ticket.group.note.parsed.top for ticket in good]))
        if self.contract.reworded:
            answers = [self._seam.finished(a, self._where(t)) for a, t in zip(answers, good, strict=True)]
        return answers

    def _checked(self, names: Sequence[str], arrays: list[Any], count: int) -> list[Any]:
        rows = self.run_rows or count
        for name, array in zip(names, arrays, strict=True):
            got = len(array) if isinstance(array, list) else array.shape[0] if array.ndim else 0
            if got != rows:
                raise RunFailed(
                    f"the model answered {got} rows of {name!r} for a batch of {rows}; `onbudget check` tells"
                )
        return [array[:count] for array in arrays] if self.run_rows else arrays

    def rehearse(self, rows: int) -> float:
        """One run on made-up items → its seconds; open axes other than the batch are taken as 1.

        RunFailed where the answer has another number of rows.
        """
        feeds = {port.name: example(port, self.run_rows or rows) for port in self.contract.inputs}
        began = time.perf_counter()
        arrays = self.runner.run(feeds, self.task.outputs)
        took = time.perf_counter() - began
        if self.contract.batch != 0:
            self._checked(self.task.outputs, arrays, rows)
        return took
