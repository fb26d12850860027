"""What Prometheus reads, checked value by value with Prometheus' own parser."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from onbudget.core.queue import Group, Queue
from onbudget.serve.lanes import Batch
from onbudget.serve.metrics import SECONDS, Metrics


def read(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample of a scrape: (name, sorted labels) → value."""
    metrics.fold()
    return scraped(metrics)


def scraped(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The same of what was folded already."""
    body, kind = metrics.render()
    assert kind.startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return read(metrics)[name, tuple(sorted(labels.items()))]


def batch(arrivals: list[float], why: str = "idle", **more: Any) -> Batch:
    """A batch whose items' requests arrived then; taken at 10 s, decoded in 1 ms, run in 4 ms unless told otherwise."""
    tickets = []
    for arrived in arrivals:
        group = Group(arrived, 1, lambda _: None)
        group.add(("row", b""))
        tickets += group.tickets
    made = Batch(tickets, why, 10.0)
    made.decoded, made.ran, made.rows = 10.001, 10.005, len(tickets)
    for name, given in more.items():
        setattr(made, name, given)
    return made


def test_every_outcome_is_counted() -> None:
    """Answers, refusals and hang-ups are all counted, by outcome and route, and none hides in another."""
    metrics = Metrics()
    for outcome, times in (("ok", 5), ("shed", 3), ("bad-content", 2), ("gone", 1), ("slow-client", 1)):
        for _ in range(times):
            metrics.request(outcome, 0.004)
    metrics.request("ok", 0.004, route="/v2")
    told = read(metrics)
    counted = {
        dict(labels)["outcome"]: n
        for (name, labels), n in told.items()
        if name == "onbudget_requests_total" and dict(labels)["route"] == "/predict"
    }
    assert counted == {"ok": 5, "shed": 3, "bad-content": 2, "gone": 1, "slow-client": 1}
    assert value(metrics, "onbudget_requests_total", outcome="ok", route="/v2") == 1
    for outcome, count in counted.items():
        assert value(metrics, "onbudget_request_seconds_count", outcome=outcome, route="/predict") == count


def test_cheap_refusals_do_not_flatter_the_answers() -> None:
    """Latency is kept apart by outcome: a thousand refusals leave the answers' histogram as it was."""
    metrics = Metrics()
    metrics.request("ok", 0.2)
    before = {k: v for k, v in read(metrics).items() if ("outcome", "ok") in k[1]}
    for _ in range(1000):
        metrics.request("shed", 0.00002)
    assert {k: v for k, v in read(metrics).items() if ("outcome", "ok") in k[1]} == before


def test_the_budget_is_an_edge() -> None:
    """The bucket at the budget counts exactly the answers in budget, one that hits it included; the rest are late."""
    metrics = Metrics(p95=0.017)
    for seconds in (0.001, 0.0169, 0.017, 0.0171, 0.5):
        metrics.request("ok", seconds)
    metrics.request("shed", 0.5)  # a refusal is not a late answer
    labels = {"outcome": "ok", "route": "/predict"}
    assert value(metrics, "onbudget_request_seconds_bucket", le="0.017", **labels) == 3
    assert value(metrics, "onbudget_request_seconds_bucket", le="+Inf", **labels) == 5
    assert value(metrics, "onbudget_request_seconds_sum", **labels) == pytest.approx(0.552)
    assert value(metrics, "onbudget_late_total") == 2
    assert value(metrics, "onbudget_budget_seconds") == 0.017


def test_without_a_budget_nothing_is_late() -> None:
    """No budget: neither of its metrics exists, and the edges are the fixed ones."""
    metrics = Metrics()
    metrics.request("ok", 60.0)
    told = read(metrics)
    assert not [name for name, _ in told if "late" in name or "budget_seconds" in name]
    edges = [dict(labels)["le"] for name, labels in told if name == "onbudget_request_seconds_bucket"]
    assert sorted(map(float, edges)) == [*SECONDS, float("inf")]


def test_a_batch_is_written_once() -> None:
    """One call per batch gives its size, why it left, each item's wait, and its decode and run times (pain 55, 80)."""
    metrics = Metrics()
    metrics.batch(batch([9.99, 9.98, 9.9], "full"), 10.1)
    metrics.batch(batch([9.5]), 10.1)
    assert value(metrics, "onbudget_batches_total", why="full") == 1
    assert value(metrics, "onbudget_batches_total", why="idle") == 1
    assert value(metrics, "onbudget_batch_size_bucket", le="1.0") == 1
    assert value(metrics, "onbudget_batch_size_bucket", le="2.0") == 1
    assert value(metrics, "onbudget_batch_size_bucket", le="3.0") == 2
    assert value(metrics, "onbudget_batch_size_sum") == 4
    assert value(metrics, "onbudget_queue_seconds_count") == 4
    assert value(metrics, "onbudget_queue_seconds_sum") == pytest.approx(0.01 + 0.02 + 0.1 + 0.5)
    assert value(metrics, "onbudget_decode_seconds_sum") == pytest.approx(0.002)
    assert value(metrics, "onbudget_infer_seconds_sum") == pytest.approx(0.008)


def test_a_batch_that_never_ran_has_no_run_time() -> None:
    """All items undecodable, or a lane that hung: the batch is counted, but no run is made up for it."""
    metrics = Metrics()
    metrics.batch(batch([9.9], rows=0, ran=10.001), 10.1)
    metrics.batch(batch([9.9], decoded=10.001, ran=10.0), 10.1)
    assert value(metrics, "onbudget_batches_total", why="idle") == 2
    assert value(metrics, "onbudget_infer_seconds_count") == 0
    assert value(metrics, "onbudget_batch_size_count") == 0
    assert value(metrics, "onbudget_queue_seconds_count") == 2


def test_gauges_follow_the_queue_and_the_lanes() -> None:
    """Gauges are read when they are scraped: what waits, what is in flight, lanes, restarts, readiness, the model."""
    queue = Queue(100, 10_000)
    group = Group(0.0, 300, lambda _: None)
    for _ in range(3):
        group.add(("row", b""))
    queue.offer(group)

    class Two(list[int]):
        busy, restarts = 1, 4

    model: Any = SimpleNamespace(
        queue=queue,
        lanes=Two([1, 2]),
        path=Path("models/tiles.onnx"),
        runner=SimpleNamespace(sha256="abc", providers=["CPUExecutionProvider"]),
        metadata=SimpleNamespace(task="classify"),
        cost=None,
    )
    metrics = Metrics()
    assert value(metrics, "onbudget_ready") == 0
    is_ready = True
    metrics.serve(model, lambda: is_ready)
    told = {name: n for (name, labels), n in read(metrics).items() if not labels}
    assert told["onbudget_queue_items"] == told["onbudget_in_flight_items"] == 3
    assert told["onbudget_in_flight_bytes"] == 300
    assert (told["onbudget_lanes"], told["onbudget_lanes_busy"], told["onbudget_lane_restarts_total"]) == (2, 1, 4)
    assert told["onbudget_ready"] == 1
    info = next(dict(labels) for name, labels in read(metrics) if name == "onbudget_model_info")
    assert (info["name"], info["sha256"], info["task"], info["provider"]) == (
        "tiles",
        "abc",
        "classify",
        "CPUExecutionProvider",
    )
    queue.take(None, 2)
    queue.close(group)
    is_ready = False
    assert value(metrics, "onbudget_in_flight_bytes") == 0
    assert value(metrics, "onbudget_ready") == 0


@pytest.mark.skipif(sys.platform != "linux", reason="prometheus_client reads /proc")
def test_the_process_is_measured() -> None:
    """CPU seconds and resident memory of this process are there."""
    metrics = Metrics()
    assert value(metrics, "process_cpu_seconds_total") > 0
    assert value(metrics, "process_resident_memory_bytes") > 1_000_000


def test_two_servers_in_one_process_do_not_share_counters() -> None:
    """Each server has its own registry: two apps in one process neither clash nor add up."""
    first, second = Metrics(), Metrics()
    first.request("ok", 0.001)
    second.request("ok", 0.001)
    second.request("ok", 0.001)
    assert value(first, "onbudget_requests_total", outcome="ok", route="/predict") == 1
    assert value(second, "onbudget_requests_total", outcome="ok", route="/predict") == 2


def test_a_scrape_while_requests_are_counted_is_whole() -> None:
    """Read from another thread at any moment, buckets never decrease from edge to edge nor from scrape to scrape."""
    metrics = Metrics(0.02)
    done = threading.Event()

    def write() -> None:
        outcomes = ("ok", "shed", "gone", "bad-content", "too-large", "run-failed")
        for i in range(30_000):
            metrics.request(outcomes[i % len(outcomes)], i % 40 / 1000)
            if i % 100 == 0:
                metrics.fold()
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    last: dict[Any, float] = {}
    while not done.is_set():
        now = scraped(metrics)
        growing = {
            k: v for k, v in now.items() if k[0].endswith(("_bucket", "_count")) or k[0] == "onbudget_requests_total"
        }
        assert all(growing[key] >= count for key, count in last.items())
        last = growing
    writer.join()
    total = sum(v for (name, _), v in read(metrics).items() if name == "onbudget_requests_total")
    assert total == 30_000


def test_counting_needs_no_prometheus_client() -> None:
    """The renderer is imported with the first scrape, not at start."""
    code = (
        "import sys\n"
        "from onbudget.serve.metrics import Metrics\n"
        "m = Metrics(0.02)\n"
        "m.request('ok', 0.01)\n"
        "print('prometheus_client' in sys.modules)\n"
        "m.render()\n"
        "print('prometheus_client' in sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout.split() == ["False", "True"]
