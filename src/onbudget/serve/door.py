"""Who may come in, for everything that goes through the app: API keys and other origins' pages.

`onbudget serve` puts it around the whole app, `create_app` among the application's middlewares. `/health` and `/ready`
are open; everything else asks for a key where there are keys: predictions, figures, pages, and paths that do not exist.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from onbudget.serve.access import OPEN, Access, access, refused
from onbudget.serve.cors import Lines, Origins
from onbudget.serve.exchange import Response, refusal
from onbudget.serve.service import Service

if TYPE_CHECKING:
    from fastapi import FastAPI

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def route(scope: Scope) -> str:
    """The path without the prefix under which a proxy or another application has us."""
    root, path = scope.get("root_path", ""), str(scope["path"])
    return path[len(root) :] if root and path.startswith(root) else path


class Door:
    """An ASGI app around another one."""

    def __init__(self, app: App, service: Service, access: Access | None, origins: Origins | None) -> None:
        self._app = app
        self._service = service
        self._access = access
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        values: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            values.setdefault(name, value)
        if self._origins is not None and scope["type"] == "http":
            asked = self._origins.preflight(scope["method"], values)
            if asked is not None:
                await _answer(asked, send)
                return
            send = _adding(self._origins.lines(values.get(b"origin")), send)
        path = route(scope)
        if self._access is None or path in OPEN or self._access.lets(values):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})  # policy violation, RFC 6455 7.4.1
        else:
            error = refused(values)
            if path == "/predict":
                self._service.count(error.code)
            response = refusal(error)
            response.headers.append((b"connection", b"close"))  # its body is not read
            await _answer(response, send)


async def _answer(response: Response, send: Send) -> None:
    headers = list(response.headers)
    if response.status != 204:
        headers.append((b"content-length", b"%d" % len(response.body)))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


def _adding(lines: Lines, send: Send) -> Send:
    async def go(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *lines]}
        await send(message)

    return go


def guard(app: FastAPI, service: Service) -> None:
    """Put the door among an application's middlewares, where its settings ask for one; UsageError for keys' files."""
    settings = service.settings
    keys = access(settings, {})
    origins = Origins(settings.cors_origin) if settings.cors_origin else None
    if keys is not None or origins is not None:
        app.add_middleware(Door, service=service, access=keys, origins=origins)
