"""prove.client: one connection, one request at a time, exactly one end for each."""

from __future__ import annotations

import asyncio
import errno

import pytest

from onbudget.core.errors import UsageError
from onbudget.prove.client import (
    CLOSED_AMID,
    CLOSED_BEFORE,
    GARBLED,
    Answer,
    Connection,
    Target,
    parse_target,
    word_for,
)

BODY = b'{"predictions":[{"label":"sea"}]}'
LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 33\r\n\r\n" + BODY
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n"
    + BODY[:7]
    + b"\r\n1a\r\n"
    + BODY[7:]
    + b"\r\n0\r\n\r\n"
)


class Wire(asyncio.Transport):
    """A transport that remembers what was done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.aborted = False

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        self.sent.append(data)

    def abort(self) -> None:
        self.aborted = True


class Log:
    """An owner that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def opened(self, connection: Connection) -> None:
        self.told.append(("opened",))

    def answered(self, connection: Connection, hit: int, arrived: float) -> None:
        self.told.append(("answered", hit, connection.status, connection.body, connection.closing))

    def lost(self, connection: Connection, hit: int, word: str) -> None:
        self.told.append(("lost", hit, word))


def opened(keep: bool = True) -> tuple[Connection, Wire, Log]:
    """A connection with request 7 under way."""
    log, wire = Log(), Wire()
    connection = Connection(log, keep)
    connection.connection_made(wire)
    assert log.told == [("opened",)]
    log.told.clear()
    connection.send(7, b"POST")
    assert wire.sent == [b"POST"]
    return connection, wire, log


