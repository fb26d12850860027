"""A model inside somebody's application: mounted at any depth, started and drained by `onbudget.lifespan`."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Mount

import onbudget
from onbudget.core.errors import BundleError
from onbudget.serve.service import Service
from tests.support.tiles import Tiles


def body(tiles: Tiles, count: int = 1) -> dict[str, Any]:
    return {"tiles": [base64.b64encode(t.tobytes()).decode() for t in tiles.some(count)]}


def service_of(app: FastAPI) -> Service:
    found = app.state.service
    assert isinstance(found, Service)
    return found


def test_the_parents_lifespan_starts_and_stops_what_is_mounted(tiles: Tiles) -> None:
    """Two models, one of them deep down behind a middleware, are ready before the first request, and stopped after."""
    models = [onbudget.create_app(tiles.bundle), onbudget.create_app(tiles.bundle)]
    inner = Starlette(routes=[Mount("/b", GZipMiddleware(models[1]))])
    outer = FastAPI(lifespan=onbudget.lifespan)
    outer.mount("/a", models[0])
    outer.mount("/deep", inner)
    with TestClient(outer) as client:
        assert [service_of(model).state for model in models] == ["ready", "ready"]
        for path in ("/a", "/deep/b"):
            assert client.get(f"{path}/ready").status_code == 200
            assert client.post(f"{path}/predict", json=body(tiles)).status_code == 200
    assert [service_of(model).state for model in models] == ["stopped", "stopped"]


def test_it_can_be_entered_in_a_lifespan_of_ones_own(tiles: Tiles) -> None:
    """An application that has a lifespan enters ours in it; the model is ready within."""
    model = onbudget.create_app(tiles.bundle)
    seen: list[str] = []

    @contextlib.asynccontextmanager
    async def mine(app: FastAPI) -> AsyncIterator[None]:
        async with onbudget.lifespan(app):
            seen.append(service_of(model).state)
            yield

    outer = FastAPI(lifespan=mine)
    outer.mount("/model", model)
    with TestClient(outer):
        pass
    assert [*seen, service_of(model).state] == ["ready", "stopped"]


def test_a_model_that_cannot_be_served_fails_the_parents_start(tiles: Tiles, tmp_path: Path) -> None:
    """The start says why, and leaves no other model running."""
    good = onbudget.create_app(tiles.bundle)
    outer = FastAPI(lifespan=onbudget.lifespan)
    outer.mount("/good", good)
    outer.mount("/bad", onbudget.create_app(tmp_path / "none.onnx"))
    with pytest.raises(BundleError, match=r"none\.onnx"), TestClient(outer):
        pass
    assert service_of(good).state == "stopped"


def test_without_a_lifespan_a_model_that_cannot_be_served_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever waited for the load is answered with why it failed, and the log says so once, in a line."""
    outer = FastAPI()
    outer.mount("/model", onbudget.create_app(tmp_path / "none.onnx"))
    with TestClient(outer) as client:
        answer = client.post("/model/predict", json={})
        assert (answer.status_code, answer.json()["reason"]) == (503, "failed")
        assert "none.onnx" in answer.json()["detail"]
        assert client.get("/model/ready").status_code == 503
    gc.collect()  # a task whose error nobody took tells so now
    (record,) = caplog.records
    assert (record.getMessage()[:28], record.exc_info) == ("the model can't be served: /", None)


def test_a_mounted_model_lives_again_on_another_loop(tiles: Tiles) -> None:
    """One module-level app, a test client for each test, and nobody who stops it: every client is answered."""
    outer, model = FastAPI(), onbudget.create_app(tiles.bundle)
    outer.mount("/model", model)
    for _ in range(2):
        with TestClient(outer) as client:
            assert client.post("/model/predict", json=body(tiles)).status_code == 200
    asyncio.run(service_of(model).stop())


def test_a_request_before_the_start_and_one_at_the_end_are_answered(tiles: Tiles) -> None:
    """Requests that came before the model was there are answered once it is; the stop waits for one under way."""
    entered, go = threading.Event(), threading.Event()

    def decode(item: Any) -> np.ndarray[Any, Any]:
        entered.set()
        assert go.wait(30)
        return np.full((16, 16, 3), item, np.uint8)

    async def run() -> tuple[list[int], str, int]:
        outer = FastAPI()
        outer.mount("/early", onbudget.create_app(tiles.bundle))
        late = onbudget.create_app(tiles.bundle, decode=decode)
        outer.mount("/late", late)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=outer), base_url="http://here") as client:
            early = await asyncio.gather(*[client.post("/early/predict", json=body(tiles)) for _ in range(3)])
            async with onbudget.lifespan(outer):
                under_way = asyncio.create_task(client.post("/late/predict", json={"tiles": [7]}))
                await asyncio.to_thread(entered.wait, 30)
                stopping = asyncio.create_task(service_of(late).stop())
                await asyncio.sleep(0)
                state = service_of(late).state
                go.set()
                await stopping
            return [answer.status_code for answer in early], state, (await under_way).status_code

    assert asyncio.run(run()) == ([200, 200, 200], "draining", 200)
