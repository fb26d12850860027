"""The door of the fast path: a refusal before the body is read, on a connection that stays."""

from __future__ import annotations

import asyncio
import gc
import json
from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import replace
from time import monotonic as clock
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.server import ServerState

from onbudget.core.cost import Cost, Online
from onbudget.core.deadline import Deadline
from onbudget.core.errors import Shed
from onbudget.core.late import Spare
from onbudget.core.policy import Entry, Greedy
from onbudget.core.priority import NORMAL
from onbudget.core.queue import Group, Queue
from onbudget.serve.app import Front
from onbudget.serve.exchange import Head
from onbudget.serve.gate import CALM, Gate
from onbudget.serve.lanes import Batch
from onbudget.serve.live import Live
from onbudget.serve.protocol import Protocol
from onbudget.serve.service import Service
from onbudget.serve.settings import Settings
from tests.support.tiles import Tiles


class Door:
    """A policy that refuses while it is shut, keeps what it was asked, and is greedy inside."""

    name = "door"
    max_batch = 4
    spare: Spare | None = None

    def __init__(self) -> None:
        self.shut = True
        self.asked: list[tuple[int, int]] = []
        self.within: list[float | None] = []
        self.classes: list[int] = []
        self.next_batch = Greedy(self.max_batch).next_batch

    def admit(
        self,
        queue: Queue,
        running: Any,
        items: int,
        age: float,
        now: float,
        within: float | None = None,
        priority: int = NORMAL,
        look: bool = False,
    ) -> Entry:
        self.asked.append((queue.waiting, items))
        self.within.append(within)
        self.classes.append(priority)
        if self.shut:
            raise Shed("the answer would come late", reason="late", retry_after_s=0.004)
        return Entry.WAITS


class Transport:
    """What a protocol writes."""

    def __init__(self) -> None:
        self.out = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        self.out += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def request(body: bytes, *lines: bytes) -> bytes:
    head = [b"POST /predict HTTP/1.1", b"host: x", b"content-length: %d" % len(body), *lines]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def at_the_door(tiles: Tiles, test: Callable[[Protocol, Transport, Door, Service], Awaitable[None]]) -> None:
    async def go() -> None:
        service = Service(tiles.bundle, Settings(lanes=1))
        await service.start()
        assert service.model is not None
        door = Door()
        service.model.policy = door
        config = uvicorn.Config(Front(service), http=Protocol, ws="none", log_config=None, access_log=False)
        config.load()
        kind = type("OneProtocol", (Protocol,), {"service": service})
        protocol = kind(config, ServerState(), {}, _loop=asyncio.get_running_loop())
        transport = Transport()
        protocol.connection_made(transport)
        await test(protocol, transport, door, service)
        protocol.connection_lost(None)
        await service.stop()

    asyncio.run(asyncio.wait_for(go(), 30))


def body_of(tiles: Tiles, count: int = 1) -> bytes:
    return json.dumps({"tiles": [b64encode(t.tobytes()).decode() for t in tiles.some(count)]}).encode()


def test_a_refusal_swallows_the_body_and_keeps_the_connection(tiles: Tiles) -> None:
    """429 with its reason and when to come back; the next request on the same connection is served."""

    async def test(protocol: Protocol, transport: Transport, door: Door, service: Service) -> None:
        body = body_of(tiles)
        protocol.data_received(request(body)[:-20])
        assert transport.out == b""  # its body is still on the way
        protocol.data_received(request(body)[-20:])
        assert transport.out.startswith(b"HTTP/1.1 429 ")
        assert b'"reason": "late"' in transport.out
        assert b'"retry_after_ms": 4' in transport.out
        assert b"retry-after: 1\r\n" in transport.out
        assert b"connection: close" not in transport.out
        door.shut = False
        transport.out = b""
        protocol.data_received(request(body))
        while not transport.out:
            await asyncio.sleep(0.001)
        assert transport.out.startswith(b"HTTP/1.1 200 ")

    at_the_door(tiles, test)