# answer → what it says, and whether the connection can be used again
WHOLE = [
    (LENGTH, 200, BODY, True),
    (CHUNKED, 200, BODY, True),
    (LENGTH.replace(b"Content-Length", b"cOnTent-length"), 200, BODY, True),
    (LENGTH.replace(b"200 OK\r\n", b"200 OK\r\nConnection: close\r\n"), 200, BODY, False),
    (LENGTH.replace(b"HTTP/1.1", b"HTTP/1.0"), 200, BODY, False),
    (LENGTH.replace(b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n"), 200, BODY, True),
    (LENGTH.replace(b"200 OK", b"429 Too Many Requests"), 429, BODY, True),
    (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    (b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", 500, b"", True),
    (b"HTTP/1.1 100 Continue\r\n\r\n" + LENGTH, 200, BODY, True),
    (b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + CHUNKED, 200, BODY, True),
]


@pytest.mark.parametrize(("raw", "status", "body", "reusable"), WHOLE)
@pytest.mark.parametrize("step", [10_000, 1, 7])
def test_an_answer_is_told_once_however_it_arrives(
    raw: bytes, status: int, body: bytes, reusable: bool, step: int
) -> None:
    """Whole, byte by byte, or in sevens: one answer, at its last byte and not before; closing is the server's wish."""
    connection, wire, log = opened()
    for at in range(0, len(raw), step):
        assert log.told == []
        connection.data_received(raw[at : at + step])

    assert log.told == [("answered", 7, status, body, not reusable)]
    assert (connection.hit, connection.used, wire.aborted) == (-1, 1, not reusable)


def test_a_connection_is_used_again() -> None:
    """Three requests, three answers, in their order."""
    connection, _, log = opened()
    connection.data_received(LENGTH)
    for hit in (8, 9):
        connection.send(hit, b"POST")
        connection.data_received(CHUNKED)

    assert [told[:3] for told in log.told] == [("answered", hit, 200) for hit in (7, 8, 9)]
    assert connection.used == 3


def test_bodies_of_good_answers_are_not_kept_unless_asked_for() -> None:
    """A load test does not hold a million predictions; what a refusal says is kept."""
    connection, _, log = opened(keep=False)
    connection.data_received(LENGTH)
    connection.send(8, b"POST")
    connection.data_received(LENGTH.replace(b"200 OK", b"503 Not Ready"))

    assert [told[3] for told in log.told] == [b"", BODY]


def test_of_a_huge_error_page_only_the_beginning_is_kept() -> None:
    """A megabyte of traceback is not a megabyte a request."""
    connection, _, log = opened()
    page = b"x" * 1_000_000
    connection.data_received(b"HTTP/1.1 500 Oops\r\nContent-Length: 1000000\r\n\r\n" + page)

    assert log.told[0][:3] == ("answered", 7, 500)
    assert len(connection.body) <= 2 * 65536


def test_an_answer_without_a_length_ends_when_the_server_closes() -> None:
    """A clean close is its end; it is whole."""
    connection, _, log = opened()
    connection.data_received(b"HTTP/1.1 200 OK\r\n\r\n" + BODY)
    assert log.told == []
    connection.eof_received()
    connection.connection_lost(None)

    assert log.told == [("answered", 7, 200, BODY, True), ("lost", -1, CLOSED_AMID)]


# what had come, how it ended → the word for it
CUT = [
    (b"", None, CLOSED_BEFORE),
    (b"HTTP/1.1 2", None, CLOSED_AMID),
    (LENGTH[:-1], None, CLOSED_AMID),
    (CHUNKED[:-3], None, CLOSED_AMID),
    (b"HTTP/1.1 200 OK\r\n", None, CLOSED_AMID),
    (b"HTTP/1.1 100 Continue\r\n\r\n", None, CLOSED_AMID),
    (b"", ConnectionResetError(errno.ECONNRESET, "reset"), "connection reset"),
    (LENGTH[:-1], ConnectionResetError(errno.ECONNRESET, "reset"), "connection reset"),
    (b"HTTP/1.1 200 OK\r\n\r\nhal", ConnectionResetError(errno.ECONNRESET, "reset"), "connection reset"),
]


@pytest.mark.parametrize(("came", "error", "word"), CUT)
def test_a_close_before_the_end_is_an_error(came: bytes, error: Exception | None, word: str) -> None:
    """Whatever had come of the answer, it is not one."""
    connection, _, log = opened()
    if came:
        connection.data_received(came)
    connection.connection_lost(error)

    assert log.told == [("lost", 7, word)]
    assert connection.closing


@pytest.mark.parametrize(
    "raw", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 banana\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n"]
)
def test_what_is_not_http_ends_the_connection(raw: bytes) -> None:
    """It is aborted at once, and lost with the right word when the transport says so."""
    connection, wire, log = opened()
    connection.data_received(raw)
    assert wire.aborted
    connection.connection_lost(None)

    assert log.told == [("lost", 7, GARBLED)]


def test_bytes_that_nobody_asked_for_end_the_connection() -> None:
    """An idle connection that talks cannot be trusted with the next request."""
    connection, wire, log = opened()
    connection.data_received(LENGTH)
    connection.data_received(LENGTH)

    assert wire.aborted
    assert len(log.told) == 1


def test_a_second_answer_in_the_same_bytes_is_not_taken_for_the_next_requests() -> None:
    """One answer is told, and the connection is not used again."""
    connection, wire, log = opened()
    connection.data_received(LENGTH + LENGTH.replace(b"200 OK", b"500 Oops"))

    assert log.told == [("answered", 7, 200, BODY, True)]
    assert wire.aborted


def test_giving_up_says_why_and_never_counts_as_an_answer() -> None:
    """A request whose answer ends with the connection, given up amid it: lost, not answered."""
    connection, wire, log = opened()
    connection.data_received(b"HTTP/1.1 200 OK\r\n\r\nhal")
    connection.abort("timed out")
    connection.connection_lost(None)

    assert wire.aborted
    assert log.told == [("lost", 7, "timed out")]


@pytest.mark.parametrize(
    ("code", "word"),
    [
        (errno.ECONNREFUSED, "connection refused"),
        (errno.EPIPE, "connection reset"),
        (errno.EMFILE, "no file descriptor left here"),
        (errno.EADDRNOTAVAIL, "no local port left here"),
        (errno.EIO, "connection failed (odd)"),
    ],
)
def test_a_failed_connection_has_a_word(code: int, word: str) -> None:
    """The ones that people meet, and the system's own words for the others."""
    assert word_for(OSError(code, "odd")) == word


TARGETS = [
    ("127.0.0.1:8000", Target("127.0.0.1", 8000, "/predict", "127.0.0.1:8000")),
    ("http://127.0.0.1:8000/", Target("127.0.0.1", 8000, "/predict", "127.0.0.1:8000")),
    ("http://host/v1/x?top=3", Target("host", 80, "/v1/x?top=3", "host")),
    ("localhost", Target("localhost", 80, "/predict", "localhost")),
    ("http://[::1]:8000/p", Target("::1", 8000, "/p", "[::1]:8000")),
]


@pytest.mark.parametrize(("url", "expected"), TARGETS)
def test_an_address_may_be_short(url: str, expected: Target) -> None:
    """A bare host and port mean /predict; path and query stay; the Host header is right."""
    assert parse_target(url) == expected


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://x/predict", "TLS is not spoken here"),
        ("ftp://x", "is not an address"),
        ("http://", "is not an address"),
        ("", "is not an address"),
        ("http://x:99999/", "is not an address"),
        ("http://me:secret@x/", "--header"),
        ("http://x/a b", "a space"),
        ("http://x/a\r\nHost: y", "is not an address|a space"),
    ],
)
def test_what_is_no_plain_address_is_refused(url: str, message: str) -> None:
    """With what to do instead."""
    with pytest.raises(UsageError, match=message):
        parse_target(url)


def test_an_answers_detail_is_found_wherever_servers_put_it() -> None:
    """`detail` as text or as FastAPI's list, `error`, plain text, nothing."""
    assert Answer(422, b'{"detail":"item 1"}').detail() == "item 1"
    assert "msg" in Answer(422, b'{"detail":[{"msg":"field required"}]}').detail()
    assert Answer(400, b'{"error":"no model"}').detail() == "no model"
    assert Answer(502, b"Bad\n Gateway").detail() == "Bad Gateway"
    assert Answer(500, b"").detail() == "(nothing)"
    assert len(Answer(500, b"y" * 9999).detail()) == 400
