"""HTTP as it comes from strangers: in pieces, pipelined, too large, too slow, cut off. Raw sockets, real server."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator

import pytest

from tests.support.children import Child, Start
from tests.support.tiles import Tiles
from tests.support.wire import Wire, request

pytestmark = pytest.mark.e2e


@pytest.fixture
def server(start: Start, tiles: Tiles) -> Child:
    return start(tiles.bundle, "--client-timeout", "500ms", "--max-body", "100kB", "--max-items", "8")


def body_of(tiles: Tiles, count: int = 1) -> bytes:
    return json.dumps({"tiles": [base64.b64encode(t.tobytes()).decode() for t in tiles.some(count)]}).encode()


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    while Wire.opened:
        Wire.opened.pop().close()


def test_a_request_byte_by_byte(server: Child, tiles: Tiles) -> None:
    """A request that comes in many small pieces is answered like one that comes whole."""
    wire, data = Wire(server), request(body_of(tiles))
    for i in range(0, len(data), 97):
        wire.send(data[i : i + 97])
    status, _, body = wire.answer()
    assert status == 200
    assert len(json.loads(body)["predictions"]) == 1


def test_pipelined_requests_are_answered_in_order(server: Child, tiles: Tiles) -> None:
    """Three requests in one segment, a slow kind between two fast ones: three answers, in their order."""
    health = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
    wire = Wire(server).send(request(body_of(tiles, 3)) + health + request(body_of(tiles, 2)) + request(b"{"))
    assert len(json.loads(wire.answer()[2])["predictions"]) == 3
    assert "classes" in json.loads(wire.answer()[2])
    assert len(json.loads(wire.answer()[2])["predictions"]) == 2
    assert wire.answer()[0] == 400


def test_a_chunked_body(server: Child, tiles: Tiles) -> None:
    """Transfer-Encoding: chunked works, and its limit is counted as it comes."""
    body = body_of(tiles)
    head = b"POST /predict HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in (body[:50], body[50:]))
    wire = Wire(server).send(head + chunks + b"0\r\n\r\n")
    assert wire.answer()[0] == 200
    large = b"%x\r\n%s\r\n" % (70_000, b" " * 70_000)
    status, headers, detail = Wire(server).send(head + large * 2).answer()
    assert status == 413
    assert b"--max-body" in detail
    assert headers[b"connection"] == b"close"


def test_http_10_and_connection_close(server: Child, tiles: Tiles) -> None:
    """HTTP/1.0 and `Connection: close` get their answer and then the connection ends."""
    for data in (request(body_of(tiles), version=b"1.0"), request(body_of(tiles), b"connection: close")):
        wire = Wire(server).send(data)
        status, headers, _ = wire.answer()
        assert (status, headers[b"connection"]) == (200, b"close")
        assert wire.closed()


def test_expect_100_continue(server: Child, tiles: Tiles) -> None:
    """A client that asks first is told to go on; a body that is too large is refused before it is sent."""
    body = body_of(tiles)
    head, _, _ = request(body, b"expect: 100-continue").partition(b"\r\n\r\n")
    wire = Wire(server).send(head + b"\r\n\r\n")
    assert wire.answer()[0] == 100
    assert wire.send(body).answer()[0] == 200
    too_large = b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: 100001\r\nexpect: 100-continue\r\n\r\n"
    assert Wire(server).send(too_large).answer()[0] == 413


def test_a_refused_large_body_still_reads_its_refusal(server: Child) -> None:
    """A sender that goes on sending after the 413 reads it, instead of a connection reset."""
    wire = Wire(server).send(b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: 2000000\r\n\r\n")
    for _ in range(20):
        wire.send(b"x" * 100_000)
    status, _, detail = wire.answer()
    assert status == 413
    assert b"the limit is 100 kB (--max-body)" in detail
    assert wire.closed()


def test_slow_clients_hold_no_place(server: Child, tiles: Tiles) -> None:
    """No head, half a head, half a body: each connection is ended after --client-timeout, the last with a 408."""
    body = body_of(tiles)
    silent, half_head, half_body = Wire(server), Wire(server), Wire(server)
    half_head.send(b"POST /predict HTTP/1.1\r\nhost:")
    half_body.send(request(body)[:-10])
    status, _, detail = half_body.answer()
    assert status == 408
    assert b"--client-timeout" in detail
    assert half_head.answer()[0] == 408
    assert silent.closed()
    assert half_head.closed()
    assert half_body.closed()
    alive = Wire(server).send(request(body))
    assert alive.answer()[0] == 200


def test_a_kept_connection_may_pause_between_requests(server: Child, tiles: Tiles) -> None:
    """The time for a head starts with its first byte, not with the last answer."""
    wire = Wire(server).send(request(body_of(tiles)))
    assert wire.answer()[0] == 200
    time.sleep(0.8)  # longer than --client-timeout
    assert wire.send(request(body_of(tiles))).answer()[0] == 200


def test_an_endless_head_is_refused(server: Child) -> None:
    """Headers beyond 64 KiB are 431."""
    wire = Wire(server).send(
        b"POST /predict HTTP/1.1\r\n" + b"".join(b"x-%d: %s\r\n" % (i, b"y" * 1000) for i in range(70))
    )
    assert wire.answer()[0] == 431


@pytest.mark.parametrize(
    "junk",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"POST /predict\r\n\r\n",
        b"POST /predict HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
    ],
    ids=["tls", "http09", "negative"],
)
def test_junk_is_refused_and_the_server_lives(server: Child, tiles: Tiles, junk: bytes) -> None:
    """What is not HTTP gets a 400 or a closed connection, and the next caller is served."""
    Wire(server).send(junk).closed()
    assert Wire(server).send(request(body_of(tiles))).answer()[0] == 200
    assert "Traceback" not in server.log


def test_other_routes_have_the_same_limits(server: Child, tiles: Tiles) -> None:
    """The ASGI side (what is pipelined) refuses bodies that are too large or too slow as well."""
    first = request(body_of(tiles))
    status, _, detail = _second(Wire(server).send(first + request(b" " * 100_001)))
    assert status == 413
    assert b"--max-body" in detail
    status, _, detail = _second(Wire(server).send(first + request(body_of(tiles))[:-10]))
    assert status == 408


def _second(wire: Wire) -> tuple[int, dict[bytes, bytes], bytes]:
    assert wire.answer()[0] == 200
    return wire.answer()
