"""`--late demote` in a served model: a doomed request is answered 200 and says by how much it is late."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from onbudget.core.deadline import Deadline
from onbudget.serve import exchange
from onbudget.serve.lanes import Batch
from onbudget.serve.probes import ready, status
from onbudget.serve.service import Service
from onbudget.serve.settings import Settings
from tests.support.spin import spin_model

OWN = (b"x-deadline-ms", b"30000")


@pytest.fixture(scope="module")
def spin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return spin_model(tmp_path_factory.mktemp("spin") / "spin.onnx")


def ask(service: Service, value: float, *headers: tuple[bytes, bytes]) -> asyncio.Future[exchange.Response]:
    done: asyncio.Future[exchange.Response] = asyncio.get_running_loop().create_future()
    body = json.dumps({"instances": [[value]]}).encode()
    service.predict(exchange.Request(exchange.Head(headers), body, time.monotonic()), done.set_result)
    return done


def late_by(response: exchange.Response) -> float | None:
    told = dict(response.headers).get(b"x-onbudget-late")
    return None if told is None else float(told)


async def doomed(path: Path, late: str) -> tuple[Service, Any]:
    """A ready service in which whoever finds somebody waiting is doomed, and whose lanes sleep on."""
    service = Service(path, Settings(lanes=1, p95=30.0, late=late))
    await service.start()
    assert service.model is not None
    policy = service.model.policy
    assert isinstance(policy, Deadline)
    policy.reserve = 100.0
    service.model.lanes.submit = service.model.queue.offer  # type: ignore[method-assign]  # nobody is woken
    return service, service.model


def test_at_the_door_a_doomed_request_is_let_in_as_late_while_few_are(spin: Path) -> None:
    """The first is in time, the second waits in the background; a caller's own deadline and an overload are refused."""

    async def go() -> None:
        service, model = await doomed(spin, "demote")
        first, second = ask(service, 0.0), ask(service, 0.0)
        assert (model.queue.waiting, model.queue.behind) == (1, 1)
        assert service.gate(1, 0.0) is None  # the door looks and lets the next one in
        own = await ask(service, 0.0, OWN)
        assert (own.status, json.loads(own.body)["reason"]) == (429, "late")
        for _ in range(400):
            model.spare.count(False)  # an overload: each of these was doomed
        assert service.gate(1, 0.0) is not None
        assert (await ask(service, 0.0)).status == 429
        body = json.loads(status(service).body)
        assert body["queue"]["late_items"] == 1
        assert body["late"]["mode"] == "demote"
        assert body["late"]["doomed_share"] > 0.08
        assert json.loads(ready(service).body)["settings"]["late"] == "demote"
        batch = Batch(model.queue.take(None, 9) + model.queue.take(None, 9, late=True), "late", time.monotonic())
        batch.settled = [(ticket, {"y": 1.0}) for ticket in batch.tickets]
        batch.tickets[1].group.deadline -= 30.5  # it came that much earlier
        service._deliver(batch)
        assert (first.result().status, late_by(first.result())) == (200, None)
        assert second.result().status == 200
        over = late_by(second.result())
        assert over is not None
        assert over >= 500
        service.metrics.fold()
        metrics = service.metrics.render()[0].decode()
        assert 'onbudget_demoted_total{where="door"} 1.0' in metrics
        assert 'onbudget_batches_total{why="late"} 1.0' in metrics
        assert not service._open
        await service.stop()

    asyncio.run(go())


def test_with_shed_nobody_is_late_on_purpose(spin: Path) -> None:
    """`--late shed` refuses at once, and says that it does."""

    async def go() -> None:
        service, model = await doomed(spin, "shed")
        waits = ask(service, 0.0)
        assert (await ask(service, 0.0)).status == 429
        assert model.queue.behind == 0
        assert json.loads(status(service).body)["late"] == {"mode": "shed"}
        assert json.loads(ready(service).body)["settings"]["late"] == "shed"
        service._drain_by = 1.0  # long ago: its lanes sleep on
        await service.stop()
        assert waits.result().status == 503

    asyncio.run(go())


def test_who_waits_past_the_budget_is_answered_late(spin: Path) -> None:
    """Behind a run that hangs until it is stopped, a request passes its deadline; then it is answered all the same."""

    async def go() -> None:
        service = Service(spin, Settings(lanes=1, threads=2, p95=0.2, stuck_after=0.4, policy="deadline"))
        await service.start()
        first = ask(service, 1e15)
        while not service.model or not service.model.lanes.busy:
            await asyncio.sleep(0.001)
        second = ask(service, 0.0)
        assert (await asyncio.wait_for(first, 30)).status == 500
        answer = await asyncio.wait_for(second, 30)
        assert answer.status == 200
        assert late_by(answer) is not None
        assert service.metrics.live.demoted == {"queue": 1}
        assert service.model is not None
        assert service.model.queue.items == service.model.queue.pending == 0
        await service.stop()

    asyncio.run(go())


def test_a_hang_up_in_the_background_frees_its_place(spin: Path) -> None:
    """Whoever leaves while it waits to be late is not run, and stopping tells the others."""

    async def go() -> None:
        service, model = await doomed(spin, "demote")
        ask(service, 0.0)
        told: list[exchange.Response] = []
        request = exchange.Request(exchange.EMPTY, b'{"instances": [[0.0]]}', time.monotonic())
        group = service.predict(request, told.append)
        stays = ask(service, 0.0)
        assert group is not None
        assert model.queue.behind == 2
        service.cancel(group)
        assert (model.queue.behind, model.queue.items, told) == (1, 2, [])
        service._drain_by = 1.0  # long ago
        await service.stop()
        assert stays.result().status == 503

    asyncio.run(go())


@pytest.mark.parametrize(
    ("headers", "late", "counted"), [((), "", True), ((OWN,), "", False), ((), "door", False)], ids=str
)
def test_a_surprise_is_who_was_let_in_to_be_in_time(
    spin: Path, headers: tuple[tuple[bytes, bytes], ...], late: str, counted: bool
) -> None:
    """Only answers that are late by surprise take from the share: not those sent to be late, nor callers' own."""

    async def go() -> None:
        service, model = await doomed(spin, "demote")
        waits = ask(service, 0.0, *headers)
        batch = Batch(model.queue.take(None, 9), "idle", time.monotonic())
        batch.settled = [(ticket, {"y": 1.0}) for ticket in batch.tickets]
        group = batch.tickets[0].group
        group.deadline, group.late = time.monotonic() - 1.0, late
        service._deliver(batch)
        told = late_by(await waits)
        assert told is not None
        assert told >= 1000
        assert (model.spare.late > 0) is counted
        await service.stop()

    asyncio.run(go())
