"""uvicorn's HTTP protocol with a fast path for `POST /predict`, and with the limits that uvicorn leaves out.

Rules of this file. Only a plain `POST /predict` that finds its connection idle takes the fast path: its body goes
straight to the service and its answer leaves in one write, without an ASGI task. Everything else, pipelined requests
too, is uvicorn's own. A fast request poses as uvicorn's current cycle while it is open, so that uvicorn queues what is
pipelined behind it, closes the connection after it when the server drains, and knows that it is not idle.
"""

from __future__ import annotations

import asyncio
import http
import time
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from onbudget.core.errors import RequestError, SlowClient
from onbudget.core.queue import Group
from onbudget.serve.exchange import Request, Response, refusal
from onbudget.serve.service import Service

MAX_HEAD = 64 * 1024  # bytes of request line and headers
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
        self._fast: _Fast | None = None  # the fast request that is open, while it is
        self._lingering = False  # refused early: what still comes is thrown away

    # ---- the connection ----

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        if self._fast is not None and self._fast.group is not None:
            self.service.cancel(self._fast.group)  # the caller hung up: its place is free
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._lingering:
            return
        super().data_received(data)
        if self._timer is None and (self._head_bytes or (self._fast is not None and self._fast.group is None)):
            self._arm()  # a head or a body has begun but not ended

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
        idle = self.cycle is None or self.cycle.response_complete
        path, _, query = self.url.partition(b"?")
        if not (idle and path == b"/predict" and self.parser.get_method() == b"POST") or self.parser.should_upgrade():
            super().on_headers_complete()
            return
        keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        self._fast = self.cycle = _Fast(self.headers, query, keep_alive)  # type: ignore[assignment]  # it poses as one
        for name, value in self.headers:
            if name == b"content-length":
                self._limit(int(value))
        if self.expect_100_continue and self._fast is not None:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # ---- a fast request's body and answer ----

    def on_body(self, body: bytes) -> None:
        fast = self._fast
        if fast is None or cast(object, self.cycle) is not fast:
            super().on_body(body)
            return
        fast.chunks.append(body)
        fast.size += len(body)
        self._limit(fast.size)

    def on_message_complete(self) -> None:
        fast = self._fast
        if fast is None or cast(object, self.cycle) is not fast:
            super().on_message_complete()
            return
        self._disarm()
        if self.service.state == "loading":
            self.service.start()
        body = fast.chunks[0] if len(fast.chunks) == 1 else b"".join(fast.chunks)
        fast.chunks.clear()
        fast.group = self.service.predict(Request(fast.headers, body, fast.query, time.monotonic()), self._answer)

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
        if self._fast is not None:
            self._refuse(error)
        else:
            if self._head_bytes:
                self._close_with(refusal(error))
            self.transport.close()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD and not self.transport.is_closing():
            body = b'{"detail": "the request line and headers are larger than 64 KiB"}'
            self._close_with(Response(431, body, [(b"content-type", b"application/json")]))

    def _close_with(self, response: Response) -> None:
        head = b"".join(b"%s: %s\r\n" % header for header in response.headers)
        length = b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(response.body)
        self.transport.write(STATUS[response.status] + head + length + response.body)
        self.transport.close()
