"""The FastAPI application: in a test client, behind a middleware, mounted in another one."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from fastapi.testclient import TestClient

from onbudget.core.errors import BundleError, NotReady, ProviderError
from onbudget.core.queue import Group
from onbudget.serve import exchange
from onbudget.serve.app import create_app
from onbudget.serve.probes import status
from onbudget.serve.service import Service
from onbudget.serve.settings import Settings
from tests.support.tiles import Tiles


def body(tiles: Tiles, count: int = 1) -> dict[str, Any]:
    return {"tiles": [base64.b64encode(t.tobytes()).decode() for t in tiles.some(count)]}


def test_the_application_serves_in_a_test_client(tiles: Tiles) -> None:
    """A user's test needs no server: the model is ready when the client is."""
    with TestClient(create_app(tiles.bundle)) as client:
        answers = client.post("/predict", json=body(tiles, 3)).json()["predictions"]
        assert [a["label"] for a in answers] == [label for label, _ in tiles.expect(tiles.some(3))]
        assert client.get("/ready").status_code == 200
        assert client.get("/health").json() == {"status": "ok", "classes": list(tiles.labels)}
        assert client.get("/openapi.json").status_code == 200


def test_the_application_knows_the_class_too(tiles: Tiles) -> None:
    """`X-Priority` is read behind a user's stack as it is on the fast path."""
    with TestClient(create_app(tiles.bundle)) as client:
        assert client.post("/predict", json=body(tiles), headers={"X-Priority": "1"}).status_code == 200
        refused = client.post("/predict", json=body(tiles), headers={"X-Priority": "urgent"})
        assert (refused.status_code, refused.json()["detail"][:20]) == (400, "X-Priority: 'urgent'")


def test_a_users_middleware_guards_predict(tiles: Tiles) -> None:
    """The hot routes lie behind what a user adds: a refused request reaches no lane."""
    app = create_app(tiles.bundle)

    @app.middleware("http")
    async def guard(request: Request, go: Callable[[Request], Awaitable[Response]]) -> Response:
        if request.headers.get("authorization") != "Bearer right":
            return JSONResponse({"detail": "who are you?"}, 401)
        return await go(request)

    with TestClient(app) as client:
        assert client.post("/predict", json=body(tiles)).status_code == 401
        answer = client.post("/predict", json=body(tiles), headers={"authorization": "Bearer right"})
        assert answer.status_code == 200


def test_a_mounted_application_starts_on_its_first_request(tiles: Tiles) -> None:
    """Starlette runs no lifespan for mounted apps; the first request loads the model, waits for it and is answered."""
    outer, model = FastAPI(), create_app(tiles.bundle)
    outer.mount("/model", model)
    with TestClient(outer) as client:
        answer = client.post("/model/predict", json=body(tiles))
        assert answer.status_code == 200
        assert answer.json()["predictions"][0]["label"] == tiles.expect(tiles.some(1))[0][0]
    asyncio.run(model.state.service.stop())


def test_a_probe_starts_a_mounted_application(tiles: Tiles) -> None:
    """A balancer asks only `/ready` until it says yes: that must be enough to start the model."""
    outer, model = FastAPI(), create_app(tiles.bundle)
    outer.mount("/model", model)
    with TestClient(outer) as client:
        for _ in range(500):
            if client.get("/model/ready").status_code == 200:
                break
        assert client.get("/model/ready").json()["status"] == "ready"
    asyncio.run(model.state.service.stop())


def test_an_application_may_be_started_again(tiles: Tiles) -> None:
    """One module-level app, a test client for each test: every one finds a served model."""
    app = create_app(tiles.bundle)
    for _ in range(2):
        with TestClient(app) as client:
            assert client.post("/predict", json=body(tiles)).status_code == 200


def test_a_model_that_cannot_be_served_fails_the_start(tmp_path: Path, tiles: Tiles) -> None:
    """A missing file or an absent provider ends the start with its own error, not the first request."""
    with pytest.raises(BundleError, match=r"none\.onnx"), TestClient(create_app(tmp_path / "none.onnx")):
        pass
    settings = Settings(provider="CUDAExecutionProvider,cpu")
    with pytest.raises(ProviderError, match="CUDAExecutionProvider"), TestClient(create_app(tiles.bundle, settings)):
        pass


