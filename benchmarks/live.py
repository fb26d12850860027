"""What the live benchmarks share: a server on one core, load trials from another, and how a record is kept."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from onbudget.core.errors import OnbudgetError, TargetError
from onbudget.engine.children import Server
from onbudget.engine.machine import facts
from onbudget.prove.load import LoadOptions, Run, run_load

SERVER_CORE, CLIENT_CORE = 0, 1


@dataclass(frozen=True, slots=True)
class Trial:
    """One load test: shares are of all requests offered; `p95_ms` of all too, infinite where so many got no answer.

    `sent_p95_ms` runs from the send and not from the due moment; `sent` counts what went out, the warm-up's too.
    """

    rate: float
    offered: int
    in_budget: float
    late: float
    refused: float
    p50_ms: float
    p95_ms: float
    lag_p99_ms: float
    void: bool
    answered_rate: float
    sent_p95_ms: float
    sent: int
    connections: int

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


def offer(options: LoadOptions) -> Run:
    """One load test. KeyboardInterrupt where Ctrl-C ended it: half a trial belongs into no record."""
    run = run_load(options)
    if run.ending.partial:
        raise KeyboardInterrupt
    return run


def trial(
    url: str, rate: float, seconds: float, budget_s: float, *, form: str = "json", seed: int = 0, **more: Any
) -> Trial:
    """Offer `rate` for so long, open loop, Poisson; `more` are other options of the load test."""
    options = LoadOptions(
        url=url, rate=rate, duration=seconds, warmup=min(1.0, seconds / 4), p95=budget_s, format=form, seed=seed, **more
    )
    run = offer(options)
    told = run.summary()
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
        answered_rate=round(told.throughput, 2),
        sent_p95_ms=round(told.from_send.p95 * 1e3, 3),
        sent=int(np.isfinite(run.hits.sent).sum()),
        connections=run.ending.connections,
    )


def command(main: Callable[[], None]) -> None:
    """Run a script's `main`: what is wrong is told in a line and by the exit code; Ctrl-C leaves what `keep` wrote."""
    try:
        main()
    except OnbudgetError as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("stopped; the record, if there is one, holds what was measured so far", file=sys.stderr)
        sys.exit(130)


# ---- what the system tells of a process -----------------------------------------------------------------------------


def cpu_seconds(pid: int) -> float:
    """What all threads of a process have used of the CPUs so far, to the nanosecond."""
    return time.clock_gettime(~pid << 3 | 2)  # as clock_getcpuclockid(3) makes it on Linux


def resident_mb(pid: int) -> float:
    """What a process holds of the memory, in MB (10⁶ bytes)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) * 1024 / 1e6


# ---- records --------------------------------------------------------------------------------------------------------


def opening(what: str, bundle: Path, **more: Any) -> dict[str, Any]:
    """The first lines of a record."""
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return {"what": what, "when": when, "machine": facts(), "bundle": bundle.name, **more}


def keep(record: dict[str, Any], path: Path | None) -> None:
    """Write what there is so far, whole or not at all: a run that is interrupted keeps what it has."""
    if path is not None:
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps(record, indent=1, allow_nan=False, ensure_ascii=False) + "\n")
        part.replace(path)


# ---- sums -----------------------------------------------------------------------------------------------------------


def ratios(above: list[float], below: list[float]) -> list[float]:
    """Each of `above` over the one of `below` that was measured in the same round."""
    return [round(a / b, 4) for a, b in zip(above, below, strict=True)]


def slope(seconds: list[float], values: list[float]) -> tuple[float, float]:
    """(change an hour, its standard error) by least squares. ValueError for fewer than four points: they tell none."""
    if len(values) < 4:
        raise ValueError(f"{len(values)} points tell no slope and its error; four are needed")
    (an_hour, _), spread = np.polyfit(np.array(seconds) / 3600, values, 1, cov=True)
    return float(an_hour), float(np.sqrt(spread[0, 0]))
