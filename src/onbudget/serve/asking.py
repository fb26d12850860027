"""One request over ASGI: read its body within limits, hand it to a service, wait for its one reply.

Callers that hang up or stop sending are noticed by a sweep, so that a request that is answered at once pays for none of
it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from onbudget.core.errors import RequestError, SlowClient
from onbudget.core.queue import Group
from onbudget.serve.exchange import Head, Request, Response
from onbudget.serve.inflate import Inflater, inflater
from onbudget.serve.items import Format
from onbudget.serve.service import Service
from onbudget.serve.wire import PREDICT

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
clock = time.monotonic

GONE = 499  # nginx's word for a caller that hung up; only middlewares and their logs see it
SWEEP = 0.05  # seconds between looks for callers that hung up or stopped sending


class _Gone(Exception):
    """The caller hung up before its request was whole."""


class _Exchange:
    """One request under way, for the sweep: first it is read, then it waits for its group."""

    __slots__ = ("expired", "group", "receive", "service", "since", "task", "watcher")

    def __init__(self, service: Service, receive: Receive, task: asyncio.Task[Any]) -> None:
        self.service = service
        self.receive = receive
        self.task = task
        self.since = clock()
        self.group: Group | None = None
        self.watcher: asyncio.Task[None] | None = None
        self.expired = False


class Asking:
    """All requests under way that came over ASGI."""

    def __init__(self) -> None:
        self._under_way: set[_Exchange] = set()
        self._sweeper: asyncio.TimerHandle | None = None

    async def ask(self, scope: Scope, receive: Receive, send: Send, service: Service, format: Format = PREDICT) -> None:
        """Read a request, hand it to the service, send its one reply."""
        exchange = _Exchange(service, receive, asyncio.current_task())  # type: ignore[arg-type]  # an ASGI app runs in a task
        self._under_way.add(exchange)
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP, self._sweep)
        try:
            response = await self._reply(scope, exchange, format)
        except _Gone:
            if exchange.group is None:
                service.count("gone", route=format.route)  # with half its body sent
            with contextlib.suppress(OSError):  # nobody reads it, but a middleware around us wants a response
                await send_response(send, Response(GONE, b"", []), scope)
            return
        except RequestError as error:
            service.count(error.code, exchange.since, format.route)
            response = format.refusal(error)
            response.headers.append((b"connection", b"close"))  # the rest of its body is not read
        except asyncio.CancelledError:
            if exchange.group is not None:
                service.cancel(exchange.group)
            raise
        finally:
            self._under_way.discard(exchange)
            if exchange.watcher is not None:
                exchange.watcher.cancel()
        await send_response(send, response, scope)

    async def _reply(self, scope: Scope, exchange: _Exchange, format: Format) -> Response:
        body = await self._body(scope, exchange)
        request = Request(Head(scope["headers"], scope["query_string"]), body, clock())
        done: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        exchange.since = request.arrived

        def reply(response: Response) -> None:
            if not done.done():  # cancelled: whoever waited is about to hear of it
                done.set_result(response)

        exchange.group = exchange.service.predict(request, reply, format)
        try:
            return await done
        except asyncio.CancelledError:
            if not exchange.expired:
                raise
            exchange.task.uncancel()
            raise _Gone from None

    async def _body(self, scope: Scope, exchange: _Exchange) -> bytes:
        check_size = exchange.service.check_size
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit():
                check_size(int(value))
        packed = inflater(scope["headers"], exchange.service.settings.max_body, check_size)
        try:
            message = await exchange.receive()
            if packed is None and not message.get("more_body") and message["type"] == "http.request":
                body: bytes = message["body"]
                check_size(len(body))
                return body
            chunks: list[bytes] = []
            size = 0
            while message["type"] == "http.request":
                piece = message.get("body", b"")
                size += len(piece)
                check_size(size)
                if packed is None:
                    chunks.append(piece)
                else:
                    await self._unpack(packed, piece, chunks)
                if not message.get("more_body"):
                    if packed is not None:
                        packed.end()
                    return b"".join(chunks)
                message = await exchange.receive()
            raise _Gone
        except asyncio.CancelledError:
            if not exchange.expired:
                raise
            exchange.task.uncancel()
            allowed = exchange.service.settings.client_timeout
            raise SlowClient(f"the body did not arrive within {allowed:g} s (--client-timeout)") from None

    async def _unpack(self, packed: Inflater, piece: bytes, chunks: list[bytes]) -> None:
        for step in packed.feed(piece):
            chunks.append(step)
            await asyncio.sleep(0)  # everybody else's turn

    def _sweep(self) -> None:
        """Expire requests whose body does not come; watch for hang-ups those that have waited long enough to matter."""
        now = clock()
        for exchange in list(self._under_way):
            age = now - exchange.since
            if exchange.group is None:
                if age > exchange.service.settings.client_timeout and not exchange.expired:
                    exchange.expired = True
                    exchange.task.cancel()
            elif exchange.watcher is None and age > SWEEP:
                exchange.watcher = asyncio.get_running_loop().create_task(self._watch(exchange))
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP, self._sweep) if self._under_way else None

    async def _watch(self, exchange: _Exchange) -> None:
        """Wait for the caller to hang up. Only slow requests pay for this task."""
        if (await exchange.receive())["type"] != "http.disconnect":
            return  # a middleware's own `receive`, which plays the body again and again
        if exchange.group is not None and not exchange.group.withdrawn:
            exchange.service.cancel(exchange.group)
            exchange.expired = True
            exchange.task.cancel()


async def send_response(send: Send, response: Response, scope: Scope) -> None:
    """A whole answer, with the request's id; its head alone for HEAD."""
    headers = response.headers
    headers.append((b"content-length", str(len(response.body)).encode()))
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            headers.append((b"x-request-id", value))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else response.body})
