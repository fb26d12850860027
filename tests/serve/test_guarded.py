"""The protocol with API keys and other origins: who gets past the head, known or not."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvicorn
from uvicorn.server import ServerState

from onbudget.serve.access import Access
from onbudget.serve.app import Front
from onbudget.serve.cors import Origins
from onbudget.serve.door import Door
from onbudget.serve.exchange import Request, Response, as_json
from onbudget.serve.guarded import Guarded
from onbudget.serve.heads import Heads, Known
from onbudget.serve.service import Service
from onbudget.serve.settings import Settings
from tests.support.transport import Wire

ONE, TWO = b"first-key-of-the-test", b"second-key-of-the-test"
APP = b"https://app.example.com"


class Server:
    """A service without a model that answers what it was asked; `fed` counts what its parsers got to read."""

    def __init__(self, access: Access | None = None, origins: Origins | None = None) -> None:
        self.asked: list[Request] = []
        self.counted: list[str] = []
        service = Service(Path("nowhere.onnx"), Settings(max_body=100_000))
        service.state = "failed"
        service.predict = self._predict  # type: ignore[method-assign,assignment]
        service.count = lambda outcome, since=None: self.counted.append(outcome)  # type: ignore[method-assign]
        config = uvicorn.Config(Door(Front(service), service, access, origins), ws="none", lifespan="off")  # type: ignore[arg-type]
        config.log_config = None
        config.load()
        kind = type("OneProtocol", (Guarded,), {"service": service, "access": access, "origins": origins})
        self.heads: Heads = kind.heads
        self._connect = lambda: kind(config, ServerState(), {}, asyncio.get_running_loop())

    def _predict(self, request: Request, reply: Callable[[Response], None], *_: object) -> None:
        self.asked.append(request)
        reply(as_json(200, {"body": request.body.decode("latin-1")}))

    def send(self, *pieces: bytes) -> Wire:
        """On a new connection → what was written there at once."""
        protocol, wire = self._connect(), Wire()
        protocol.connection_made(wire)
        for piece in pieces:
            protocol.data_received(piece)
        return wire


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


def post(*lines: bytes, body: bytes = b"{}") -> bytes:
    head = [b"POST /predict HTTP/1.1", b"host: x", b"content-length: %d" % len(body), *lines]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def bearer(key: bytes) -> bytes:
    return b"Authorization: Bearer " + key


def keys(*some: bytes) -> Access:
    return Access(None, b" ".join(some).decode())


def status(wire: Wire) -> int:
    return int(wire.written.split()[1])


WRONG = {
    "none": (),
    "wrong": (bearer(b"x" * len(ONE)),),
    "longer": (bearer(ONE + b"x"),),
    "shorter": (bearer(ONE[:-1]),),
    "basic": (b"authorization: Basic " + ONE,),
    "bare": (b"authorization: " + ONE,),
    "cookie": (b"cookie: x-api-key=" + ONE,),
    "empty": (bearer(b""),),
    "behind": (b"x-note: a b", b"x-api-keys: " + ONE),
    "case": (bearer(ONE.upper()),),
}


@pytest.mark.parametrize("lines", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("shown", [bearer, lambda key: b"x-api-key: " + key], ids=["bearer", "header"])
def test_a_learnt_head_helps_only_who_may_ask(lines: tuple[bytes, ...], shown: Callable[[bytes], bytes]) -> None:
    """Heads with a key are learnt; the same head with a wrong key, or none, is 401 before and after."""

    async def test() -> None:
        server = Server(keys(ONE, TWO))
        assert status(server.send(post(*lines))) == 401
        assert [status(server.send(post(shown(ONE)))) for _ in range(3)] == [200] * 3
        assert len(server.heads._known) == 1
        assert status(server.send(post(*lines))) == 401
        assert len(server.asked) == 3
        assert server.counted == ["unauthorized"] * 2
        assert len(server.heads._known) == 1  # nobody without a key fills it

    run(test)


def test_a_known_head_is_judged_by_its_own_key() -> None:
    """Learnt from one caller, found for the next whose key is another, and no longer once that one is not valid."""

    async def test() -> None:
        access = keys(ONE, TWO)
        server = Server(access)
        assert status(server.send(post(bearer(ONE)))) == 200
        found = server.heads.find(post(bearer(TWO)))
        assert isinstance(found, Known)
        assert found.end == len(post(bearer(TWO), body=b""))  # a key of another length
        assert status(server.send(post(bearer(TWO), body=b"abc"))) == 200
        assert server.asked[-1].body == b"abc"
        access._told = TWO.decode()
        access.load()
        assert server.heads.find(post(bearer(ONE))) is None
        assert status(server.send(post(bearer(ONE)))) == 401
        assert status(server.send(post(bearer(TWO)))) == 200

    run(test)


def test_no_key_lies_in_what_is_known() -> None:
    """Keys are never compared by their bytes, because no head keeps any in what it is found by."""

    async def test() -> None:
        server = Server(keys(ONE))
        for _ in range(2):
            assert status(server.send(post(bearer(ONE)))) == 200
        assert len(server.heads._known) == 1
        assert ONE not in b"".join(server.heads._known) + server.heads._last

    run(test)


@pytest.mark.parametrize(
    "lines",
    [
        (bearer(TWO), b"x-api-key: " + ONE),
        (bearer(b"x"), bearer(ONE)),
        (b"authorization:  bearer  " + ONE,),
        (b"x-api-key: " + ONE, b" folded"),
    ],
)
def test_unusual_heads_are_left_to_the_parser(lines: tuple[bytes, ...]) -> None:
    """Two keys, two lines, two spaces, a fold: the answer is the parser's each time, and nothing is known."""

    async def test() -> None:
        server = Server(keys(ONE))
        first, second = server.send(post(*lines)), server.send(post(*lines))
        assert first.written == second.written
        assert not isinstance(server.heads.find(post(*lines)), Known)

    run(test)


