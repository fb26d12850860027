"""An HTTP/1.1 client of one connection, as small as a load test wants it: prebuilt bytes out, one answer back.

Rules of this file. A connection carries one request at a time. It tells its owner, once for every request, that it was
answered or why not; nothing is retried here. Bytes that nobody asked for end the connection.

An answer is whole by its length, by its last chunk, or, where it has neither, by the server's closing: then a clean end
is its end. In every other case a close before the end is an error, whatever had come.
"""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import time
from dataclasses import dataclass
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

import httptools

from onbudget.core.errors import TargetError, UsageError
from onbudget.core.summary import NO_FILES, NO_PORTS, TIMED_OUT

clock = time.monotonic

KEPT_BODY = 65536  # bytes of an answer that are kept, of those that are
CLOSED_BEFORE, CLOSED_AMID = "closed before an answer", "closed amid an answer"
GARBLED = "not HTTP/1.1"
_WORDS = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset",
    errno.EPIPE: "connection reset",
    errno.ETIMEDOUT: "connection timed out",
    errno.EHOSTUNREACH: "host unreachable",
    errno.ENETUNREACH: "network unreachable",
    errno.EMFILE: NO_FILES,
    errno.ENFILE: NO_FILES,
    errno.EADDRNOTAVAIL: NO_PORTS,
}


def word_for(error: OSError) -> str:
    """A failed connection in two words."""
    return _WORDS.get(error.errno or 0, f"connection failed ({error.strerror or type(error).__name__})")


class Owner(Protocol):
    """Who wants to know. Each method is called with the connection that it is about."""

    def opened(self, connection: Connection) -> None: ...
    def answered(self, connection: Connection, hit: int, arrived: float) -> None:
        """Request number `hit` has its whole answer; the connection is idle again unless it is `closing`."""

    def lost(self, connection: Connection, hit: int, word: str) -> None:
        """It is gone, and `word` is why request number `hit` has no answer; -1 where it carried none."""


class Connection(asyncio.Protocol):
    """One connection. `hit` is the number of the request under way, -1 for none; `status` and `body` are its answer's.

    `body` is kept for answers other than 2xx, or for all with `keep`; `used` counts the requests that were answered;
    `amid` says whether some byte of the answer under way has come.
    """

    __slots__ = (
        "_complete",
        "_ends_by_close",
        "_parser",
        "_word",
        "amid",
        "body",
        "closing",
        "hit",
        "keep",
        "owner",
        "status",
        "transport",
        "used",
    )

    def __init__(self, owner: Owner, keep: bool = False) -> None:
        self.owner = owner
        self.keep = keep
        self.hit = -1
        self.status = 0
        self.body = b""
        self.used = 0
        self.closing = False
        self.transport: asyncio.Transport | None = None
        self._parser: Any = httptools.HttpResponseParser(self)
        self._word = ""  # why we gave it up
        self.amid = False
        self._complete = False
        self._ends_by_close = True

    def send(self, hit: int, request: bytes) -> None:
        """Send a whole request. The connection must be open and idle."""
        self.hit = hit
        self.amid = self._complete = False
        assert self.transport is not None
        self.transport.write(request)

    def abort(self, word: str = "given up") -> None:
        """Give up the connection at once; a request that it carries is lost for this reason."""
        self.closing = True
        self._word = self._word or word
        if self.transport is not None:
            self.transport.abort()

    # ---- asyncio.Protocol ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.owner.opened(self)

    def data_received(self, data: bytes) -> None:
        arrived = clock()
        if self.hit < 0:
            self.abort()
            return
        self.amid = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.closing = True
            if not self._complete:
                self.abort(GARBLED)
                return
        if self._complete:
            self._answered(arrived)
            if self.closing:  # by the server's wish, or because more came than was asked for
                self.abort()

    def _answered(self, arrived: float) -> None:
        hit, self.hit = self.hit, -1
        self.used += 1
        self.owner.answered(self, hit, arrived)

    def eof_received(self) -> None:
        self.closing = True

    def connection_lost(self, error: Exception | None) -> None:
        self.closing = True
        whole = error is None and self.amid and self.status and self._ends_by_close
        if self.hit >= 0 and whole and not self._word:
            self._complete = True
            self._answered(clock())
        if isinstance(error, OSError) and not self._word:
            self._word = word_for(error)
        self._parser = None  # it holds our methods: a ring that only the collector would find
        self.owner.lost(self, self.hit, self._word or (CLOSED_AMID if self.amid else CLOSED_BEFORE))

    # ---- what httptools calls ----

    def on_message_begin(self) -> None:
        if self._complete:
            self.closing = True
            return
        self.status = 0
        self._ends_by_close = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(name) in (14, 17) and name.lower() in (b"content-length", b"transfer-encoding"):
            self._ends_by_close = False

    def on_headers_complete(self) -> None:
        if self._complete:
            return
        self.status = self._parser.get_status_code()
        self.body = b""

    def on_body(self, data: bytes) -> None:
        if (self.keep or self.status >= 300) and not self._complete and len(self.body) < KEPT_BODY:
            self.body += data[:KEPT_BODY]

    def on_message_complete(self) -> None:
        if self.status < 200:  # 100 Continue, 103 Early Hints: the answer is still to come
            self.status = 0
            return
        self._complete = True
        if not self._parser.should_keep_alive():
            self.closing = True


