"""Heads that came before pass the parser by, and nobody outside can tell."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.server import ServerState

from onbudget.serve import heads
from onbudget.serve.app import Front
from onbudget.serve.exchange import Head, Request, as_json
from onbudget.serve.heads import Heads, Known, Seen, look
from onbudget.serve.protocol import Protocol
from onbudget.serve.service import Service
from onbudget.serve.settings import Settings
from tests.support.transport import Wire


class Told:
    """A connection to a service without a model, whose answer is what it was asked; `later` holds answers back."""

    def __init__(self, later: bool = False) -> None:
        self.later = later
        self.asked: list[Request] = []
        self.due: list[Callable[[], None]] = []
        service = Service(Path("nowhere.onnx"), Settings(max_body=100))
        service.state = "failed"
        service.predict = self._predict  # type: ignore[method-assign,assignment]
        config = uvicorn.Config(Front(service), ws="none", lifespan="off", log_config=None)
        config.load()
        kind = type("OneProtocol", (Protocol,), {"service": service})
        self.heads: Heads = kind.heads
        self.connect = lambda: kind(config, ServerState(), {}, asyncio.get_running_loop())
        self.protocol = self.connect()
        self.wire = Wire()
        self.protocol.connection_made(self.wire)

    def _predict(self, request: Request, reply: Callable[..., None], *_: object) -> None:
        self.asked.append(request)
        told = {"body": request.body.decode("latin-1"), "top": request.head.query.decode()}
        answer = lambda: reply(as_json(200, told))  # noqa: E731
        self.due.append(answer) if self.later else answer()

    def unknown(self) -> None:
        """From now on only the parser knows anything."""
        self.heads.find = lambda data: None  # type: ignore[method-assign]


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


def post(body: bytes, *lines: bytes, path: bytes = b"/predict") -> bytes:
    head = [b"POST %b HTTP/1.1" % path, b"host: x", b"content-length: %d" % len(body), *lines]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


class Untouchable:
    """A parser that must not be fed."""

    def feed_data(self, data: bytes) -> None:
        raise AssertionError(f"the parser was fed {data!r}")


def test_a_known_head_passes_the_parser_by() -> None:
    """With another length, on another connection, and in pieces: the parser is not fed, the answer is the same."""

    async def test() -> None:
        told = Told()
        told.protocol.data_received(post(b"one"))
        first = told.wire.written
        protocol, wire = told.connect(), Wire()
        protocol.connection_made(wire)
        protocol.parser = Untouchable()
        protocol.data_received(post(b"one"))
        assert wire.written == first
        protocol.data_received(post(b"fifteen"))
        longer = post(b"sixteen, seventeen")
        for piece in (longer[:-10], longer[-10:-5], longer[-5:]):
            assert len(told.asked) == 3
            protocol.data_received(piece)
        protocol.data_received(post(b"") + post(b"two"))
        assert [request.body for request in told.asked] == [b"one"] * 2 + [
            b"fifteen",
            b"sixteen, seventeen",
            b"",
            b"two",
        ]
        assert all(request.head is told.asked[0].head for request in told.asked)

    run(test)


def test_a_known_heads_body_has_its_own_time_to_come() -> None:
    """As behind any other head: not what is left of the time that the connection had for its first one."""

    async def test() -> None:
        told = Told()
        told.protocol.data_received(post(b"one"))
        protocol, wire = told.connect(), Wire()
        protocol.connection_made(wire)
        protocol._due = time.monotonic() + 0.01
        protocol.data_received(post(b"one")[:-1])
        assert protocol._due > time.monotonic() + protocol.service.settings.client_timeout / 2

    run(test)


def test_what_is_pipelined_behind_a_known_head_waits_its_turn() -> None:
    """One read with a known head's request and another one: the second is answered second, by the parser's road."""

    async def test() -> None:
        told = Told()
        told.protocol.data_received(post(b"one"))
        told.later = True
        told.wire.written = b""
        told.protocol.data_received(post(b"two") + post(b"three"))
        assert [request.body for request in told.asked] == [b"one", b"two"]
        assert told.wire.written == b""
        told.due.pop()()
        for _ in range(10):
            await asyncio.sleep(0)
        assert [request.body for request in told.asked] == [b"one", b"two", b"three"]
        assert b'"two"' in told.wire.written
        told.due.pop()()
        for _ in range(10):
            await asyncio.sleep(0)
        assert told.wire.written.index(b'"two"') < told.wire.written.index(b'"three"')

    run(test)


UNUSUAL = {
    "expects": post(b"one", b"expect: 100-continue"),
    "leaves": post(b"one", b"connection: close"),
    "old": post(b"one").replace(b"HTTP/1.1", b"HTTP/1.0"),
    "chunked": b"POST /predict HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n",
    "another path": post(b"one", path=b"/predictor"),
    "folded": post(b"one", b"x-note: a\r\n b"),
    "bare lines": post(b"one").replace(b"host: x\r\n", b"host: x\n"),
    "no length": b"POST /predict HTTP/1.1\r\nhost: x\r\n\r\n",
    "zeros": post(b"one").replace(b"length: 3", b"length: 03"),
    "long": post(b"one", b"x-note: " + b"a" * heads.LONGEST),
}


@pytest.mark.parametrize("kind", UNUSUAL)
def test_an_unusual_head_is_not_learnt(kind: str) -> None:
    """Whatever the parser makes of it, it makes it anew each time."""

    async def test() -> None:
        told = Told()
        told.protocol.data_received(UNUSUAL[kind])
        assert not isinstance(told.heads.find(UNUSUAL[kind]), Known)

    run(test)


def test_a_head_is_only_learnt_from_all_of_its_lines() -> None:
    """A parser that joins lines, or ends a head at a bare empty one, has not read what lies before the whole one."""
    head = Head([(b"host", b"x"), (b"content-length", b"3")])
    for sent, learnt in (
        (post(b"one"), True),
        (post(b"one", b"x-note: a"), False),
        (b"POST /predict HTTP/1.1\r\ncontent-length: 3\r\nhost: x\n\nof its body\r\n\r\n", False),
        (post(b"four"), False),
    ):
        known, seen = Heads(), look(sent)
        assert seen is not None
        known.learn(seen, head, True)
        assert isinstance(known.find(sent), Known) == learnt


def test_a_known_head_inside_another_message_is_not_one() -> None:
    """A read that begins with it, while half a head or half a body is under way, belongs to that."""

    async def test() -> None:
        for half in (b"POST /predict HTTP/1.1\r\nx-note: ", post(b"a" * 90, b"x-note: 1")[:-85]):
            told = Told()
            told.protocol.data_received(post(b"one"))
            told.protocol.data_received(half)
            told.protocol.data_received(post(b"two"))
            heads = [request.head for request in told.asked]
            assert heads[1:] in ([], [heads[-1]])
            assert all(b"x-note" in head.values for head in heads[1:])

    run(test)


def test_a_body_over_the_limit_is_refused_at_a_known_head() -> None:
    """413 before its body has come; what follows is thrown away and the connection closes."""

    async def test() -> None:
        told = Told()
        told.protocol.data_received(post(b"one"))
        told.wire.written = b""
        told.protocol.data_received(post(b"a" * 101) + post(b"two"))
        assert told.wire.written.startswith(b"HTTP/1.1 413 ")
        assert b"connection: close" in told.wire.written
        assert told.wire.written.count(b"HTTP/1.1") == 1
        assert len(told.asked) == 1

        told = Told()
        told.protocol.data_received(post(b"one"))
        told.wire.written = b""
        told.protocol.data_received(2 * post(b"a" * 101))
        assert told.wire.written.count(b"HTTP/1.1") == 1

    run(test)


def test_heads_are_few() -> None:
    """Callers with a head of their own for each request: no more are kept than there is room for."""

    async def test() -> None:
        told = Told()
        for number in range(3 * heads.MOST):
            told.protocol.data_received(post(b"one", b"x-note: %d" % number))
            assert len(told.heads._known) <= heads.MOST
        assert len(told.asked) == 3 * heads.MOST

    run(test)


def test_what_is_not_a_head_is_not_looked_up() -> None:
    """Half a head, another method, another path; a whole one is told from its length's digits."""
    assert look(post(b"one")[:-10]) is None
    assert look(b"GET /health HTTP/1.1\r\ncontent-length: 3\r\n\r\n") is None
    assert look(b"OST " + post(b"one")) is None
    seen = look(post(b"one") + post(b"two"))
    assert seen == Seen(post(b"").replace(b"length: 0", b"length: "), 3, None, len(post(b"one")) - 3)
    for twice in (b"content-length: 3", b"content-length: 30"):
        assert look(post(b"one", twice)) is None
    assert look(post(b"one", b"x-request-id: a", b"x-request-id: a")) is None


