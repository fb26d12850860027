"""`onbudget load --clients`: connections that are open from the start and used in turn."""

from __future__ import annotations

import asyncio
import socket

import pytest

from onbudget.core.errors import TargetError
from onbudget.core.records import Outcome
from onbudget.prove import generator
from onbudget.prove.arrivals import constant
from tests.support.stubs import Serve, load, outcomes

pytestmark = pytest.mark.e2e


def test_clients_keep_their_connections_and_take_turns(serve: Serve) -> None:
    """With `clients` all are connected and each sends as often as any other; without, only those that are needed do."""
    run, plain = load(serve("number"), clients=8, duration=1.0), load(serve("number"), duration=1.0)
    turns = outcomes(run)

    assert run.ending.connections == len(turns) == 8
    assert max(turns.values()) - min(turns.values()) <= 3  # answers that come out of turn change it by a few
    assert run.header.clients == 8
    assert plain.ending.connections < 8
    assert run.header.hash != plain.header.hash


def test_clients_that_are_hung_up_on_come_back(serve: Serve) -> None:
    """The server closes each connection after two answers: all are answered, and whoever is hung up on connects."""
    run = load(serve("stale"), rate=20.0, clients=8, duration=1.0)

    assert outcomes(run) == {Outcome(200): len(run.hits)}
    assert 16 < len(run.hits) < 24  # so eight were closed, and the others' requests are too few to need eight again
    assert run.ending.connections >= 16


def test_clients_that_cannot_connect_are_one_sentence() -> None:
    """Nobody listens: a TargetError with the number that got in, before anything is sent."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    idle = generator.Generator(address, [b""], constant(10.0, 1.0), clients=200)

    with pytest.raises(TargetError, match=r"connection refused, with 0 of 200 clients connected \(--clients\)"):
        asyncio.run(idle.run())