@pytest.mark.parametrize("size", [2, 90_000, 1_000_000])
def test_who_has_no_key_is_refused_at_the_head(size: int) -> None:
    """Before a byte of the body came, also where it would be too large, and the connection is not kept."""

    async def test() -> None:
        server = Server(keys(ONE))
        head = post(body=bytes(size)).partition(b"\0")[0]
        wire = server.send(head)
        assert status(wire) == 401
        assert b'www-authenticate: Bearer realm="onbudget"\r\n' in wire.written
        assert b"connection: close\r\n" in wire.written
        once = server.send(head, bytes(size), post(bearer(ONE)))  # nothing behind it is read either
        assert once.written.count(b"HTTP/1.1") == 1
        assert server.asked == []

    run(test)


def test_a_packed_body_needs_a_key_too() -> None:
    """What goes to the app because it is packed is judged at its head like the rest."""

    async def test() -> None:
        server = Server(keys(ONE))
        assert status(server.send(post(b"content-encoding: gzip"))) == 401

    run(test)


def test_pipelined_requests_are_judged_one_by_one() -> None:
    """A right key opens its own request, and not the next one on the connection."""

    async def test() -> None:
        server = Server(keys(ONE))
        wire = server.send(post(bearer(ONE)) + post(bearer(ONE)) + post() + post(bearer(ONE)))
        assert re.findall(rb"HTTP/1.1 (\d+)", wire.written) == [b"200", b"200", b"401"]
        assert len(server.asked) == 2

    run(test)


def test_the_fast_path_names_the_origin() -> None:
    """Known head or not, answer or refusal: the origin that may call is named, another one not, and both vary."""

    async def test() -> None:
        server = Server(keys(ONE), Origins((APP.decode(),)))
        for _ in range(2):
            for origin, named in ((APP, True), (APP + b".evil", False), (None, False)):
                lines = (b"origin: " + origin,) if origin else ()
                for wire in (server.send(post(bearer(ONE), *lines)), server.send(post(*lines))):
                    assert (b"access-control-allow-origin: " + APP + b"\r\n" in wire.written) is named
                    assert wire.written.count(b"access-control-allow-origin") == named
                    assert wire.written.count(b"vary: origin\r\n") == 1
        assert len(server.asked) == 6

    run(test)


def test_with_origins_alone_heads_are_known_as_ever() -> None:
    """Without keys there is no key to look for: the usual memory serves."""

    async def test() -> None:
        server = Server(None, Origins((APP.decode(),)))
        assert type(server.heads) is Heads
        assert status(server.send(post(b"origin: " + APP))) == 200
        assert isinstance(server.heads.find(post(b"origin: " + APP)), Known)

    run(test)