def test_ids_and_traces_of_a_request_are_no_part_of_its_head() -> None:
    """An id and a trace of its own in each request: one head is learnt, and each caller gets its own id back."""

    async def test() -> None:
        told = Told()
        for number in range(5):
            told.wire.written = b""
            sent = post(b"one", b"X-Request-ID: id-%d" % number, b"traceparent: 00-%032x-%016x-01" % (number, number))
            told.protocol.data_received(sent)
            assert told.wire.written.count(b"x-request-id: id-%d\r\n" % number) == 1
            told.protocol.parser = Untouchable()
        assert len(told.heads._known) == 1
        told.wire.written = b""
        told.protocol.data_received(sent.replace(b"id-4", b"id-9"))
        assert b"x-request-id: id-9\r\n" in told.wire.written

    run(test)


REQUESTS = (
    post(b"one", b"x-request-id: 8"),
    post(b"one", b"x-request-id: 8 and a half"),
    post(b"one", b"x-request-id:"),
    post(b"one", b"x-request-id: 7", b"x-request-id: 8"),
    post(b"one", b"x-request-id: 7", b"traceparent: 1"),
    post(b"one", b"x-request-id: 9", b"traceparent: 2"),
    b"POST /predict HTTP/1.1\r\nx-note: ",
    post(b"one"),
    post(b"fifteen"),
    post(b""),
    post(b"one", b"x-request-id: 7"),
    post(b"one", path=b"/predict?top=3"),
    post(b"one", b"connection: keep-alive"),
    post(b"a" * 90),
    b"GET /ready HTTP/1.1\r\nhost: x\r\n\r\n",
    b"\r\n" + post(b"POST /predict HTTP/1.1\r\n\r\n"),
    post(b"one", b"upgrade: h2c", b"connection: upgrade"),
    *(sent for kind, sent in UNUSUAL.items() if kind != "another path"),  # FastAPI answers that, made in a thread
    post(b"a" * 101),
    post(b"one", b"content-length: 4"),
    b"POST /predict HTTP/9\r\n\r\n",
)


