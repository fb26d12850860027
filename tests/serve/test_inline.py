"""One lane on the loop's own thread, and how old what the loop reads may be."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

from onbudget.core.errors import RunFailed
from onbudget.core.policy import Drop, Greedy, Running, Take, Timer, Wait
from onbudget.core.queue import Group, Queue
from onbudget.core.tasks import Tensors
from onbudget.serve import polls as polls_module
from onbudget.serve.exchange import Head, Request
from onbudget.serve.inline import Inline
from onbudget.serve.job import Job
from onbudget.serve.lanes import Batch
from onbudget.serve.polls import AT_ONCE, Polls
from onbudget.serve.service import Service
from onbudget.serve.settings import Settings
from tests.serve.test_lanes import CONTRACT, FakeRunner, Note, settle
from tests.support.tiles import Tiles


class Bench:
    """An inline lane over the fake runner; must be made on a running loop."""

    def __init__(self, policy: Any = None) -> None:
        self.runner = FakeRunner()
        self.batches: list[Batch] = []
        self.queue = Queue(max_items=1000, max_bytes=10**6)
        job = Job(self.runner, CONTRACT, Tensors(("y",)), 4, Settings())
        polls = Polls(asyncio.get_running_loop())
        self.lane = Inline(job, policy or Greedy(4), self.queue, self._deliver, polls)
        self.lane.start()

    def _deliver(self, batch: Batch) -> None:
        self.batches.append(batch)
        settle(batch)

    def send(self, value: int, told: list[Group]) -> Group:
        group = Group(time.monotonic(), 2, told.append, Note())
        group.add(("arrays", (np.array([value, value], np.uint8),)))
        self.lane.submit(group)
        return group


def on_loop(test: Callable[[], Any]) -> None:
    async def go() -> None:
        await test()

    asyncio.run(asyncio.wait_for(go(), 20))


def test_what_one_round_read_is_one_batch() -> None:
    """Six requests that arrive together leave as four and two, each with its own answer, in their order."""

    async def test() -> None:
        bench, told = Bench(), []
        groups = [bench.send(n, told) for n in range(6)]
        while len(told) < 6:
            await asyncio.sleep(0)
        assert [b.rows for b in bench.batches] == [4, 2]
        assert told == groups
        assert [g.answers for g in groups] == [[{"y": [2.0 * n, 2.0 * n]}] for n in range(6)]
        assert bench.batches[1].began == bench.batches[0].ran  # it waited through what came between
        bench.lane.stop()

    on_loop(test)


def test_the_given_up_are_delivered_with_the_batch() -> None:
    """What a policy drops comes back once, with or without a batch beside it."""

    class Picky(Greedy):
        def next_batch(self, queue: Queue, now: float, since: float, others: Running = ()) -> Take | Wait | Drop | None:
            odd = [t.group for t in queue.peek(None, 9) if t.payload[1][0][0] % 2] if queue.waiting else []
            return Drop(odd) if odd else super().next_batch(queue, now, since)

    async def test() -> None:
        bench, told = Bench(Picky(4)), []
        groups = [bench.send(n, told) for n in (1, 2, 3)]
        await asyncio.sleep(0.01)
        assert [(b.rows, b.lost) for b in bench.batches] == [(1, [groups[0], groups[2]])]
        lone = bench.send(5, told)
        await asyncio.sleep(0.01)
        assert bench.batches[1].lost == [lone]
        assert bench.queue.waiting == 0
        bench.lane.stop()

    on_loop(test)


def test_a_timer_waits_on_the_loop_too() -> None:
    """The policy's Wait is a timer of the loop, and a full batch does not wait for it."""

    async def test() -> None:
        bench, told = Bench(Timer(2, 0.005)), []
        bench.send(1, told)
        while not told:
            await asyncio.sleep(0)
        assert (bench.batches[0].rows, bench.batches[0].why) == (1, "wait")
        bench.lane.stop()
        patient, told = Bench(Timer(2, 1000.0)), []
        patient.send(1, told)
        await asyncio.sleep(0.01)
        assert told == []
        patient.send(2, told)
        while len(told) < 2:
            await asyncio.sleep(0)
        assert patient.batches[0].why == "full"
        patient.lane.stop()

    on_loop(test)