# ---- a target, and one question to it -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go. `authority` is what the Host header says."""

    host: str
    port: int
    path: str
    authority: str

    @property
    def url(self) -> str:
        """As a person would type it."""
        return f"http://{self.authority}{self.path}"


def parse_target(url: str) -> Target:
    """A URL, or a bare host:port, which means its /predict. UsageError for what is no plain HTTP address."""
    text = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"{url!r} is not an address: {error}") from error
    if parts.scheme == "https":
        raise UsageError(f"{url!r}: TLS is not spoken here; test the server behind what ends TLS, over http://")
    if parts.scheme != "http" or not host:
        raise UsageError(f"{url!r} is not an address; write it like http://127.0.0.1:8000/predict")
    if parts.username or parts.password:
        raise UsageError("a password in an address ends up in records; give it with --header 'Authorization: …'")
    if any(c <= " " or c == "\x7f" for c in text):
        raise UsageError(f"{url!r} is not an address: it has a space or a control character")
    path = (parts.path if parts.path not in ("", "/") else "/predict") + (f"?{parts.query}" if parts.query else "")
    named = f"[{host}]" if ":" in host else host
    number = 80 if port is None else port
    return Target(host, number, path, named if number == 80 else f"{named}:{number}")


async def resolve(target: Target) -> tuple[str, int]:
    """The numeric address, looked up once so that no request waits for a name server; TargetError for none."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise TargetError(f"{target.host} is not a host that can be found: {error.strerror}") from error
    return str(found[0][4][0]), target.port


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole answer; of its body at most KEPT_BODY bytes."""

    status: int
    body: bytes

    def json(self) -> dict[str, Any] | None:
        """The body as a JSON object; None where it is something else."""
        try:
            told = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return told if isinstance(told, dict) else None

    def detail(self) -> str:
        """What the server says went wrong, in at most 400 characters."""
        told = self.json() or {}
        found = told.get("detail") or told.get("error") or self.body.decode("utf-8", "replace")
        words = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
        return " ".join(words.split())[:400] or "(nothing)"


class _Once:
    """The owner of a connection for one question."""

    def __init__(self, request: bytes, done: asyncio.Future[Answer]) -> None:
        self.request = request
        self.done = done

    def opened(self, connection: Connection) -> None:
        connection.send(0, self.request)

    def answered(self, connection: Connection, hit: int, arrived: float) -> None:
        if not self.done.done():
            self.done.set_result(Answer(connection.status, connection.body))

    def lost(self, connection: Connection, hit: int, word: str) -> None:
        if not self.done.done():
            self.done.set_exception(TargetError(word))


async def ask(target: Target, address: tuple[str, int], request: bytes, timeout_s: float) -> Answer:
    """Send one request on its own connection. TargetError, one sentence, where no answer comes."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Answer] = loop.create_future()
    connection = Connection(_Once(request, done), keep=True)
    try:
        async with asyncio.timeout(timeout_s):
            await loop.create_connection(lambda: connection, *address)
            return await done
    except TimeoutError:
        raise TargetError(f"{target.url}: {TIMED_OUT}: no answer within {timeout_s:g} s (--timeout)") from None
    except OSError as error:
        hint = "; is the server running there?" if error.errno == errno.ECONNREFUSED else ""
        raise TargetError(f"{target.url}: {word_for(error)}{hint}") from None
    except TargetError as error:
        raise TargetError(f"{target.url}: {error}") from None
    finally:
        connection.abort()
