"""uvicorn's HTTP protocol with a fast path for `POST /predict`, and with the limits that uvicorn leaves out.

Rules of this file. Only a plain `POST /predict` that finds its connection idle takes the fast path: its body goes
straight to the service and its answer leaves in one write, without an ASGI task. Everything else, pipelined requests
too, is uvicorn's own. A fast request poses as uvicorn's current cycle while it is open, so that uvicorn queues what is
pipelined behind it, closes the connection after it when the server drains, and knows that it is not idle. A client
that does not read its answers leaves the fast path, because only uvicorn's waits for it.
"""

from __future__ import annotations

import asyncio
import http
import time
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from onbudget.core.errors import NotParseable, RequestError, SlowClient
from onbudget.core.queue import Group
from onbudget.serve.exchange import Request, Response, refusal
from onbudget.serve.service import Service

MAX_HEAD = 64 * 1024  # bytes of request line and headers
SWALLOW = 64 * 1024  # bytes: a refused body up to here is read and thrown away, and the connection stays
LINGER = 1.0  # seconds that a refused body is read and thrown away for, so that its sender gets to read the refusal
STATUS = {s.value: b"HTTP/1.1 %d %s\r\n" % (s.value, s.phrase.encode()) for s in http.HTTPStatus}


class _Fast:
    """A fast request, with the attributes that uvicorn's protocol touches of its cycles."""

    __slots__ = (
        "chunks",
        "disconnected",
        "group",
        "headers",
        "keep_alive",
        "message_event",
        "query",
        "refused",
        "response_complete",
        "size",
    )

    def __init__(self, headers: list[tuple[bytes, bytes]], query: bytes, keep_alive: bool) -> None:
        self.headers = headers
        self.query = query
        self.keep_alive = keep_alive
        self.chunks: list[bytes] = []
        self.size = 0
        self.group: Group | None = None
        self.refused: RequestError | None = None  # at its head; told once its body has gone by
        self.response_complete = False
        self.disconnected = False
        self.message_event = _NOBODY


class _Nobody:
    """Stands where uvicorn keeps the event that an ASGI app waits on."""

    def set(self) -> None:
        """Nobody waits."""


_NOBODY = _Nobody()


