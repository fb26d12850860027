"""A refusal is remembered while it must be right, and shared by the callers of one moment."""

from __future__ import annotations

from time import monotonic as clock
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onbudget.core.cost import Cost, Online
from onbudget.core.deadline import Deadline
from onbudget.core.errors import Shed
from onbudget.core.late import Spare
from onbudget.core.queue import Queue
from onbudget.serve.exchange import Head
from onbudget.serve.gate import Gate
from onbudget.serve.lanes import Batch
from onbudget.serve.live import Live
from onbudget.serve.protocol import Protocol
from onbudget.serve.service import Service
from onbudget.serve.settings import Settings
from tests.support.door import Door, at_the_door, body_of
from tests.support.tiles import Tiles
from tests.support.transport import Wire
from tests.support.wire import request


def test_each_class_has_its_own_remembered_refusal(tiles: Tiles) -> None:
    """What the usual class was told is not told to the most urgent one, behind as many or behind fewer."""

    async def test(protocol: Protocol, transport: Wire, door: Door, service: Service) -> None:
        assert service.model is not None
        queue = service.model.queue
        urgent, patient = Head([(b"x-priority", b"1")]), Head([(b"x-priority", b"3")])
        queue.waiting = 2  # of the most urgent class, as far as the door can tell
        usual = service.gate(1, 0.0)
        assert usual is not None
        others = [service.gate(1, 0.0, urgent), service.gate(1, 0.0, patient)]
        assert door.classes == [2, 1, 3]
        assert usual not in others
        assert [service.gate(1, 0.0), service.gate(1, 0.0, urgent), service.gate(1, 0.0, patient)] == [usual, *others]
        assert len(door.classes) == 3
        door.shut = False  # what waits is of the usual class: nobody goes before an urgent one
        queue._waits[2] = 2
        assert service.gate(1, 0.0, urgent) is None
        assert service.gate(1, 0.0) is usual
        queue.waiting = queue._waits[2] = 0

    at_the_door(tiles, test)


def test_a_refusal_is_remembered_while_it_must_be_right(tiles: Tiles) -> None:
    """Behind as many, of as many items, and not so much later that the lanes could be free: the policy is not asked.

    Behind nobody, behind fewer or a batch more, with more items, with a deadline of its own or of others, and a moment
    later it is asked again.
    """

    async def test(protocol: Protocol, transport: Wire, door: Door, service: Service) -> None:
        assert service.model is not None
        queue = service.model.queue
        length = len(body_of(tiles))
        one = service.gate(length, 0.0)
        assert service.gate(length, 0.0) is not one  # nobody waits: it is asked each time
        queue.waiting = 2
        one = service.gate(length, 0.0)
        asked = len(door.asked)
        assert service.gate(length, 0.0) is one
        queue.waiting = 3
        assert service.gate(length, 0.001) is one
        assert len(door.asked) == asked
        queue.waiting = 4  # would run in another batch
        assert service.gate(length, 0.0) is not one
        asked += 1
        for ask in (
            lambda: service.gate(length, -1.0),  # it came a second after
            lambda: service.gate(3 * length, 0.0),
            lambda: service.gate(length, 0.0, Head([(b"x-deadline-ms", b"9")])),
        ):
            ask()
            asked += 1
            assert len(door.asked) == asked
        service.gate(length, 0.0)
        asked = len(door.asked)
        queue.waiting = 2
        service.gate(length, 0.0)
        assert len(door.asked) == asked + 1
        queue.own, queue.waiting = 1, 1  # somebody's own deadline: who comes later may have more time, and so a place
        one = service.gate(length, 0.0)
        assert service.gate(length, 0.0) is not one
        queue.own = 0
        assert service.metrics.live.refused == 0  # those are counted when they end
        queue.waiting = 0

    at_the_door(tiles, test)