def test_a_photo_is_decoded_beside_the_loop(tiles: Tiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture of a million pixels is worked on by a thread, and what came meanwhile runs after it."""
    monkeypatch.setattr("onbudget.serve.models.Model._fits_inline", lambda model: True)
    tile = tiles.some(1)[0]
    photo, small = io.BytesIO(), io.BytesIO()
    Image.fromarray(np.kron(tile, np.ones((63, 63, 1), np.uint8))).save(photo, "PNG", compress_level=1)
    Image.fromarray(tile).save(small, "PNG")
    threads: list[str] = []
    place = Job._place

    def spy(job: Job, *args: Any) -> None:
        threads.append(threading.current_thread().name)
        place(job, *args)

    monkeypatch.setattr(Job, "_place", spy)

    async def test() -> None:
        service = Service(tiles.bundle, Settings(lanes=1))
        await service.start()
        assert service.model is not None
        assert isinstance(service.model.lanes, Inline)
        loop = asyncio.get_running_loop()
        answers = []
        for body in (photo, small):
            done = loop.create_future()
            request = Request(Head([(b"content-type", b"image/png")]), body.getvalue(), time.monotonic())
            service.predict(request, done.set_result)
            answers.append(done)
            await asyncio.sleep(0)
        for response in await asyncio.gather(*answers):
            assert json.loads(response.body)["label"] == tiles.expect(tile[None])[0][0]
        assert threads[0] != threading.main_thread().name
        assert threads[1] == threading.main_thread().name
        await service.stop()

    on_loop(test)


def test_a_hung_run_is_told_to_stop_by_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop can't watch what blocks it, so another thread sets the run's switch."""
    monkeypatch.setattr("onbudget.serve.inline.GUARD", 0.01)

    async def test() -> None:
        bench, told = Bench(), []
        bench.lane.watch(0.0, stuck_after=0.05)

        def spin(rows: Any) -> None:
            while not bench.runner.last_stop.options.terminate:
                time.sleep(0.001)
            raise RuntimeError("terminated")

        bench.runner.act = spin
        group = bench.send(1, told)
        while not told:
            await asyncio.sleep(0)
        assert isinstance(group.error, RunFailed)
        assert "--stuck-after" in str(group.error)
        bench.runner.act = None
        other = bench.send(2, told)
        while len(told) < 2:
            await asyncio.sleep(0)
        assert other.error is None
        bench.lane.stop()

    on_loop(test)


def test_stop_gives_back_what_waits() -> None:
    """At the end nothing is run any more; the waiting groups come back."""

    async def test() -> None:
        bench = Bench()
        group = bench.send(1, [])
        assert bench.lane.stop() == [group]
        await asyncio.sleep(0.01)
        assert bench.batches == []

    on_loop(test)


class FakeLoop:
    """Keeps what was to be called soon."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, what: Callable[[], None]) -> None:
        self.soon.append(what)


def test_ages_are_bounded_by_the_round_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read at once after a busy round may be as old as it; what woke a waiting loop is new."""
    now = [0.0]
    monkeypatch.setattr(polls_module, "clock", lambda: now[0])
    loop = FakeLoop()
    polls = Polls(loop)  # type: ignore[arg-type]  # only call_soon is used
    now[0] = 10.0
    assert polls.read() == 0.0  # the loop had waited
    now[0] = 10.002
    assert polls.read() == pytest.approx(0.002)  # read later in the same round
    loop.soon.pop()()
    now[0] = 10.008
    polls.end()  # a batch ran until here
    assert polls.lag == pytest.approx(0.008)
    now[0] += AT_ONCE / 2
    assert polls.read() == pytest.approx(0.008 + AT_ONCE / 2)  # it may have come just after the last poll
    loop.soon.pop()()
    now[0] += 1.0
    assert polls.read() == 0.0
