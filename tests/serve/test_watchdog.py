"""A run that never ends, in a real ONNX Runtime session: stopped, answered, and the server goes on."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import onnx

from onbudget.serve import exchange
from onbudget.serve.probes import health
from onbudget.serve.service import Service
from onbudget.serve.settings import Settings
from tests.support.spin import spin_model


def test_a_hung_run_is_stopped_and_its_caller_told(tmp_path: Path) -> None:
    """RunOptions.terminate ends the run at --stuck-after: 500 for that batch, and the next request is answered."""

    async def ask(service: Service, value: float) -> exchange.Response:
        done: asyncio.Future[exchange.Response] = asyncio.get_running_loop().create_future()
        body = json.dumps({"instances": [[value]]}).encode()
        service.predict(exchange.Request(exchange.EMPTY, body, time.monotonic()), done.set_result)
        return await asyncio.wait_for(done, 30)

    async def go() -> list[exchange.Response]:
        service = Service(spin_model(tmp_path / "spin.onnx"), Settings(stuck_after=0.3, lanes=1))
        await service.start()
        stuck = await ask(service, 1e15)
        after = await ask(service, 0.0)
        told = health(service)
        await service.stop()
        return [stuck, after, told]

    stuck, after, told = asyncio.run(go())
    assert stuck.status == 500
    assert b"--stuck-after" in stuck.body
    assert (after.status, json.loads(after.body)) == (200, {"predictions": [{"y": [0.0]}]})
    assert b"lane_restarts" not in told.body  # the thread listened, so it is still the same one


def test_who_waits_is_told_at_its_deadline(tmp_path: Path) -> None:
    """429 `expired` comes while the lane still runs what was before it, and later requests are served."""
    ended: list[str] = []

    async def ask(service: Service, name: str, value: float, *headers: tuple[bytes, bytes]) -> exchange.Response:
        done: asyncio.Future[exchange.Response] = asyncio.get_running_loop().create_future()
        body = json.dumps({"instances": [[value]]}).encode()
        service.predict(exchange.Request(exchange.Head(headers), body, time.monotonic()), done.set_result)
        answer = await asyncio.wait_for(done, 30)
        ended.append(name)
        return answer

    async def go() -> list[exchange.Response]:
        # two threads in a run: never on the loop's own
        service = Service(spin_model(tmp_path / "spin.onnx"), Settings(stuck_after=1.0, lanes=1, threads=2))
        await service.start()
        first = asyncio.create_task(ask(service, "first", 1e15))
        while not service.model or not service.model.lanes.busy:
            await asyncio.sleep(0.001)
        patient = asyncio.create_task(ask(service, "patient", 0.0, (b"x-deadline-ms", b"20000")))
        await asyncio.sleep(0)  # it waits, and its deadline is far: the next one's comes sooner
        expired = await ask(service, "expired", 0.0, (b"x-deadline-ms", b"20"))
        assert (await first).status == 500
        assert (await patient).status == 200
        after = await ask(service, "after", 0.0, (b"x-deadline-ms", b"20000"))
        assert service.model.queue.items == service.model.queue.waiting == 0
        await service.stop()
        return [expired, after]

    expired, after = asyncio.run(go())
    assert ended == ["expired", "first", "patient", "after"]
    assert (expired.status, json.loads(expired.body)["reason"]) == (429, "expired")
    assert after.status == 200


def test_an_idle_lane_runs_a_lone_request_whatever_its_deadline(tmp_path: Path) -> None:
    """A deadline that has passed before the request is read: answered, for a free lane has nothing better to do."""

    async def go(policy: str) -> exchange.Response:
        settings = Settings(policy=policy, p95=0.02, lanes=1, threads=2)
        service = Service(spin_model(tmp_path / "spin.onnx"), settings)
        await service.start()
        done: asyncio.Future[exchange.Response] = asyncio.get_running_loop().create_future()
        headers = [(b"x-deadline-ms", b"0.001")]
        request = exchange.Request(exchange.Head(headers), b'{"instances": [[0.0]]}', time.monotonic())
        service.predict(request, done.set_result)
        answer = await asyncio.wait_for(done, 30)
        await service.stop()
        return answer

    for policy in ("deadline", "greedy"):
        assert asyncio.run(go(policy)).status == 200


def test_the_model_it_is_tested_with_is_valid(tmp_path: Path) -> None:
    """The looping model is a legal ONNX file."""
    onnx.checker.check_model(onnx.load(spin_model(tmp_path / "spin.onnx")))