def test_a_remembered_refusal_is_doomed_all_the_same(tiles: Tiles) -> None:
    """Who sends some to the background is told of each, and is asked again as soon as one more may go there."""

    async def test(protocol: Protocol, transport: Wire, door: Door, service: Service) -> None:
        assert service.model is not None
        door.spare = spare = Spare(0.02)
        service.model.queue.waiting = 3
        one = service.gate(1, 0.0)
        assert service.gate(1, 0.0) is one
        assert spare.asked == 1
        assert spare.doomed > 0
        spare.room = 5
        assert service.gate(1, 0.0) is not one
        service.model.queue.waiting = 0

    at_the_door(tiles, test)


def test_a_shared_refusal_keeps_what_is_each_requests_own(tiles: Tiles) -> None:
    """The bytes are made once; X-Request-Id and `connection: close` are the caller's, the date is of now."""

    async def test(protocol: Protocol, transport: Wire, door: Door, service: Service) -> None:
        assert service.model is not None
        service.model.queue.waiting = 3
        body = body_of(tiles)
        protocol.server_state.default_headers = [(b"date", b"then")]
        protocol.data_received(request(body, b"x-request-id: one"))
        protocol.server_state.default_headers = [(b"date", b"now")]
        protocol.data_received(request(body, b"x-request-id: two"))
        protocol.data_received(request(body, b"connection: close"))
        first, second, third = transport.written.split(b"HTTP/1.1 429 ")[1:]
        assert b"date: then\r\n" in first
        assert b"x-request-id: one\r\n" in first
        assert b"date: now\r\n" in second
        assert b"x-request-id: two\r\n" in second
        assert b"x-request-id" not in third
        assert b"connection: close\r\n" in third
        assert len({part.partition(b"\r\n\r\n")[2] for part in (first, second, third)}) == 1
        assert len(door.asked) == 1
        assert transport.closed
        service.model.queue.waiting = 0

    at_the_door(tiles, test)


@settings(max_examples=500, deadline=None)
@given(
    waiting=st.integers(1, 40),
    more=st.integers(0, 10),
    lanes=st.lists(st.tuples(st.integers(1, 8), st.floats(0, 0.02)), min_size=1, max_size=3),
    age=st.floats(0, 0.02),
    wait=st.floats(0, 0.03),
)
def test_what_is_remembered_is_what_the_policy_would_say(
    waiting: int, more: int, lanes: list[tuple[int, float]], age: float, wait: float
) -> None:
    """While no batch has come back: whoever gets a remembered refusal would have been refused by the policy too."""
    cost = Online(Cost.of({1: 0.003, 8: 0.010}))
    policy = Deadline(8, 0.030, cost)
    running = lanes
    queue = Queue(1000, 10**9)
    model: Any = SimpleNamespace(
        policy=policy,
        queue=queue,
        lanes=SimpleNamespace(running=lambda now: running),
        contract=SimpleNamespace(wire_bytes=0),
        settings=Settings(p95=0.030),
        spare=None,
    )
    gate = Gate(model, Live(0.030))
    queue.waiting = waiting
    first = gate.ask(1, age)
    running = [(rows, so_far + wait) for rows, so_far in lanes]
    queue.waiting = waiting + more
    later = clock() + wait
    with patch("onbudget.serve.gate.clock", lambda: later):
        again = gate.ask(1, age)
        if first is not None and again is first:
            with pytest.raises(Shed):
                policy.admit(queue, running, 1, age, 0.0)


def test_a_batch_that_came_back_ends_what_is_remembered(tiles: Tiles) -> None:
    """It may have taken less time than was predicted: the policy is asked again."""

    async def test(protocol: Protocol, transport: Wire, door: Door, service: Service) -> None:
        assert service.model is not None
        service.model.queue.waiting = 3
        one = service.gate(1, 0.0)
        assert service.gate(1, 0.0) is one
        service._deliver(Batch([], "lost", 0.0))
        assert service.gate(1, 0.0) is not one
        service.model.queue.waiting = 0

    at_the_door(tiles, test)
