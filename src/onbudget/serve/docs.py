"""`/docs` and `/openapi.json` for the FastAPI application: offline, from files in the package.

The page is Swagger UI (its version and licence are in `web/swagger`), lies under relative addresses, so that it works
behind any mount or proxy, and carries a content security policy under which it cannot fetch anything from elsewhere.
"""

from __future__ import annotations

import gzip
import html
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onbudget.serve.openapi import ApiInfo, document
from onbudget.serve.probes import ready

if TYPE_CHECKING:
    from fastapi import FastAPI

    from onbudget.serve.service import Service

_FOLDER = Path(__file__).resolve().parents[1] / "web" / "swagger"
_ASSETS = {
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
    "docs.js": "text/javascript; charset=utf-8",
}
# Swagger UI styles its parts inline and draws its icons from data: addresses.
POLICY = "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; frame-ancestors 'self'"


def docs_html(openapi_url: str = "openapi.json", root: str = "docs") -> str:
    """The page; `openapi_url` and `root` (where `asset` is served) are addresses as seen from the page itself."""
    url, base = html.escape(openapi_url, quote=True), html.escape(root.rstrip("/"), quote=True)
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8"><title>onbudget: API</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f'<link rel="stylesheet" href="{base}/swagger-ui.css"></head>\n'
        '<body><div id="docs"></div><noscript>This page needs JavaScript; '
        f'<a href="{url}">the document itself</a> does not.</noscript>\n'
        f'<script src="{base}/swagger-ui-bundle.js"></script>\n'
        f'<script src="{base}/docs.js" data-openapi="{url}"></script></body></html>\n'
    )


def asset(name: str) -> tuple[bytes, str]:
    """A file of the page → its bytes and content type; KeyError for a name that is none of them."""
    kind = _ASSETS[name]
    packed = _FOLDER / f"{name}.gz"
    return (gzip.decompress(packed.read_bytes()) if packed.exists() else (_FOLDER / name).read_bytes()), kind


@cache
def packed_asset(name: str) -> tuple[bytes, str]:
    """The same, gzipped, for clients that take it so; kept, because the files never change."""
    kind = _ASSETS[name]
    packed = _FOLDER / f"{name}.gz"
    return (packed.read_bytes() if packed.exists() else gzip.compress((_FOLDER / name).read_bytes(), mtime=0)), kind


def add_docs(app: FastAPI, service: Service) -> None:
    """Give the application `/docs`, `/openapi.json`, and an `openapi()` that knows the hot routes too."""
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, JSONResponse, Response
    from starlette.routing import Route

    from_routes = app.openapi  # what FastAPI derives from routes that a user added

    def openapi() -> dict[str, Any]:
        theirs = from_routes()
        return _merged(document(info_of(service)), theirs) if service.model is not None else theirs

    async def openapi_json(request: Request) -> Response:
        if service.model is None:
            told = ready(service)  # 503 with the reason
            return Response(told.body, told.status, {k.decode(): v.decode() for k, v in told.headers})
        prefix = request.scope.get("root_path", "")  # where we are mounted
        return JSONResponse({**openapi(), "servers": [{"url": prefix}]} if prefix else openapi())

    async def docs(_: Request) -> Response:
        return HTMLResponse(docs_html(), headers={"content-security-policy": POLICY})

    async def docs_file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _ASSETS:
            return JSONResponse({"detail": f"there is no {name!r} here"}, 404)
        headers = {"cache-control": "public, max-age=86400", "vary": "accept-encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            body, kind = packed_asset(name)
            return Response(body, headers={**headers, "content-encoding": "gzip"}, media_type=kind)
        body, kind = asset(name)
        return Response(body, headers=headers, media_type=kind)

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI documents this as the way to extend it
    for path, endpoint in (("/openapi.json", openapi_json), ("/docs", docs), ("/docs/{name}", docs_file)):
        app.router.routes.append(Route(path, endpoint))


def info_of(service: Service) -> ApiInfo:
    """What the document is made from, of a service whose model is loaded."""
    model = service.model
    assert model is not None
    return ApiInfo(model.contract, model.metadata, service.settings, model.runner.outputs)


def _merged(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """Our document with the user's paths and schemas; where both have a name, the user's routes came first."""
    schemas = {**ours["components"]["schemas"], **theirs.get("components", {}).get("schemas", {})}
    components = {**theirs.get("components", {}), **ours["components"], "schemas": schemas}
    return {**ours, "paths": {**ours["paths"], **theirs.get("paths", {})}, "components": components}