def _answers(known: bool, reads: list[bytes], later: bool) -> tuple[bytes, bool, list[bytes]]:
    """All that is written for these reads, whether the connection closed, and the bodies that came through."""
    result = (b"", False, [b""])

    async def go() -> None:
        nonlocal result
        told = Told(later)
        if not known:
            told.unknown()
        for data in reads:
            if told.wire.closed:
                break
            told.protocol.data_received(data)
            for _ in range(5):
                await asyncio.sleep(0)
            while told.due:
                told.due.pop(0)()
                for _ in range(5):
                    await asyncio.sleep(0)
        told.protocol.connection_lost(None)
        result = told.wire.written, told.wire.closed, [request.body for request in told.asked]

    with patch("onbudget.serve.protocol.LINGER", 60.0):
        run(go)
    return result


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=6),
    st.lists(st.integers(0, 700), max_size=6),
    st.booleans(),
)
def test_nobody_can_tell(sent: list[bytes], cuts: list[int], later: bool) -> None:
    """Whatever is sent, cut anywhere: every byte of the answers is what the parser alone would have made of it."""
    stream = b"".join(sent)
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    reads = [stream[a:b] for a, b in pairwise(places) if b > a]
    assert _answers(True, reads, later) == _answers(False, reads, later)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=8), st.booleans())
def test_nobody_can_tell_request_by_request(sent: list[bytes], later: bool) -> None:
    """The same where each read is a request, as nearly all are: here known heads are the rule."""
    assert _answers(True, sent, later) == _answers(False, sent, later)