class Protocol(HttpToolsProtocol):
    """One connection. `service` is set on the class that `serve.server` makes for its one service."""

    service: Service

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None  # for the head, then for a fast request's body
        self._head_bytes = 0
        self._age = 0.0  # the most seconds that what is being read may have lain unread
        self._fast: _Fast | None = None  # the fast request that is open, while it is
        self._lingering = False  # answered for the last time: what still comes is thrown away
        self._upgrade = False  # the head at hand asks for another protocol
        self._slow: list[Any] = []  # uvicorn's cycles that are open: it tells only the newest of a hang-up

    # ---- the connection ----

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._unset_keepalive_if_required()  # after a reset too: it would hold this connection's memory till it fires
        fast = self._fast
        if fast is not None and fast.group is not None:
            self.service.cancel(fast.group)  # the caller hung up: its place is free
        elif fast is not None:
            self.service.count("gone")  # with half its body sent
        for cycle in self._slow:
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._lingering:
            return
        if self.service.polls is not None:
            self._age = self.service.polls.read()
        self._unset_keepalive_if_required()
        try:
            while data:
                data = self._feed(data)
        except httptools.HttpParserError:
            self.logger.warning("Invalid HTTP request received.")
            error = NotParseable("what came is not valid HTTP")
            if self._fast is not None and self._fast.group is None:
                self._refuse(error)
            else:
                self._end(None if self._answering() else refusal(error))
        if self._timer is None and self._begun():
            self._arm()

    def _feed(self, data: bytes) -> bytes:
        """Parse → what is to be parsed next: nothing, or a head that offered another protocol, without its offer.

        Some clients (Java's, `curl --http2`) offer h2c with their first request, and a server may ignore it. The parser
        can't: once it saw the offer, it gives up the body.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if not self._upgrade:
                return b""
            rest = data[upgrade.args[0] :]
        else:
            return b""
        self._upgrade = False
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [b"%s: %s\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        if hasattr(self.parser, "set_dangerous_leniencies"):  # httptools 0.6.3; as uvicorn has it
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return b"%s %s HTTP/%s\r\n" % (method, self.url, version) + b"".join(lines) + b"\r\n" + rest

    def _begun(self) -> bool:
        """Whether something has begun that its sender may leave half done: a head, a fast body, or a blank line."""
        if self._head_bytes:
            return True
        if self._fast is not None:
            return self._fast.group is None
        return self.timeout_keep_alive_task is None and (self.cycle is None or self.cycle.response_complete)

    # ---- the head ----

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count(len(name) + len(value))

    def on_headers_complete(self) -> None:
        if self._lingering:
            return
        self._disarm()
        self._head_bytes = 0
        method = self.parser.get_method()
        self._upgrade = self.parser.should_upgrade() and method != b"CONNECT"
        if self._upgrade:
            return  # it comes again, from `_feed`
        idle = (self.cycle is None or self.cycle.response_complete) and not self.flow.write_paused
        path, _, query = self.url.partition(b"?")
        if not (idle and path == b"/predict" and method == b"POST"):
            super().on_headers_complete()
            self._slow = [cycle for cycle in (*self._slow, self.cycle) if not cycle.response_complete]
            return
        keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        self._fast = self.cycle = _Fast(self.headers, query, keep_alive)  # type: ignore[assignment]  # it poses as one
        length = 0
        for name, value in self.headers:
            if name == b"content-length":
                length = int(value)
                self._limit(length)
        refused = self.service.gate(length, self._age, self.headers)
        if refused is not None and (self.expect_100_continue or length > SWALLOW):
            self._refuse(refused)
        elif self._fast is not None:
            self._fast.refused = refused
        if self.expect_100_continue and self._fast is not None:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # ---- a fast request's body and answer ----

    def on_body(self, body: bytes) -> None:
        if self._lingering:
            return
        fast = self._fast
        if fast is None or cast(object, self.cycle) is not fast:
            super().on_body(body)
            return
        if fast.refused is None:
            fast.chunks.append(body)
        fast.size += len(body)
        self._limit(fast.size)

    def on_message_complete(self) -> None:
        if self._lingering or self._upgrade:
            return
        self._head_bytes = 0  # of a chunked body's trailers
        fast = self._fast
        if fast is None or cast(object, self.cycle) is not fast:
            super().on_message_complete()
            return
        self._disarm()
        if fast.refused is not None:
            self.service.count(fast.refused.code)
            self._answer(refusal(fast.refused))
            return
        if self.service.state == "loading":
            self.service.start()
        body = fast.chunks[0] if len(fast.chunks) == 1 else b"".join(fast.chunks)
        fast.chunks.clear()
        fast.group = self.service.predict(
            Request(fast.headers, body, fast.query, time.monotonic() - self._age), self._answer
        )

    def _limit(self, size: int) -> None:
        try:
            self.service.check_size(size)
        except RequestError as error:
            self._refuse(error)

    def _refuse(self, error: RequestError) -> None:
        """Answer before the body is whole, and close soon: closing over unread bytes would destroy the answer."""
        if self._fast is None or self.transport.is_closing():
            return
        self._fast.keep_alive = False
        self._lingering = True
        self.service.count(error.code)
        self._answer(refusal(error))
        self._disarm()
        self._timer = self.loop.call_later(LINGER, self.transport.close)

    def _answer(self, response: Response) -> None:
        """The one reply of the open fast request: head and body in one write."""
        fast, self._fast = self._fast, None
        if fast is None or self.transport.is_closing():
            return
        parts = [STATUS[response.status]]
        for name, value in (*self.server_state.default_headers, *response.headers):
            parts += (name, b": ", value, b"\r\n")
        for name, value in fast.headers:
            if name == b"x-request-id":
                parts += (b"x-request-id: ", value, b"\r\n")
        if not fast.keep_alive:
            parts.append(b"connection: close\r\n")
        parts += (b"content-length: %d\r\n\r\n" % len(response.body), response.body)
        self.transport.write(b"".join(parts))
        fast.response_complete = True
        if self._lingering:
            return
        if not fast.keep_alive:
            self.transport.close()
        self.on_response_complete()

    # ---- what uvicorn leaves out: time for the head and the body, and the head's size ----

    def _arm(self) -> None:
        self._timer = self.loop.call_later(self.service.settings.client_timeout, self._late)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        error = SlowClient(
            f"the request did not arrive within {self.service.settings.client_timeout:g} s (--client-timeout)"
        )
        if self._fast is not None and self._fast.group is None:
            self._refuse(error)
        elif self._answering():
            self.cycle.keep_alive = False  # half a head behind a request that runs: its answer is the last
        else:
            self._end(refusal(error) if self._head_bytes else None)

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD and not self._lingering:
            body = b'{"detail": "the request line and headers are larger than 64 KiB"}'
            answer = Response(431, body, [(b"content-type", b"application/json")])
            self._end(None if self._answering() else answer)  # an answer is not written before its turn

    def _end(self, response: Response | None) -> None:
        """Close the connection, with a last word outside any request where there is one."""
        self._lingering = True
        if self.transport.is_closing():
            return
        if response is not None:
            head = b"".join(b"%s: %s\r\n" % header for header in response.headers)
            length = b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(response.body)
            self.transport.write(STATUS[response.status] + head + length + response.body)
        self.transport.close()
