"""uvicorn's HTTP protocol with a fast path for `POST /predict`, and with the limits that uvicorn leaves out.

Rules of this file. Only a plain `POST /predict` that finds its connection idle takes the fast path: its body goes
straight to the service and its answer leaves in one write, without an ASGI task. Everything else, pipelined requests
too, is uvicorn's own. A fast request poses as uvicorn's current cycle while it is open, so that uvicorn queues what is
pipelined behind it, closes the connection after it when the server drains, and knows that it is not idle. A client
that does not read its answers leaves the fast path, because only uvicorn's waits for it.

A refused request is read like any other and answered once its body has gone by: a client that gets an answer while it
still sends may give its connection up, and a new one costs both sides more than a body that is there already. What it
costs is counted in microseconds, since a server at its limit refuses more than it answers: so nothing here is made,
looked up or armed for a request that only the slow path needs, and a head that was parsed before (`heads`) is not
parsed again: it and its body then pass the parser by, which stays between two messages.
"""

from __future__ import annotations

import asyncio
import http
import math
import time
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from onbudget.core.errors import NotParseable, RequestError, SlowClient
from onbudget.serve.exchange import Head, Refusal, Request, Response, refusal
from onbudget.serve.fast import Fast
from onbudget.serve.heads import Heads, Known, Seen
from onbudget.serve.service import Service

MAX_HEAD = 64 * 1024  # bytes of request line and headers
SWALLOW = 64 * 1024  # bytes: a refused body up to here is read and thrown away, and the connection stays
LINGER = 1.0  # seconds that a refused body is read and thrown away for, so that its sender gets to read the refusal
STATUS = {s.value: b"HTTP/1.1 %d %s\r\n" % (s.value, s.phrase.encode()) for s in http.HTTPStatus}


