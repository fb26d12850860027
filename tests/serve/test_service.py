"""One caller's misfortune is no other caller's: what may go wrong between a batch and its replies."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onbudget.serve import exchange
from onbudget.serve.app import Endpoints
from onbudget.serve.fleet import Fleet
from onbudget.serve.lanes import Batch
from onbudget.serve.probes import ready
from onbudget.serve.service import Service
from onbudget.serve.settings import Settings
from onbudget.serve.wire import PREDICT
from tests.support.spin import spin_model

BODY = b'{"instances": [[0.0]]}'


@pytest.fixture(scope="module")
def spin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return spin_model(tmp_path_factory.mktemp("spin") / "spin.onnx")


async def held(path: Path) -> Service:
    """A ready service whose lanes sleep on: what is sent to it waits until `deliver`."""
    service = Service(path, Settings(lanes=1))
    await service.start()
    assert service.model is not None
    service.model.lanes.submit = service.model.queue.offer  # type: ignore[method-assign]  # nobody is woken
    return service


def deliver(service: Service, value: Any = 1.0) -> None:
    """One batch of all that waits comes back."""
    assert service.model is not None
    batch = Batch(service.model.queue.take(None, 100), "idle", time.monotonic())
    batch.settled = [(ticket, {"y": value}) for ticket in batch.tickets]
    service._deliver(batch)


def outcomes(service: Service) -> dict[str, int]:
    return {outcome: told.fold().count for (outcome, _), told in service.metrics._requests.items()}


def test_who_is_more_urgent_goes_first(spin: Path) -> None:
    """`X-Priority` puts a request before those of other classes that came before it; one that is no class is 400."""

    async def go() -> None:
        service = await held(spin)
        assert service.model is not None
        told: list[exchange.Response] = []
        for value in (b"", b"3", b"1", b"0", b"2", b"1"):
            headers = [(b"x-priority", value)] if value else []
            service.predict(exchange.Request(exchange.Head(headers), BODY, time.monotonic()), told.append)
        assert [ticket.group.priority for ticket in service.model.queue.peek(None, 9)] == [1, 1, 2, 2, 2, 3]
        arrived = [ticket.group.arrived for ticket in service.model.queue.peek(None, 9)]
        assert arrived[:2] == sorted(arrived[:2])
        assert arrived[2:5] == sorted(arrived[2:5])
        assert told == []
        service.predict(exchange.Request(exchange.Head([(b"x-priority", b"9")]), BODY, time.monotonic()), told.append)
        assert told[0].status == 400
        deliver(service)
        assert len(told) == 7
        await service.stop()

    asyncio.run(go())


class Caller:
    """An ASGI caller of `/predict`: `says` are the messages that it sends, then it stays on the line."""

    def __init__(self, *says: dict[str, Any]) -> None:
        self.says = list(says) or [{"type": "http.request", "body": BODY}]
        self.heard: list[Any] = []
        self.asked = 0

    async def receive(self) -> dict[str, Any]:
        self.asked += 1
        if not self.says:
            await asyncio.Event().wait()
        return self.says.pop(0)

    async def send(self, message: Any) -> None:
        self.heard.append(message)

    def call(self, endpoints: Endpoints) -> asyncio.Task[None]:
        scope = {"method": "POST", "headers": [], "query_string": b""}
        return asyncio.ensure_future(endpoints.dispatch("/predict", scope, self.receive, self.send))


def test_a_cancelled_caller_costs_its_batch_mates_nothing(spin: Path) -> None:
    """A batch that comes back while one of its callers is being cancelled still answers the others (pain 41)."""

    async def go() -> tuple[list[Any], int]:
        service = await held(spin)
        endpoints = Endpoints(Fleet([service]))
        gone, stays = Caller(), Caller()
        first, second = gone.call(endpoints), stays.call(endpoints)
        while service.model is not None and service.model.queue.waiting < 2:
            await asyncio.sleep(0)
        first.cancel()  # by a middleware's timeout, say; it has not run yet when the batch comes back
        deliver(service)
        await asyncio.wait_for(second, 10)
        with pytest.raises(asyncio.CancelledError):
            await first
        left = service.model.queue.items if service.model else -1
        await service.stop()
        return [message.get("status") for message in stays.heard], left

    assert asyncio.run(go()) == ([200, None], 0)


def test_a_reply_that_raises_costs_its_batch_mates_nothing(spin: Path) -> None:
    """Whatever happens where an answer is handed over, the next one is handed over too."""

    async def go() -> list[int]:
        service = await held(spin)
        told: list[int] = []

        def raises(_: exchange.Response) -> None:
            raise OSError("the wire is cut")

        for reply in (raises, lambda response: told.append(response.status)):
            service.predict(exchange.Request(exchange.EMPTY, BODY, time.monotonic()), reply)
        deliver(service)
        await service.stop()
        return told

    assert asyncio.run(go()) == [200]


def test_an_answer_that_json_cannot_carry_is_500(spin: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A value that can't be written fails its request with a word to the caller and the cause in the log."""

    async def go() -> tuple[exchange.Response, dict[str, int]]:
        service = await held(spin)
        told: list[exchange.Response] = []
        service.predict(exchange.Request(exchange.EMPTY, BODY, time.monotonic()), told.append)
        deliver(service, value=object())
        await service.stop()
        return told[0], outcomes(service)

    response, counted = asyncio.run(go())
    assert response.status == 500
    assert "log" in json.loads(response.body)["detail"]
    assert counted == {"run-failed": 1}
    assert "could not be written as JSON" in caplog.text


