"""`GET /status`: the live figures of a server, what runs cost just now, and the rate that it could hold."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from onbudget.core.chain import limit_rate
from onbudget.core.cost import Cost
from onbudget.serve.live import Counts, Live

if TYPE_CHECKING:
    from onbudget.serve.models import Model

log = logging.getLogger("onbudget")
AGAIN = 10.0  # seconds between two predictions: one takes a tenth of a second and more of a core

_OPEN = {"type": "object"}
_RATE = {"type": ["number", "null"], "description": "Requests of one item a second at which p95 reaches the budget."}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "status": {"type": "string"},
        "budget_ms": {"type": ["number", "null"]},
        "policy": {"type": "string"},
        "limits": _OPEN,
        "windows": {"type": "array", "items": {"type": "object", "required": ["window_s", "seconds", "latency"]}},
        "cost": {"type": ["object", "null"]},
        "queue": _OPEN,
        "late": _OPEN,
        "lanes": _OPEN,
        "process_cpu_s": {"type": "number"},
        "lanes_cpu_s": {"type": "number"},
        "accepted": {"type": "integer"},
        "refused": {"type": "integer"},
        "overhead_ms": {"type": ["number", "null"]},
        "predicted_limit_rate": _RATE,
    },
}
SCHEMA["required"] = list(SCHEMA["properties"])


class Status:
    """The body of `/status`, for one server; called on the event loop."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._overhead: float | None = None  # the last one known: it outlives the traffic that it was learned from
        self._next = 0.0  # when a prediction may be made again
        self._busy = False

    def body(self, model: Model, state: str, now: float) -> dict[str, Any]:
        """JSON-ready; `now` is monotonic. Starts a prediction where one is due, for whoever asks later."""
        live = self._live
        current = live.counts(now, time.process_time())
        self._predict(model, current)
        settings, queue, lanes = model.settings, model.queue, model.lanes
        return {
            "status": state,
            "budget_ms": settings.p95 * 1e3 if settings.p95 is not None else None,
            "policy": model.policy.name,
            "limits": {
                "lanes": model.lane_count,
                "threads": settings.threads,
                "max_batch": model.policy.max_batch,
                "inline": model.inline,
                "max_items": settings.max_items,
                "max_queue": settings.max_queue,
                "max_queue_bytes": settings.max_queue_bytes,
            },
            "windows": live.windows(current),
            "cost": _cost(model, now),
            "queue": {
                "waiting_items": queue.waiting,
                "late_items": queue.behind,
                "in_flight_items": queue.items,
                "in_flight_bytes": queue.nbytes,
            },
            "late": _late(model),
            "lanes": {"count": len(lanes), "busy": lanes.busy, "restarts": lanes.restarts},
            "process_cpu_s": current.process_cpu,
            "lanes_cpu_s": current.lanes_cpu,
            "accepted": current.accepted,
            "refused": live.refused,
            "overhead_ms": self._overhead * 1e3 if self._overhead is not None else None,
            "predicted_limit_rate": live.predicted,
        }

    def _predict(self, model: Model, current: Counts) -> None:
        """Have the limit rate computed by a thread, at most every 10 s."""
        budget = model.settings.p95
        if model.settings.threads > 1:
            return  # a batch's CPU is its calling thread's: the others' would be taken for the loop's
        overhead = self._live.overhead(current)
        self._overhead = self._overhead if overhead is None else overhead
        if budget is None or model.cost is None or self._overhead is None or self._busy or current.at < self._next:
            return
        self._busy, self._next = True, current.at + AGAIN
        # An inline lane's waiting is the loop's reading, which the overhead holds already.
        scale = model.cost.factors(current.at)[0] if model.inline else model.cost.scale(current.at)
        cost = loaded(model.cost.prior, scale, self._overhead)
        most, lanes = model.policy.max_batch, model.lane_count
        asyncio.get_running_loop().run_in_executor(None, self._work, lambda: lanes * limit_rate(budget, cost, most))

    def _work(self, compute: Callable[[], float]) -> None:
        try:
            self._live.predicted = compute()
        except Exception:
            log.exception("the limit rate could not be predicted; /status keeps the last one")
        finally:
            self._busy = False


def loaded(prior: Cost, scale: float, overhead: float) -> Cost:
    """What a lane's run costs with the reading and answering of its requests, `overhead` CPU seconds each.

    Lanes take every core there is, so that the loop's work is taken from theirs. Several are counted as servers with a
    queue each, which is cautious: the one that they share is shorter.
    """
    return Cost(tuple((batch, seconds * scale + batch * overhead) for batch, seconds in prior.points))


def _late(model: Model) -> dict[str, Any]:
    """Who is answered late on purpose; shares are of about the last 2,000 requests."""
    spare = model.spare
    if spare is None:
        return {"mode": "shed"}
    return {"mode": "demote", "doomed_share": round(spare.doomed, 4), "late_share": round(spare.late, 4)}


def _cost(model: Model, now: float) -> dict[str, Any] | None:
    """The online cost as it is believed at `now`."""
    if model.cost is None:
        return None
    cpu, wait = model.cost.factors(now)
    sizes = sorted({1, model.policy.max_batch})
    run = {str(size): round(model.cost.estimate(size, now) * 1e3, 4) for size in sizes}
    return {"cpu_factor": cpu, "wait_factor": wait, "run_ms": run}
