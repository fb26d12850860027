"""The door of the fast path: a refusal before the body is read, on a connection that stays."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace

from onbudget.core.queue import Group
from onbudget.serve.gate import CALM
from onbudget.serve.protocol import Protocol
from onbudget.serve.service import Service
from tests.support.door import Door, at_the_door, body_of
from tests.support.tiles import Tiles
from tests.support.transport import Wire
from tests.support.wire import request


def test_a_refusal_swallows_the_body_and_keeps_the_connection(tiles: Tiles) -> None:
    """429 with its reason and when to come back; the next request on the same connection is served."""

    async def test(protocol: Protocol, transport: Wire, door: Door, service: Service) -> None:
        body = body_of(tiles)
        protocol.data_received(request(body)[:-20])
        assert transport.written == b""  # its body is still on the way
        protocol.data_received(request(body)[-20:])
        assert transport.written.startswith(b"HTTP/1.1 429 ")
        assert b'"reason": "late"' in transport.written
        assert b'"retry_after_ms": 4' in transport.written
        assert b"retry-after: 1\r\n" in transport.written
        assert b"connection: close" not in transport.written
        door.shut = False
        transport.written = b""
        protocol.data_received(request(body))
        while not transport.written:
            await asyncio.sleep(0.001)
        assert transport.written.startswith(b"HTTP/1.1 200 ")

    at_the_door(tiles, test)


def test_who_asks_first_is_refused_first(tiles: Tiles) -> None:
    """`Expect: 100-continue` gets its 429 and no 100; so does a body too large to swallow."""

    async def test(protocol: Protocol, transport: Wire, door: Door, service: Service) -> None:
        protocol.data_received(request(b"", b"expect: 100-continue").replace(b"length: 0", b"length: 5000"))
        assert transport.written.startswith(b"HTTP/1.1 429 ")
        assert b"connection: close" in transport.written

    async def large(protocol: Protocol, transport: Wire, door: Door, service: Service) -> None:
        protocol.data_received(request(b"").replace(b"length: 0", b"length: 900000"))
        assert transport.written.startswith(b"HTTP/1.1 429 ")

    at_the_door(tiles, test)
    at_the_door(tiles, large)


def test_the_door_guesses_the_items_from_the_length(tiles: Tiles) -> None:
    """A body of three rows is asked for as three, before any of it is parsed; what waits is counted."""

    async def test(protocol: Protocol, transport: Wire, door: Door, service: Service) -> None:
        protocol.data_received(request(body_of(tiles, 3)))
        assert door.asked == [(0, 3)]

    at_the_door(tiles, test)


def test_the_door_knows_the_callers_deadline(tiles: Tiles) -> None:
    """`X-Deadline-Ms` is judged before the body is read; one that is no time gets 400, and the connection stays."""

    async def test(protocol: Protocol, transport: Wire, door: Door, service: Service) -> None:
        protocol.data_received(request(body_of(tiles), b"x-deadline-ms: 12.5"))
        assert door.within == [0.0125]
        assert transport.written.startswith(b"HTTP/1.1 429 ")
        transport.written, door.shut = b"", False
        protocol.data_received(request(body_of(tiles), b"x-deadline-ms: soon"))
        assert transport.written.startswith(b"HTTP/1.1 400 ")
        assert b"'soon' is not a number of milliseconds above 0" in transport.written
        assert b"connection: close" not in transport.written

    at_the_door(tiles, test)


def test_the_door_knows_the_callers_class(tiles: Tiles) -> None:
    """`X-Priority` is judged before the body is read; one that is no class gets 400, and the connection stays."""

    async def test(protocol: Protocol, transport: Wire, door: Door, service: Service) -> None:
        protocol.data_received(request(body_of(tiles), b"X-Priority: 1"))
        protocol.data_received(request(body_of(tiles)))
        assert door.classes == [1, 2]
        assert transport.written.startswith(b"HTTP/1.1 429 ")
        transport.written, door.shut = b"", False
        protocol.data_received(request(body_of(tiles), b"x-priority: high"))
        assert transport.written.startswith(b"HTTP/1.1 400 ")
        assert b"X-Priority: 'high' is not a whole number from 0 to 3" in transport.written
        assert b"connection: close" not in transport.written

    at_the_door(tiles, test)


def test_in_calm_a_whole_request_with_a_known_head_is_judged_once(tiles: Tiles) -> None:
    """With its body and not before; after any refusal, and for a body that is on the way, the door is asked first."""

    async def test(protocol: Protocol, transport: Wire, door: Door, service: Service) -> None:
        gate = service._gate
        assert gate is not None
        sent = request(body_of(tiles))

        async def asked(*reads: bytes) -> int:
            door.asked.clear()
            transport.written = b""
            for data in reads:
                protocol.data_received(data)
            while not transport.written:
                await asyncio.sleep(0.001)
            return len(door.asked)

        door.shut = False
        assert await asked(sent) == 2  # its head is new
        assert await asked(sent) == 1
        assert await asked(sent[:-5], sent[-5:]) == 2
        door.shut = True
        assert service.calm()
        assert await asked(sent) == 1
        assert transport.written.startswith(b"HTTP/1.1 429 ")
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


def test_one_timer_ends_a_wait_that_is_too_long(tiles: Tiles) -> None:
    """Half a body is 408 after --client-timeout, and an answered connection that stays silent is closed."""

    async def test(protocol: Protocol, transport: Wire, door: Door, service: Service) -> None:
        service.settings = replace(service.settings, client_timeout=0.05)
        protocol._look = 0.01
        protocol._timer.cancel()  # type: ignore[union-attr]  # armed for the old settings
        protocol._timer = None
        protocol.data_received(request(body_of(tiles))[:-20])
        while not transport.written:
            await asyncio.sleep(0.005)
        assert transport.written.startswith(b"HTTP/1.1 408 ")

    async def silent(protocol: Protocol, transport: Wire, door: Door, service: Service) -> None:
        protocol.timeout_keep_alive = 0.03  # type: ignore[assignment]  # whole seconds in uvicorn's eyes
        protocol._timer.cancel()  # type: ignore[union-attr]
        protocol._timer, protocol._look = None, 0.01
        protocol.data_received(request(body_of(tiles)))
        assert transport.written.startswith(b"HTTP/1.1 429 ")
        assert not transport.closed
        while not transport.closed:
            await asyncio.sleep(0.005)

    at_the_door(tiles, test)
    at_the_door(tiles, silent)


def test_an_answered_request_leaves_nothing_for_the_collector(tiles: Tiles) -> None:
    """No cycle holds a group, and so a body, once it was answered: passes over many of them took milliseconds."""

    async def test(protocol: Protocol, transport: Wire, door: Door, service: Service) -> None:
        door.shut = False
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                transport.written = b""
                protocol.data_received(request(body_of(tiles)))
                while not transport.written:
                    await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)  # until the lane has let go of its batch
            groups = [found for found in gc.get_objects() if type(found) is Group]
        finally:
            gc.enable()
        assert transport.written.startswith(b"HTTP/1.1 200 ")
        assert len(groups) <= 1  # the lane's last one

    at_the_door(tiles, test)
