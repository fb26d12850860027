"""What a server tells Prometheus: our own counters, written by the event loop, rendered when somebody asks.

Rules of this file. One writer: `request`, `batch` and `fold` are called on the event loop only, so that no lock is
paid for; a scrape reads what was last folded, from another thread. Every request is counted by how it ended, refusals
and hang-ups too; latency is kept apart by outcome, so that cheap refusals never flatter the answers. Edges are fixed
but for one, which is the budget itself: the share of answers in budget is exact. prometheus_client renders and is
imported with the first scrape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from onbudget import __version__
from onbudget.core.histogram import Histogram, Tally
from onbudget.serve.live import Live

if TYPE_CHECKING:
    from onbudget.serve.lanes import Batch
    from onbudget.serve.models import Model

SECONDS = (
    *(0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0),
)
SIZES = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0, 256.0, 512.0, 1024.0)


def _for_prometheus(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    """(le, count up to it) pairs ending with +Inf, and the sum of all values."""
    total = histogram.total
    return [("+Inf" if edge == math.inf else repr(edge), count) for edge, count in histogram.cumulative()], total


class Metrics:
    """Everything that is counted for one server; `p95` is the declared budget in seconds."""

    def __init__(self, p95: float | None = None) -> None:
        self.p95 = p95
        self.live = Live(p95)
        self._exact = () if p95 is None else (p95,)
        self._requests: dict[tuple[str, str], Tally] = {}  # (outcome, route); its counts are the requests' counts
        self._late = 0
        self._queue, self._decode, self._infer = (Tally(*self._exact, edges=SECONDS) for _ in range(3))
        self._sizes = Tally(edges=SIZES)
        self._left: dict[str, int] = {}  # why batches left the queue
        self._model: Model | None = None
        self._ready: Callable[[], bool] = lambda: self._model is not None
        self._registry: Any = None

    def serve(self, model: Model, ready: Callable[[], bool] | None = None) -> None:
        """From now on gauges are read from this model; `ready` tells what `/ready` says."""
        self._model = model
        self.live.cost = model.cost.prior if model.cost is not None else None
        if ready is not None:
            self._ready = ready

    def request(self, outcome: str, seconds: float, route: str = "/predict") -> None:
        """A request has ended: `ok`, `gone` (its caller hung up), or an error's code; since its last body byte."""
        key = (outcome, route)
        buckets = self._requests.get(key)
        if buckets is None:
            buckets = self._requests[key] = Tally(*self._exact, edges=SECONDS)
        buckets.record(seconds)
        self.live.request(outcome, seconds)
        if self.p95 is not None and seconds > self.p95 and outcome == "ok":
            self._late += 1

    def batch(self, batch: Batch, now: float) -> None:
        """A batch came back from its lane at `now`: why it left the queue, its items' waits, and what it took."""
        self._left[batch.why] = self._left.get(batch.why, 0) + 1
        self.live.batch(batch)
        taken = batch.taken
        record = self._queue.record
        for ticket in batch.tickets:
            record(taken - ticket.group.arrived)
        if batch.decoded > taken:
            self._decode.record(batch.decoded - taken)
        if batch.rows and batch.ran >= batch.decoded:  # a lane that hung never came to tell
            self._infer.record(batch.ran - batch.decoded)
            self._sizes.record(batch.rows)

    def fold(self) -> None:
        """Count what was kept for later; to be called every so often, and before it is to be read."""
        for tally in (*self._requests.values(), self._queue, self._decode, self._infer, self._sizes):
            tally.fold()
        self.live.fold()

    def render(self) -> tuple[bytes, str]:
        """Prometheus' text format and its content type, of what was folded; called off the event loop."""
        import prometheus_client

        if self._registry is None:
            registry = prometheus_client.CollectorRegistry()
            prometheus_client.ProcessCollector(registry=registry)  # CPU, memory and files of this process, on Linux
            registry.register(self)  # any object with `collect` is a collector
            self._registry = registry
        return prometheus_client.generate_latest(self._registry), prometheus_client.CONTENT_TYPE_LATEST

    # ---- prometheus_client's side ----

    def describe(self) -> list[Any]:
        """No names are reserved beforehand, and `collect` is not called to find them."""
        return []

    def collect(self) -> Iterator[Any]:
        """Metric families, for prometheus_client."""
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        ended = self._requests.copy()
        requests = CounterMetricFamily(
            "onbudget_requests_total", "Requests by how they ended.", labels=("outcome", "route")
        )
        seconds = HistogramMetricFamily(
            "onbudget_request_seconds", "From a request's last body byte to its answer.", labels=("outcome", "route")
        )
        for key, buckets in ended.items():
            pairs, total = _for_prometheus(buckets.histogram)
            requests.add_metric(key, pairs[-1][1])
            seconds.add_metric(key, pairs, total)
        yield requests
        yield seconds
        for name, text, buckets in (
            ("onbudget_queue_seconds", "An item's wait until a lane took it.", self._queue),
            ("onbudget_decode_seconds", "A batch's decoding.", self._decode),
            ("onbudget_infer_seconds", "A batch's run of the model.", self._infer),
            ("onbudget_batch_size", "Items that ran together.", self._sizes),
        ):
            pairs, total = _for_prometheus(buckets.histogram)
            yield HistogramMetricFamily(name, text, buckets=pairs, sum_value=total)
        left = CounterMetricFamily("onbudget_batches_total", "Batches by why they left the queue.", labels=("why",))
        for why, count in self._left.copy().items():
            left.add_metric((why,), count)
        yield left
        if self.p95 is not None:
            demoted = CounterMetricFamily(
                "onbudget_demoted_total",
                "Requests that could only be late, by where it was seen.",
                labels=("where",),
            )
            for where in ("door", "queue"):
                demoted.add_metric((where,), self.live.demoted.get(where, 0))
            yield demoted
            yield CounterMetricFamily("onbudget_late_total", "Answers that came after the budget.", value=self._late)
            yield GaugeMetricFamily("onbudget_budget_seconds", "The declared p95 budget.", value=self.p95)
        yield GaugeMetricFamily("onbudget_ready", "1 while /ready says yes.", value=int(self._ready()))
        if self.live.predicted is not None:
            text = "Requests a second at which p95 reaches the budget, as /status last predicted it."
            yield GaugeMetricFamily("onbudget_predicted_limit", text, value=self.live.predicted)
        if self._model is not None:
            yield from self._of_model(self._model)

    def _of_model(self, model: Model) -> Iterator[Any]:
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

        queue, lanes = model.queue, model.lanes
        for name, text, value in (
            ("onbudget_queue_items", "Items that wait for a lane.", queue.waiting),
            ("onbudget_in_flight_items", "Items that wait or run.", queue.items),
            ("onbudget_in_flight_bytes", "Bytes of requests that wait or run.", queue.nbytes),
            ("onbudget_lanes", "Threads that run the model.", len(lanes)),
            ("onbudget_lanes_busy", "Lanes that run a batch now.", lanes.busy),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        yield CounterMetricFamily("onbudget_lane_restarts_total", "Lanes replaced after a hang.", value=lanes.restarts)
        info = {
            "name": model.path.stem,
            "sha256": model.runner.sha256,
            "task": model.metadata.task,
            "provider": model.runner.providers[0],
            "version": __version__,
        }
        yield InfoMetricFamily("onbudget_model", "The model that is served.", value=info)
