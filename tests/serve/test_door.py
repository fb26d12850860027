"""API keys and other origins in an application of `create_app`, and behind a prefix."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pytest
from fastapi import FastAPI, WebSocket
from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from onbudget.core.errors import UsageError
from onbudget.serve.app import create_app
from onbudget.serve.door import route
from onbudget.serve.settings import Settings
from tests.support.tiles import Tiles

KEY = "the-only-key-of-this-test"
APP = "https://app.example.com"
SHOWN = {"authorization": f"Bearer {KEY}"}


@pytest.fixture
def guarded(tmp_path: Path) -> Settings:
    file = tmp_path / "keys.txt"
    file.write_text(KEY)
    file.chmod(0o600)
    return Settings(api_key_file=str(file), cors_origin=(APP,))


def body(tiles: Tiles, count: int = 1) -> bytes:
    return json.dumps({"tiles": [base64.b64encode(t.tobytes()).decode() for t in tiles.some(count)]}).encode()


def test_everything_but_the_probes_asks_for_a_key(tiles: Tiles, guarded: Settings) -> None:
    """Predictions, figures, pages, a user's own routes and paths that do not exist."""
    app = create_app(tiles.bundle, guarded)

    @app.get("/mine")
    def mine() -> str:
        return "mine"

    with TestClient(app) as client:
        for path, status in {"/health": 200, "/ready": 200}.items():
            assert client.get(path).status_code == status
        for path in ("/status", "/metrics", "/docs", "/docs/docs.js", "/openapi.json", "/mine"):
            refused = client.get(path)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Bearer realm="onbudget"')
            assert client.get(path, headers=SHOWN).status_code == 200
            assert client.get(path, headers={"x-api-key": KEY}).status_code == 200
            assert client.get(path, headers={"x-api-key": KEY[:-1]}).status_code == 401
        for path in ("/nowhere", "/health/", "//health", "/health/../status"):
            assert client.get(path).status_code == 401
        assert client.post("/predict", content=body(tiles)).status_code == 401
        assert client.post("/predict", content=body(tiles), headers=SHOWN).status_code == 200
        metrics = client.get("/metrics", headers=SHOWN).text
        assert 'onbudget_requests_total{outcome="unauthorized",route="/predict"} 1.0' in metrics
        assert KEY not in metrics + client.get("/status", headers=SHOWN).text + client.get("/ready").text


def test_a_websocket_asks_for_a_key_too(tiles: Tiles, guarded: Settings) -> None:
    """A route that a user adds is not open because it speaks another protocol."""
    app = create_app(tiles.bundle, guarded)

    @app.websocket("/live")
    async def live(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text("hello")
        await socket.close()

    with TestClient(app) as client:
        with client.websocket_connect("/live", headers=SHOWN) as socket:
            assert socket.receive_text() == "hello"
        with pytest.raises(WebSocketDisconnect) as told, client.websocket_connect("/live"):
            pass
        assert told.value.code == 1008


def test_browsers_ask_without_a_key_and_hear_about_refusals(tiles: Tiles, guarded: Settings) -> None:
    """A preflight carries no key; a page that may call can read a 401, and one that may not can read nothing."""
    with TestClient(create_app(tiles.bundle, guarded)) as client:
        asks = {"origin": APP, "access-control-request-method": "POST"}
        assert client.options("/predict", headers=asks).status_code == 204
        assert client.options("/predict", headers={**asks, "origin": "https://evil.example"}).status_code == 403
        assert client.options("/predict", headers={"origin": APP}).status_code == 401
        refused = client.get("/status", headers={"origin": APP})
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, APP)
        answered = client.get("/status", headers={"origin": "https://evil.example", **SHOWN})
        assert answered.status_code == 200
        assert "access-control-allow-origin" not in answered.headers
        assert answered.headers["vary"] == "origin"


def test_without_keys_and_origins_nothing_is_added(tiles: Tiles) -> None:
    """An application that asks for neither has no door, and answers without a word about origins."""
    app = create_app(tiles.bundle)
    assert app.user_middleware == []
    with TestClient(app) as client:
        answer = client.get("/status", headers={"origin": APP})
        assert answer.status_code == 200
        assert not {"vary", "access-control-allow-origin"} & set(answer.headers)
        asks = {"origin": APP, "access-control-request-method": "POST"}
        assert client.options("/predict", headers=asks).status_code == 405


def test_a_mounted_application_knows_its_own_paths(tiles: Tiles, guarded: Settings) -> None:
    """Its probes are open under the prefix too, and nothing else is."""
    outer = FastAPI()
    inner = create_app(tiles.bundle, guarded)
    outer.mount("/model", inner)
    with TestClient(inner), TestClient(outer) as client:
        assert client.get("/model/health").status_code == 200
        assert client.get("/model/status").status_code == 401
        assert client.get("/model/status", headers=SHOWN).status_code == 200


def test_a_missing_key_file_stops_the_application(tiles: Tiles) -> None:
    """`create_app` raises; it does not serve everybody instead."""
    with pytest.raises(UsageError, match="--api-key-file"):
        create_app(tiles.bundle, Settings(api_key_file="/nowhere/keys.txt"))


@pytest.mark.parametrize(
    ("root", "path", "told"),
    [
        ("", "/health", "/health"),
        ("/model", "/model/health", "/health"),
        ("/model", "/modelx/health", "x/health"),
        ("/model", "/health", "/health"),
        ("/model", "/model", ""),
    ],
)
def test_a_path_is_told_without_its_prefix(root: str, path: str, told: str) -> None:
    """What is left begins with a slash, or is no route of ours."""
    assert route({"root_path": root, "path": path}) == told


def test_packed_bodies_are_answered_as_others_are(tiles: Tiles) -> None:
    """The same predictions; damage, another encoding and a bomb are told by their status."""
    plain = body(tiles, 3)
    kind = {"content-type": "application/json"}
    with TestClient(create_app(tiles.bundle, Settings(max_body=1_000_000))) as client:

        def send(data: bytes, encoding: str) -> tuple[int, dict[str, str], str]:
            answer = client.post("/predict", content=data, headers={**kind, "content-encoding": encoding})
            return answer.status_code, dict(answer.headers), answer.text

        expected = client.post("/predict", content=plain, headers=kind)
        assert send(gzip.compress(plain), "gzip")[::2] == (200, expected.text)
        assert send(plain, "identity")[::2] == (200, expected.text)
        assert send(gzip.compress(plain)[:-1], "gzip")[0] == 400
        assert send(plain, "gzip")[0] == 400
        status, headers, _ = send(plain, "br")
        assert (status, headers["accept-encoding"]) == (415, "gzip")
        status, _, detail = send(gzip.compress(bytes(1_000_001)), "gzip")
        assert status == 413
        assert "--max-body" in detail