def test_who_asks_first_is_refused_first(tiles: Tiles) -> None:
    """`Expect: 100-continue` gets its 429 and no 100; so does a body too large to swallow."""

    async def test(protocol: Protocol, transport: Transport, door: Door, service: Service) -> None:
        protocol.data_received(request(b"", b"expect: 100-continue").replace(b"length: 0", b"length: 5000"))
        assert transport.out.startswith(b"HTTP/1.1 429 ")
        assert b"connection: close" in transport.out

    async def large(protocol: Protocol, transport: Transport, door: Door, service: Service) -> None:
        protocol.data_received(request(b"").replace(b"length: 0", b"length: 900000"))
        assert transport.out.startswith(b"HTTP/1.1 429 ")

    at_the_door(tiles, test)
    at_the_door(tiles, large)


def test_the_door_guesses_the_items_from_the_length(tiles: Tiles) -> None:
    """A body of three rows is asked for as three, before any of it is parsed; what waits is counted."""

    async def test(protocol: Protocol, transport: Transport, door: Door, service: Service) -> None:
        protocol.data_received(request(body_of(tiles, 3)))
        assert door.asked == [(0, 3)]

    at_the_door(tiles, test)


def test_the_door_knows_the_callers_deadline(tiles: Tiles) -> None:
    """`X-Deadline-Ms` is judged before the body is read; one that is no time gets 400, and the connection stays."""

    async def test(protocol: Protocol, transport: Transport, door: Door, service: Service) -> None:
        protocol.data_received(request(body_of(tiles), b"x-deadline-ms: 12.5"))
        assert door.within == [0.0125]
        assert transport.out.startswith(b"HTTP/1.1 429 ")
        transport.out, door.shut = b"", False
        protocol.data_received(request(body_of(tiles), b"x-deadline-ms: soon"))
        assert transport.out.startswith(b"HTTP/1.1 400 ")
        assert b"'soon' is not a number of milliseconds above 0" in transport.out
        assert b"connection: close" not in transport.out

    at_the_door(tiles, test)


def test_the_door_knows_the_callers_class(tiles: Tiles) -> None:
    """`X-Priority` is judged before the body is read; one that is no class gets 400, and the connection stays."""

    async def test(protocol: Protocol, transport: Transport, door: Door, service: Service) -> None:
        protocol.data_received(request(body_of(tiles), b"X-Priority: 1"))
        protocol.data_received(request(body_of(tiles)))
        assert door.classes == [1, 2]
        assert transport.out.startswith(b"HTTP/1.1 429 ")
        transport.out, door.shut = b"", False
        protocol.data_received(request(body_of(tiles), b"x-priority: high"))
        assert transport.out.startswith(b"HTTP/1.1 400 ")
        assert b"X-Priority: 'high' is not a whole number from 0 to 3" in transport.out
        assert b"connection: close" not in transport.out

    at_the_door(tiles, test)


def test_in_calm_a_whole_request_with_a_known_head_is_judged_once(tiles: Tiles) -> None:
    """With its body and not before; after any refusal, and for a body that is on the way, the door is asked first."""

    async def test(protocol: Protocol, transport: Transport, door: Door, service: Service) -> None:
        gate = service._gate
        assert gate is not None
        sent = request(body_of(tiles))

        async def asked(*reads: bytes) -> int:
            door.asked.clear()
            transport.out = b""
            for data in reads:
                protocol.data_received(data)
            while not transport.out:
                await asyncio.sleep(0.001)
            return len(door.asked)

        door.shut = False
        assert await asked(sent) == 2  # its head is new
        assert await asked(sent) == 1
        assert await asked(sent[:-5], sent[-5:]) == 2
        door.shut = True
        assert service.calm()
        assert await asked(sent) == 1
        assert transport.out.startswith(b"HTTP/1.1 429 ")
        assert not service.calm()  # it was refused with its body
        door.shut = False
        assert await asked(sent) == 2
        gate.refused -= CALM
        assert await asked(sent) == 1
        door.shut = True
        service.gate(1, 0.0)
        assert not service.calm()
        assert service.model is not None
        service.model.queue.waiting = 2
        one = service.gate(1, 0.0)
        gate.refused -= CALM
        assert service.calm()
        assert service.gate(1, 0.0) is one
        assert not service.calm()  # a refusal that is remembered is one
        service.model.queue.waiting = 0

    at_the_door(tiles, test)


