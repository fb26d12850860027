"""A server behind a door that a test opens and shuts, on a connection without a socket."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from onbudget.core.errors import Shed
from onbudget.core.late import Spare
from onbudget.core.policy import Entry, Greedy
from onbudget.core.priority import NORMAL
from onbudget.core.queue import Queue
from onbudget.serve.app import Front
from onbudget.serve.protocol import Protocol
from onbudget.serve.service import Service
from onbudget.serve.settings import Settings
from tests.support.tiles import Tiles
from tests.support.transport import Wire


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


def at_the_door(tiles: Tiles, test: Callable[[Protocol, Wire, Door, Service], Awaitable[None]]) -> None:
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
        transport = Wire()
        protocol.connection_made(transport)
        await test(protocol, transport, door, service)
        protocol.connection_lost(None)
        await service.stop()

    asyncio.run(asyncio.wait_for(go(), 30))


def body_of(tiles: Tiles, count: int = 1) -> bytes:
    return json.dumps({"tiles": [b64encode(t.tobytes()).decode() for t in tiles.some(count)]}).encode()