class Protocol(HttpToolsProtocol):
    """One connection. `service` is set on the class that `serve.server` makes for its one service."""

    service: Service
    heads: Heads  # of all its connections
    cycle: Any  # one of uvicorn's, or the fast request that poses as one
    _defaults: tuple[object, bytes] = (None, b"")  # uvicorn's headers for every answer (the date), and as bytes

    def __init_subclass__(cls) -> None:
        cls.heads = Heads()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings = self.service.settings
        self._timer: asyncio.TimerHandle | None = None  # looks at `_due`, at the latest after `_look`
        self._look = max(0.01, min(settings.client_timeout, self.timeout_keep_alive))
        self._due = math.inf  # when the head, a fast request's body or the next request must have come
        self._idle = False  # whether it is the next request that is waited for
        self._head_bytes = 0
        self._between = True  # whether the parser has nothing begun
        self._seen: Seen | None = None  # the whole head that the parser is about to read, if it may be worth learning
        self._missing = 0  # bytes of a body whose head was known
        self._age = 0.0  # the most seconds that what is being read may have lain unread
        self._fast: Fast | None = None  # the fast request that is open, while it is
        self._lingering = False  # answered for the last time: what still comes is thrown away
        self._upgrade = False  # the head at hand asks for another protocol
        self._slow: list[Any] = []  # uvicorn's cycles that are open: it tells only the newest of a hang-up

    # ---- the connection ----

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._await(self.service.settings.client_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()  # it would hold this connection's memory till it fires
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
        polls = self.service.polls
        if polls is not None:
            self._age = polls.read()
        if self._idle:
            self._idle, self._due = False, math.inf
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
        if self._due == math.inf and not self._idle and self._begun():
            self._await(self.service.settings.client_timeout)

    def _feed(self, data: bytes) -> bytes:
        """Read → what is to be read next: what follows a known head's body, or a head that offered another protocol,
        without its offer.

        Some clients (Java's, `curl --http2`) offer h2c with their first request, and a server may ignore it. The parser
        can't: once it saw the offer, it gives up the body.
        """
        if self._lingering:
            return b""
        if self._missing:
            return self._go_on(data)
        if self._between and self._idles():
            found = self.heads.find(data)
            if isinstance(found, Known):
                head, length, request_id, end = found
                self._missing, self._due, self.expect_100_continue = length, math.inf, False
                self._begin(Fast(head, request_id, True), length, len(data) - end >= length)
                return self._go_on(data[end:])
            self._seen = found
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
        self._between = True
        self.parser = httptools.HttpRequestParser(self)
        if hasattr(self.parser, "set_dangerous_leniencies"):  # httptools 0.6.3; as uvicorn has it
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return b"%s %s HTTP/%s\r\n" % (method, self.url, version) + b"".join(lines) + b"\r\n" + rest

    def _begun(self) -> bool:
        """Whether what came begins something: a head, a fast body, a blank line, or a body that nobody reads."""
        if self._head_bytes:
            return True
        if self._fast is not None:
            return self._fast.group is None
        return self.cycle is None or self.cycle.response_complete

    # ---- the head ----

    def on_message_begin(self) -> None:
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        self._head_bytes = 0
        self._between = False

    def on_url(self, url: bytes) -> None:
        self.url += url
        self._head_bytes += len(url)
        if self._head_bytes > MAX_HEAD:
            self._too_long()

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self.headers.append((name, value))
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MAX_HEAD:
            self._too_long()

    def on_headers_complete(self) -> None:
        if self._lingering:
            return
        self._due = math.inf
        self._head_bytes = 0
        parser = self.parser
        method = parser.get_method()
        self._upgrade = parser.should_upgrade() and method != b"CONNECT"
        if self._upgrade:
            return  # it comes again, from `_feed`
        path, _, query = self.url.partition(b"?")
        head = Head(self.headers, query)
        self.expect_100_continue = head.values.get(b"expect", b"").lower() == b"100-continue"
        seen, self._seen = self._seen, None
        if path == b"/predict" and method == b"POST" and self._idles():
            self._quickly(head, seen)
        else:
            self._slowly()

    def _quickly(self, head: Head, seen: Seen | None) -> None:
        """The head of a `POST /predict` before which nobody is."""
        if b"content-encoding" in head.values:  # the app unpacks it in steps, so that nobody else waits for all of it
            self._slowly()
            return
        keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        if seen is not None:
            self.heads.learn(seen, head, keep_alive)
        fast = Fast(head, head.values.get(b"x-request-id"), keep_alive)
        self._begin(fast, int(head.values.get(b"content-length", b"0")), False)

    def _begin(self, fast: Fast, length: int, whole: bool) -> None:
        """A fast request's head has been read, and its body of `length` bytes has come `whole` with it, or not yet."""
        self._fast = self.cycle = fast
        service = self.service
        if length > service.settings.max_body:
            self._limit(length)
            return
        if whole and service.calm():
            return
        fast.refused = service.gate(length, self._age, fast.head)
        if fast.refused is not None and (self.expect_100_continue or length > SWALLOW):
            self._refuse(fast.refused.error)
        if self.expect_100_continue and self._fast is not None:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _go_on(self, data: bytes) -> bytes:
        """Read on in a body whose head was known → what follows it."""
        body, rest = data[: self._missing], data[self._missing :]
        self._missing -= len(body)
        fast = self._fast
        if fast is not None and fast.refused is None:
            fast.chunks.append(body)
        if not self._missing:
            self.on_message_complete()
        return rest

    def _idles(self) -> bool:
        """Whether a request may take the fast path now: nobody is before it, and the client reads its answers."""
        return (self.cycle is None or self.cycle.response_complete) and not self.flow.write_paused

    def _slowly(self) -> None:
        """The head goes to uvicorn, which makes its scope now: `on_message_begin` would make one for fast ones too."""
        url, headers, expect = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.headers, self.expect_100_continue = url, headers, expect
        self.scope["headers"] = headers
        super().on_headers_complete()
        self._slow = [cycle for cycle in (*self._slow, self.cycle) if not cycle.response_complete]

    # ---- a fast request's body and answer ----

    def on_body(self, body: bytes) -> None:
        if self._lingering:
            return
        fast = self._fast
        if fast is None or self.cycle is not fast:
            super().on_body(body)
            return
        if fast.refused is None:
            fast.chunks.append(body)
        fast.size += len(body)
        if fast.size > self.service.settings.max_body:
            self._limit(fast.size)

    def on_message_complete(self) -> None:
        if self._lingering or self._upgrade:
            return
        self._between = True
        self._head_bytes = 0  # of a chunked body's trailers
        fast = self._fast
        if fast is None or self.cycle is not fast:
            super().on_message_complete()
            return
        self._due = math.inf
        refused = fast.refused
        if refused is not None:
            self.service.count(refused.error.code)
            self._answer(refused.response, refused)
            return
        if self.service.state == "loading":
            self.service.start()
        body = fast.chunks[0] if len(fast.chunks) == 1 else b"".join(fast.chunks)
        fast.chunks.clear()
        fast.group = self.service.predict(Request(fast.head, body, time.monotonic() - self._age), self._answer)

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
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(LINGER, self.transport.close)

    def _answer(self, response: Response, shared: Refusal | None = None) -> None:
        """The one reply of the open fast request: head and body in one write. `shared` keeps what others get too."""
        fast, self._fast = self._fast, None
        if fast is None or self.transport.is_closing():
            return
        defaults = self._told(fast.head)
        if shared is not None and shared.below is defaults:
            head, tail = shared.sent
        else:
            head = STATUS[response.status] + defaults
            for header in response.headers:
                head += b"%b: %b\r\n" % header
            tail = b"content-length: %d\r\n\r\n%b" % (len(response.body), response.body)
            if shared is not None:
                shared.below, shared.sent = defaults, (head, tail)
        if fast.request_id is not None:
            head += b"x-request-id: %b\r\n" % fast.request_id
        if not fast.keep_alive:
            head += b"connection: close\r\n"
        self.transport.write(head + tail)
        fast.response_complete = True
        if self._lingering:
            return
        if not fast.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _told(self, head: Head) -> bytes:
        """The headers of every answer; uvicorn makes a new list of them every second."""
        known, told = self._defaults
        headers = self.server_state.default_headers
        if headers is not known:
            told = b"".join([b"%b: %b\r\n" % header for header in headers])
            type(self)._defaults = headers, told
        return told

    def on_response_complete(self) -> None:
        """An answer has left, fast or slow: what was pipelined behind it begins, or the wait for the next request."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._due == math.inf:  # else half a head is here already, and has its own time
            self._idle = True
            self._await(self.timeout_keep_alive)

    # ---- what uvicorn leaves out: time for the head and the body, and the head's size ----

    def _await(self, seconds: float) -> None:
        """Have `_ring` or a later one end the wait that begins now; one timer serves them all, since most are short."""
        self._due = time.monotonic() + seconds
        if self._timer is None:
            self._timer = self.loop.call_later(self._look, self._ring)

    def _ring(self) -> None:
        self._timer = None
        left = self._due - time.monotonic()
        if self._due == math.inf or self.transport.is_closing():
            return
        if left > 0:
            self._timer = self.loop.call_later(min(left, self._look), self._ring)
        elif self._idle:
            self.transport.close()
        else:
            self._late()

    def _late(self) -> None:
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

    def _too_long(self) -> None:
        if not self._lingering:
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
