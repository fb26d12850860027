"""The ASGI side: hot routes as plain ASGI callables, inside a FastAPI application or in front of it.

`create_app` gives people a FastAPI application that they can mount, add middleware to and read `/docs` of; the hot
routes are plain ASGI endpoints in it, so that a user's auth middleware guards `/predict`. `Front` is what
`onbudget serve` runs: the same endpoints without the framework around them, which imports FastAPI only when somebody
asks for a page that needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from os import PathLike
from typing import TYPE_CHECKING, Any

from onbudget.core.errors import RequestError, SlowClient
from onbudget.core.queue import Group
from onbudget.serve.adapted import adapt
from onbudget.serve.batcher import MicroBatcher
from onbudget.serve.door import guard, route
from onbudget.serve.exchange import Head, Request, Response, as_json, refusal
from onbudget.serve.inflate import Inflater, inflater
from onbudget.serve.seam import Seam
from onbudget.serve.service import Service
from onbudget.serve.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
log = logging.getLogger("onbudget")
clock = time.monotonic

GONE = 499  # nginx's word for a caller that hung up; only middlewares and their logs see it
SWEEP = 0.05  # seconds between looks for callers that hung up or stopped sending


class _Gone(Exception):
    """The caller hung up before its request was whole."""


class _Exchange:
    """One request under way, for the sweep: first it is read, then it waits for its group."""

    __slots__ = ("expired", "group", "receive", "since", "task", "watcher")

    def __init__(self, receive: Receive, task: asyncio.Task[Any]) -> None:
        self.receive = receive
        self.task = task
        self.since = clock()
        self.group: Group | None = None
        self.watcher: asyncio.Task[None] | None = None
        self.expired = False


class Endpoints:
    """The hot routes over one service. Each is `await endpoint(scope, receive, send)`.

    With `patient` a `/predict` that comes while the model loads waits for it, and its clock starts after that.
    """

    def __init__(self, service: Service, patient: bool = False) -> None:
        self.service = service
        self._patient = patient
        self._starting: asyncio.Task[None] | None = None  # of the last life that a request began
        self._under_way: set[_Exchange] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self.table: dict[str, tuple[str, Callable[[Scope, Receive, Send], Awaitable[None]]]] = {
            "/predict": ("POST", self.predict),
            "/health": ("GET", self.health),
            "/ready": ("GET", self.ready),
            "/status": ("GET", self.status),
            "/metrics": ("GET", self.metrics),
        }

    async def dispatch(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one of the table's paths; another method than its own is 405."""
        method, endpoint = self.table[path]
        if self.service.state == "loading" or self.service.orphaned:
            starting = self._start()  # a mounted app gets no lifespan: its first request starts it, a probe's too
            if self._patient and path == "/predict":
                await asyncio.wait((starting,))  # a model that can't be served is told as any other 503
        if scope["method"] != method and not (method == "GET" and scope["method"] == "HEAD"):
            detail = {"detail": f"{path} takes {method}, not {scope['method']}"}
            allow = b"GET, HEAD" if method == "GET" else method.encode()
            await _send(send, as_json(405, detail, (b"allow", allow)), scope)
            return
        await endpoint(scope, receive, send)

    def _start(self) -> asyncio.Task[None]:
        starting = self.service.start()
        if starting is not self._starting:
            self._starting = starting
            starting.add_done_callback(_tell)
        return starting

    async def predict(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /predict`: read, hand to the service, wait for its one reply."""
        service = self.service
        exchange = _Exchange(receive, asyncio.current_task())  # type: ignore[arg-type]  # an ASGI app runs in a task
        self._under_way.add(exchange)
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP, self._sweep)
        try:
            response = await self._predict(scope, exchange)
        except _Gone:
            if exchange.group is None:
                service.count("gone")  # with half its body sent
            with contextlib.suppress(OSError):  # nobody reads it, but a middleware around us wants a response
                await _send(send, Response(GONE, b"", []), scope)
            return
        except RequestError as error:
            service.count(error.code, exchange.since)
            response = refusal(error)
            response.headers.append((b"connection", b"close"))  # the rest of its body is not read
        except asyncio.CancelledError:
            if exchange.group is not None:
                service.cancel(exchange.group)
            raise
        finally:
            self._under_way.discard(exchange)
            if exchange.watcher is not None:
                exchange.watcher.cancel()
        await _send(send, response, scope)

    async def _predict(self, scope: Scope, exchange: _Exchange) -> Response:
        body = await self._body(scope, exchange)
        request = Request(Head(scope["headers"], scope["query_string"]), body, clock())
        done: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        exchange.since = request.arrived

        def reply(response: Response) -> None:
            if not done.done():  # cancelled: whoever waited is about to hear of it
                done.set_result(response)

        exchange.group = self.service.predict(request, reply)
        try:
            return await done
        except asyncio.CancelledError:
            if not exchange.expired:
                raise
            exchange.task.uncancel()
            raise _Gone from None

    async def _body(self, scope: Scope, exchange: _Exchange) -> bytes:
        check_size = self.service.check_size
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit():
                check_size(int(value))
        packed = inflater(scope["headers"], self.service.settings.max_body, check_size)
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
            allowed = self.service.settings.client_timeout
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
                if age > self.service.settings.client_timeout and not exchange.expired:
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
            self.service.cancel(exchange.group)
            exchange.expired = True
            exchange.task.cancel()

    async def health(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /health`."""
        await _send(send, self.service.health(), scope)

    async def ready(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /ready`."""
        await _send(send, self.service.ready(), scope)

    async def status(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /status`."""
        await _send(send, self.service.status(), scope)

    async def metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /metrics`, rendered off the event loop."""
        self.service.metrics.fold()
        body, kind = await asyncio.to_thread(self.service.metrics.render)
        await _send(send, Response(200, body, [(b"content-type", kind.encode())]), scope)


async def _send(send: Send, response: Response, scope: Scope) -> None:
    headers = response.headers
    headers.append((b"content-length", str(len(response.body)).encode()))
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            headers.append((b"x-request-id", value))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else response.body})


def _tell(starting: asyncio.Task[None]) -> None:
    """A start that nobody waits for: its failure goes to the log, in a line."""
    if not starting.cancelled() and (error := starting.exception()) is not None:
        log.error("the model can't be served: %s", error)


class _Route:
    """One hot path as an ASGI app of its own, for Starlette's router."""

    def __init__(self, endpoints: Endpoints, path: str) -> None:
        self._endpoints = endpoints
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._endpoints.dispatch(self._path, scope, receive, send)


def create_app(
    model: str | PathLike[str] | Any,
    batcher: MicroBatcher | Settings | None = None,
    *,
    settings: Settings | None = None,
    decode: Callable[[Any], Any] | None = None,
    finish: Callable[[Any], Any] | None = None,
) -> FastAPI:
    """A FastAPI application that serves a model; it loads when the app starts, or with the first request.

    `model` is the path of a bundle or a plain .onnx file, or a classifier: `onbudget.Classifier`, or any object with
    `predict(items)` and `classes`. A classifier's `batcher` says how large its batches are and how long they wait, and
    hears their sizes. `decode` makes an item's array of what was sent (a JSON value, or bytes), `finish` makes what is
    sent of an answer; both run in a lane's thread. A ValueError in `decode` is 422 for its request, other errors 500.

    Mount it, add middleware, include it in tests: `POST /predict`, `/health`, `/ready`, `/status`, `/metrics`, `/docs`.
    Raises UsageError for arguments that do not go together; what `Service.start` raises (BundleError, ProviderError)
    comes when the application starts.
    """
    if isinstance(batcher, Settings):  # the second parameter, before there were batchers
        batcher, settings = None, settings or batcher
    source, settings = adapt(model, batcher, settings or Settings(), decode is not None)
    service = Service(source, settings, Seam(decode, finish))
    return _framework(Endpoints(service, patient=True), own_life=True)


def _framework(endpoints: Endpoints, own_life: bool) -> FastAPI:
    from fastapi import FastAPI
    from starlette.routing import Route

    from onbudget import __version__
    from onbudget.serve.docs import add_docs

    service = endpoints.service

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    app = FastAPI(
        title="onbudget", version=__version__, docs_url=None, redoc_url=None, openapi_url=None,
        lifespan=lifespan if own_life else None,
    )  # fmt: skip
    app.state.service = service
    for path in endpoints.table:
        app.router.routes.append(Route(path, endpoint=_Route(endpoints, path), methods=None))
    add_docs(app, service)
    if own_life:  # else the door is around `Front`
        guard(app, service)
    return app


class Front:
    """The ASGI app of `onbudget serve`: hot paths first, everything else through FastAPI, which is made on demand."""

    def __init__(self, service: Service) -> None:
        self.endpoints = Endpoints(service)
        self._service = service
        self._app: FastAPI | None = None
        self._making = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            path = route(scope)
            if path in self.endpoints.table:
                await self.endpoints.dispatch(path, scope, receive, send)
                return
            await (await self._framework())(scope, receive, send)
        elif kind == "lifespan":
            await self._lifespan(receive, send)

    async def _framework(self) -> FastAPI:
        async with self._making:
            if self._app is None:
                # The import takes some 300 ms, which the loop must not spend.
                self._app = await asyncio.to_thread(_framework, self.endpoints, False)
        return self._app

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._service.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._service.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return
