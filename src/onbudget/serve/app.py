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
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from onbudget.core.errors import UnknownModel
from onbudget.serve import probes
from onbudget.serve.adapted import adapt
from onbudget.serve.asking import Asking, Receive, Scope, Send, send_response
from onbudget.serve.batcher import MicroBatcher
from onbudget.serve.door import guard, route
from onbudget.serve.exchange import Response, as_json, refusal
from onbudget.serve.fleet import Fleet
from onbudget.serve.seam import Seam
from onbudget.serve.service import Service
from onbudget.serve.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

Endpoint = Callable[[Scope, Receive, Send], Awaitable[None]]
log = logging.getLogger("onbudget")
_PREDICT = re.compile(r"/models/([^/]+)/predict")


class Endpoints:
    """The hot routes over the models of a server. Each is `await endpoint(scope, receive, send)`.

    With `patient` a request that comes while the model loads waits for it, and its clock starts after that.
    """

    def __init__(self, fleet: Fleet, patient: bool = False) -> None:
        self.fleet = fleet
        self.service = fleet.default
        self._patient = patient
        self._starting: asyncio.Task[None] | None = None  # of the last life that a request began
        self.asking = Asking()
        self.table: dict[str, tuple[str, Endpoint]] = {
            "/predict": ("POST", partial(self._predict, "")),
            "/health": ("GET", self.health),
            "/ready": ("GET", self.ready),
            "/status": ("GET", self.status),
            "/metrics": ("GET", self.metrics),
        }

    def find(self, path: str) -> tuple[str, Endpoint] | None:
        """The method and the endpoint of a path; None for one that is not ours."""
        known = self.table.get(path)
        if known is None and (named := _PREDICT.fullmatch(path)):
            return "POST", partial(self._predict, unquote(named[1]))
        return known

    async def dispatch(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a path that `find` knows; another method than its own is 405."""
        found = self.find(path)
        assert found is not None
        method, endpoint = found
        if self.service.state == "loading" or self.service.orphaned:
            starting = self._start()  # a mounted app gets no lifespan: its first request starts it, a probe's too
            if self._patient and method == "POST":
                await asyncio.wait((starting,))  # a model that can't be served is told as any other 503
        if scope["method"] != method and not (method == "GET" and scope["method"] == "HEAD"):
            detail = {"detail": f"{path} takes {method}, not {scope['method']}"}
            allow = b"GET, HEAD" if method == "GET" else method.encode()
            await send_response(send, as_json(405, detail, (b"allow", allow)), scope)
            return
        await endpoint(scope, receive, send)

    def _start(self) -> asyncio.Task[None]:
        starting = self.service.start()
        if starting is not self._starting:
            self._starting = starting
            starting.add_done_callback(_tell)
        return starting

    async def _predict(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /predict`, or `POST /models/{name}/predict`."""
        try:
            service = self.fleet.find(name) if name else self.service
        except UnknownModel as error:
            await send_response(send, refusal(error), scope)
            return
        await self.asking.ask(scope, receive, send, service)

    async def health(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /health`."""
        await send_response(send, probes.health(self.service), scope)

    async def ready(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /ready`."""
        await send_response(send, probes.ready(self.service), scope)

    async def status(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /status`."""
        await send_response(send, probes.status(self.service), scope)

    async def metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /metrics`, rendered off the event loop."""
        self.service.metrics.fold()
        body, kind = await asyncio.to_thread(self.service.metrics.render)
        await send_response(send, Response(200, body, [(b"content-type", kind.encode())]), scope)


def _tell(starting: asyncio.Task[None]) -> None:
    """A start that nobody waits for: its failure goes to the log, in a line."""
    if not starting.cancelled() and (error := starting.exception()) is not None:
        log.error("the model can't be served: %s", error)


class _Route:
    """The hot paths as an ASGI app of their own, for Starlette's router."""

    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._endpoints.dispatch(route(scope), scope, receive, send)


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
    return _framework(Endpoints(Fleet([service]), patient=True), own_life=True)


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
    for path in (*endpoints.table, "/models/{name}/predict"):
        app.router.routes.append(Route(path, endpoint=_Route(endpoints), methods=None))
    add_docs(app, service)
    if own_life:  # else the door is around `Front`
        guard(app, service)
    return app


class Front:
    """The ASGI app of `onbudget serve`: hot paths first, everything else through FastAPI, which is made on demand."""

    def __init__(self, service: Service) -> None:
        self.endpoints = Endpoints(Fleet([service]))
        self._service = service
        self._app: FastAPI | None = None
        self._making = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            path = route(scope)
            if self.endpoints.find(path) is not None:
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
