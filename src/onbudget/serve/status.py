"""`GET /status`: the live figures of a server, what runs cost just now, and the rate that it could hold."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from onbudget.core.forecast import Forecast
from onbudget.core.overheads import Learnt, learn
from onbudget.core.plan import Configuration
from onbudget.serve.foresee import Foresight
from onbudget.serve.live import Counts, Live

if TYPE_CHECKING:
    from onbudget.serve.models import Model

log = logging.getLogger("onbudget")
AGAIN = 10.0  # seconds between two predictions: one takes some tenths of a second of a core

_OPEN = {"type": "object"}
_RATE = {"type": ["number", "null"], "description": "The most requests of one item a second within the budget."}
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
        "overheads": {"type": ["object", "null"]},
        "predicted_limit_rate": _RATE,
    },
}
SCHEMA["required"] = list(SCHEMA["properties"])


class Status:
    """The body of `/status`, for one server; called on the event loop."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._learnt: Learnt | None = None  # the last known: it outlives the traffic that it was learned from
        self._next = 0.0  # when a prediction may be made again
        self._busy = False
        self.foresight = Foresight()

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
            "overheads": _overheads(self._learnt),
            "predicted_limit_rate": live.predicted,
        }

    def _predict(self, model: Model, current: Counts) -> None:
        """Learn the overheads and have the limit rate computed elsewhere, at most every 10 s."""
        if model.settings.threads > 1 or model.cost is None:
            return  # with more threads a batch's CPU is its calling thread's: the others' would be taken for the loop's
        if self._busy or current.at < self._next:
            return
        learnt = learn(self._live.spells(current))
        if learnt is None:
            return
        self._learnt, self._next = learnt, current.at + AGAIN
        if model.settings.p95 is None:
            return
        self._busy = True
        asked = forecast(model, learnt, model.settings.p95, current.at)
        asyncio.get_running_loop().run_in_executor(None, self._work, partial(self.foresight.limit_rate, asked))

    def _work(self, compute: Callable[[], float]) -> None:
        try:
            self._live.predicted = compute()
        except Exception:
            if self.foresight.stopped:
                return
            log.exception("the limit rate could not be predicted; /status keeps the last one")
        finally:
            self._busy = False


def forecast(model: Model, learnt: Learnt, budget: float, now: float) -> Forecast:
    """What this server will do, by what it has learnt.

    Where the loop has no core of its own, what runs wait for is the loop, whose work is in the overheads already.
    """
    policy = "deadline" if model.policy.name == "deadline" else "greedy"
    assert model.cost is not None
    made = Forecast(
        cost=model.cost.prior.scaled(learnt.run_factor),
        overheads=learnt.overheads,
        configuration=Configuration(model.lane_count, model.settings.threads, model.policy.max_batch, policy),
        budget_s=budget,
        inline=model.inline,
        demote=model.spare is not None,
        cores=model.machine.cores(),
    )
    return made if made.shared else replace(made, cost=made.cost.scaled(max(1.0, model.cost.factors(now)[1])))


def _overheads(learnt: Learnt | None) -> dict[str, float] | None:
    """What each part costs, in milliseconds of CPU."""
    if learnt is None:
        return None
    told = {name: round(getattr(learnt.overheads, f"{name}_s") * 1e3, 4) for name in ("accept", "refuse", "batch")}
    return {**{f"{name}_ms": value for name, value in told.items()}, "run_factor": round(learnt.run_factor, 3)}


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
