"""The protocol without a socket: what must not be left behind when a connection ends."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path

import pytest
import uvicorn
from uvicorn.server import ServerState

from onbudget.serve.app import Front
from onbudget.serve.protocol import Protocol
from onbudget.serve.service import Service
from tests.support.transport import Wire


@pytest.mark.parametrize("end", [None, ConnectionResetError("reset by peer")])
def test_an_ended_connection_is_forgotten_at_once(end: Exception | None) -> None:
    """However it ended: no timer keeps a connection's memory until --keep-alive has passed (pain 18)."""

    async def go() -> None:
        service = Service(Path("nowhere.onnx"))  # answers `/predict` with 503: nothing is loaded
        service.state = "failed"
        config = uvicorn.Config(Front(service), ws="none", lifespan="off", log_config=None)
        config.load()
        kind = type("OneProtocol", (Protocol,), {"service": service})
        protocol = kind(config, ServerState(), {}, asyncio.get_running_loop())
        wire, kept = Wire(), weakref.ref(protocol)
        protocol.connection_made(wire)
        protocol.data_received(b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
        assert wire.written.startswith(b"HTTP/1.1 503")
        assert b"connection: close" not in wire.written
        protocol.connection_lost(end)
        del protocol
        gc.collect()
        assert kept() is None

    asyncio.run(go())