def test_each_class_has_its_own_remembered_refusal(tiles: Tiles) -> None:
    """What the usual class was told is not told to the most urgent one, behind as many or behind fewer."""

    async def test(protocol: Protocol, transport: Transport, door: Door, service: Service) -> None:
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

    async def test(protocol: Protocol, transport: Transport, door: Door, service: Service) -> None:
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

    async def test(protocol: Protocol, transport: Transport, door: Door, service: Service) -> None:
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

    async def test(protocol: Protocol, transport: Transport, door: Door, service: Service) -> None:
        assert service.model is not None
        service.model.queue.waiting = 3
        body = body_of(tiles)
        protocol.server_state.default_headers = [(b"date", b"then")]
        protocol.data_received(request(body, b"x-request-id: one"))
        protocol.server_state.default_headers = [(b"date", b"now")]
        protocol.data_received(request(body, b"x-request-id: two"))
        protocol.data_received(request(body, b"connection: close"))
        first, second, third = transport.out.split(b"HTTP/1.1 429 ")[1:]
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


def test_one_timer_ends_a_wait_that_is_too_long(tiles: Tiles) -> None:
    """Half a body is 408 after --client-timeout, and an answered connection that stays silent is closed."""

    async def test(protocol: Protocol, transport: Transport, door: Door, service: Service) -> None:
        service.settings = replace(service.settings, client_timeout=0.05)
        protocol._look = 0.01
        protocol._timer.cancel()  # type: ignore[union-attr]  # armed for the old settings
        protocol._timer = None
        protocol.data_received(request(body_of(tiles))[:-20])
        while not transport.out:
            await asyncio.sleep(0.005)
        assert transport.out.startswith(b"HTTP/1.1 408 ")

    async def silent(protocol: Protocol, transport: Transport, door: Door, service: Service) -> None:
        protocol.timeout_keep_alive = 0.03  # type: ignore[assignment]  # whole seconds in uvicorn's eyes
        protocol._timer.cancel()  # type: ignore[union-attr]
        protocol._timer, protocol._look = None, 0.01
        protocol.data_received(request(body_of(tiles)))
        assert transport.out.startswith(b"HTTP/1.1 429 ")
        assert not transport.closed
        while not transport.closed:
            await asyncio.sleep(0.005)

    at_the_door(tiles, test)
    at_the_door(tiles, silent)


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

    async def test(protocol: Protocol, transport: Transport, door: Door, service: Service) -> None:
        assert service.model is not None
        service.model.queue.waiting = 3
        one = service.gate(1, 0.0)
        assert service.gate(1, 0.0) is one
        service._deliver(Batch([], "lost", 0.0))
        assert service.gate(1, 0.0) is not one
        service.model.queue.waiting = 0

    at_the_door(tiles, test)


def test_an_answered_request_leaves_nothing_for_the_collector(tiles: Tiles) -> None:
    """No cycle holds a group, and so a body, once it was answered: passes over many of them took milliseconds."""

    async def test(protocol: Protocol, transport: Transport, door: Door, service: Service) -> None:
        door.shut = False
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                transport.out = b""
                protocol.data_received(request(body_of(tiles)))
                while not transport.out:
                    await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)  # until the lane has let go of its batch
            groups = [found for found in gc.get_objects() if type(found) is Group]
        finally:
            gc.enable()
        assert transport.out.startswith(b"HTTP/1.1 200 ")
        assert len(groups) <= 1  # the lane's last one

    at_the_door(tiles, test)