def test_a_cancelled_call_frees_its_places_and_gets_no_reply(tiles: Tiles) -> None:
    """Cancelling before the batch is back: no reply, nothing in flight, and the server goes on."""

    async def go() -> None:
        service = Service(tiles.bundle)
        await service.start()
        assert service.model is not None
        replies: list[exchange.Response] = []
        request = exchange.Request(exchange.EMPTY, _json(tiles, 4), asyncio.get_running_loop().time())
        group = service.predict(request, replies.append)
        assert isinstance(group, Group)
        service.cancel(group)
        service.cancel(group)  # twice is once
        assert service.model.queue.items == service.model.queue.nbytes == 0
        done = asyncio.get_running_loop().create_future()
        service.predict(request, done.set_result)
        assert (await done).status == 200
        assert replies == []
        assert service.model.queue.items == 0
        await service.stop()

    asyncio.run(go())


def test_after_the_stop_callers_are_told(tiles: Tiles) -> None:
    """A stopped service answers 503 with the reason and when to come back."""

    async def go() -> exchange.Response:
        service = Service(tiles.bundle)
        await service.start()
        await service.stop()
        told: list[exchange.Response] = []
        assert service.predict(exchange.Request(exchange.EMPTY, b"{}", 0.0), told.append) is None
        return told[0]

    response = asyncio.run(go())
    assert response.status == NotReady.status
    assert (b"retry-after", b"1") in response.headers
    assert b'"reason": "stopped"' in response.body


def _json(tiles: Tiles, count: int) -> bytes:
    import json

    return json.dumps(body(tiles, count)).encode()


def test_the_status_follows_what_is_sent(tiles: Tiles) -> None:
    """Answers, bad requests and batches are in every window, and the limits that hold are there."""
    with TestClient(create_app(tiles.bundle, Settings(p95=30.0, lanes=1, max_batch=4))) as client:
        for _ in range(3):
            assert client.post("/predict", json=body(tiles, 2)).status_code == 200
        assert client.post("/predict", content=b"{").status_code == 400
        told = client.get("/status").json()
        assert (told["status"], told["budget_ms"], told["policy"]) == ("ready", 30_000, "deadline")
        assert told["limits"]["lanes"] == 1
        assert 1 <= told["limits"]["max_batch"] <= 4
        assert (told["accepted"], told["refused"]) == (3, 0)
        assert [window["window_s"] for window in told["windows"]] == [10, 60, 300]
        for window in told["windows"]:
            assert (window["offered"], window["answered"], window["latency"]["count"]) == (4, 3, 3)
            assert window["in_budget_share"] == 0.75
            assert window["batches"] == sum(window["left"].values()) > 0
        assert told["queue"] == {"waiting_items": 0, "late_items": 0, "in_flight_items": 0, "in_flight_bytes": 0}
        assert told["process_cpu_s"] > told["lanes_cpu_s"] > 0
        assert told["predicted_limit_rate"] is None
        assert client.post("/status").status_code == 405


def test_refusals_are_told_by_reason(tiles: Tiles) -> None:
    """A request that finds no room is shed, and /status says for want of what."""
    with TestClient(create_app(tiles.bundle, Settings(max_queue_bytes=10_000, max_queue=1))) as client:
        service = client.app.state.service  # type: ignore[attr-defined]  # it is the application that was made
        service.model.queue.items = 1  # somebody is in flight
        answer = client.post("/predict", json=body(tiles))
        service.model.queue.items = 0
        assert (answer.status_code, answer.json()["reason"]) == (429, "queue_full")
        told = client.get("/status").json()
        assert (told["refused"], told["windows"][0]["refused"]) == (1, {"queue_full": 1})
        assert told["windows"][0]["shed_share"] == 1


def test_ready_says_the_budget_and_the_limit_once_it_is_known(tiles: Tiles) -> None:
    """Unknown is left out; what /status predicted is then in /ready and in the metrics too."""
    with TestClient(create_app(tiles.bundle, Settings(p95=0.5))) as client:
        ready = client.get("/ready").json()
        assert ready["p95_ms"] == 500
        assert "predicted_limit_rate" not in ready
        assert "onbudget_predicted_limit" not in client.get("/metrics").text
        client.app.state.service.metrics.live.predicted = 1234.5  # type: ignore[attr-defined]  # as above
        assert client.get("/ready").json()["predicted_limit_rate"] == 1234.5
        assert "onbudget_predicted_limit 1234.5" in client.get("/metrics").text


def test_a_status_before_the_model_says_why(tmp_path: Path) -> None:
    """Nothing is made up for a model that is not there."""
    told = status(Service(tmp_path / "none.onnx"))
    assert told.status == 503
    assert b"loading" in told.body
