"""What the live benchmarks share: a server on one core, and load trials from another."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from onbudget.core.errors import TargetError
from onbudget.engine.children import Server
from onbudget.prove.load import LoadOptions, run_load

SERVER_CORE, CLIENT_CORE = 0, 1


@dataclass(frozen=True, slots=True)
class Trial:
    """One load test: shares are of all requests offered; `p95_ms` of all too, infinite where so many got no answer."""

    rate: float
    offered: int
    in_budget: float
    late: float
    refused: float
    p50_ms: float
    p95_ms: float
    lag_p99_ms: float
    void: bool

    def told(self) -> dict[str, Any]:
        """JSON-ready."""
        values = asdict(self)
        return {name: None if value == float("inf") else value for name, value in values.items()}


def claim_core() -> None:
    """This process makes the load: from its own core."""
    os.sched_setaffinity(0, {CLIENT_CORE})


def server(bundle: Path, *flags: str) -> Server:
    """`onbudget serve` on its core, on a free port; a context manager."""
    return Server(" ".join(flags), ("onbudget", "serve", str(bundle), "--port", "0", *flags), {SERVER_CORE})


def trial(url: str, rate: float, seconds: float, budget_s: float, *, form: str = "json", seed: int = 0) -> Trial:
    """Offer `rate` for so long, open loop, Poisson."""
    options = LoadOptions(
        url=url, rate=rate, duration=seconds, warmup=min(1.0, seconds / 4), p95=budget_s, format=form, seed=seed
    )
    told = run_load(options).summary()
    if told.in_budget is None or not told.offered:
        raise TargetError(f"nothing was offered to {url} at {rate:g}/s")
    return Trial(
        rate=rate,
        offered=told.offered,
        in_budget=told.in_budget / told.offered,
        late=(told.answered - told.in_budget) / told.offered,
        refused=1 - told.answered / told.offered,
        p50_ms=round(told.latency.p50 * 1e3, 3),
        p95_ms=round(told.latency.p95 * 1e3, 3),
        lag_p99_ms=round(told.lag.p99 * 1e3, 3),
        void=bool(told.void),
    )