def test_a_fault_of_ours_while_reading_is_500_and_not_the_callers(spin: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An exception that nobody foresaw is answered, counted and logged; uvicorn would have called it bad HTTP."""

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("nobody foresaw this")

    async def go() -> tuple[exchange.Response, dict[str, int]]:
        service = await held(spin)
        told: list[exchange.Response] = []
        request = exchange.Request(exchange.EMPTY, BODY, time.monotonic())
        assert service.predict(request, told.append, replace(PREDICT, parse=broken)) is None
        await service.stop()
        return told[0], outcomes(service)

    response, counted = asyncio.run(go())
    assert response.status == 500
    assert counted == {"run-failed": 1}
    assert "nobody foresaw this" in caplog.text


def test_a_load_that_fails_in_an_unforeseen_way_is_told(spin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service whose load raised anything at all says `failed` and why, and not `loading` for ever."""

    def broken(*_: Any) -> Any:
        raise MemoryError("no room for the model")

    async def go() -> exchange.Response:
        monkeypatch.setattr("onbudget.serve.service.Model", broken)
        service = Service(spin)
        with pytest.raises(MemoryError):
            await service.start()
        return ready(service)

    response = asyncio.run(go())
    assert response.status == 503
    assert json.loads(response.body)["reason"] == "failed"
    assert b"no room for the model" in response.body


def test_a_hang_up_is_counted_once_wherever_it_comes(spin: Path) -> None:
    """With half its body sent, or while it waits: each caller that left is one `gone`."""

    async def go() -> tuple[dict[str, int], int]:
        service = await held(spin)
        endpoints = Endpoints(Fleet([service]))
        half = Caller({"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"})
        await asyncio.wait_for(half.call(endpoints), 10)
        waits = Caller({"type": "http.request", "body": BODY}, {"type": "http.disconnect"})
        await asyncio.wait_for(waits.call(endpoints), 10)
        told = [message["status"] for caller in (half, waits) for message in caller.heard if "status" in message]
        assert told == [499, 499]  # for the middlewares around us, which call silence an error
        left = service.model.queue.items if service.model else -1
        await service.stop()
        return outcomes(service), left

    assert asyncio.run(go()) == ({"gone": 2}, 0)


def test_a_middleware_that_plays_the_body_again_does_not_stall_the_server(spin: Path) -> None:
    """The widespread `receive` that returns the same body whenever it is asked is asked once more, not for ever."""

    class Again(Caller):
        async def receive(self) -> dict[str, Any]:
            self.asked += 1
            if self.asked > 1000:
                raise AssertionError("asked for ever; the event loop stands still")
            return {"type": "http.request", "body": BODY}

    async def go() -> tuple[int, int]:
        service = await held(spin)
        endpoints = Endpoints(Fleet([service]))
        caller = Again()
        task = caller.call(endpoints)
        while caller.asked < 2:
            await asyncio.sleep(0.01)
        deliver(service)
        await asyncio.wait_for(task, 10)
        await service.stop()
        return caller.asked, caller.heard[0]["status"]

    assert asyncio.run(go()) == (2, 200)


def test_a_batch_that_outlives_its_loop_ends_quietly(spin: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A mounted application gets no farewell: a lane that comes back to a closed loop notes it and lives on."""

    async def go() -> tuple[Service, Batch]:
        service = Service(spin, Settings(lanes=1))
        await service.start()
        return service, Batch([], "idle", 0.0)

    service, batch = asyncio.run(go())
    assert service._loop is not None
    service._post(service._loop, batch)
    assert "event loop was closed" in caplog.text
    assert service.model is not None
    service.model.lanes.stop()
    assert not service.hung


def test_a_service_that_stops_waits_for_no_prediction(spin: Path) -> None:
    """What predicts for /status is stopped with it; in another life it predicts again."""

    async def go() -> None:
        service = Service(spin, Settings(lanes=1))
        await service.start()
        first = service.live_status.foresight
        assert not first.stopped
        await service.stop()
        assert first.stopped
        await service.start()
        assert not service.live_status.foresight.stopped
        await service.stop()

    asyncio.run(go())
