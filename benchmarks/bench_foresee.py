"""How long a round of an event loop takes while a limit rate is predicted by a thread, by a process, or not at all.

    PYTHONPATH=src python benchmarks/bench_foresee.py -o results/foresee-….json

A round sleeps for 1 ms and gives the interpreter's lock up 20 times, as reads and writes do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop

from onbudget.core.cost import Cost
from onbudget.core.forecast import Forecast
from onbudget.core.overheads import Overheads
from onbudget.core.plan import Configuration
from onbudget.engine.machine import facts
from onbudget.serve.foresee import Foresight

FORECAST = Forecast(
    cost=Cost.of({1: 0.0003, 2: 0.0005, 4: 0.001, 8: 0.002, 16: 0.0042}),
    overheads=Overheads(1e-4, 3e-5, 2e-4),
    configuration=Configuration(1, 1, 13),
    budget_s=0.025,
    inline=True,
)
BESIDE: dict[str, Callable[[], Any]] = {
    "nothing": lambda: time.sleep(0.5),
    "thread": FORECAST.quick_limit_rate,
    "process": lambda: Foresight().limit_rate(FORECAST),
}


async def rounds(work: Callable[[], Any]) -> list[float]:
    """Milliseconds of each round while `work` goes on in a thread of the loop's executor."""
    going = asyncio.get_running_loop().run_in_executor(None, work)
    taken = []
    while not going.done():
        began = time.perf_counter()
        await asyncio.sleep(0.001)
        for _ in range(20):
            time.sleep(0)  # noqa: ASYNC251 - it gives the lock up and comes back
        taken.append((time.perf_counter() - began) * 1e3)
    await going
    return sorted(taken)


async def measured(repeats: int) -> list[dict[str, Any]]:
    rows = []
    for _ in range(repeats):
        for name, work in BESIDE.items():
            taken = await rounds(work)
            p50, p95 = (taken[int(q * len(taken))] for q in (0.5, 0.95))
            told = {"p50_ms": round(p50, 3), "p95_ms": round(p95, 3), "max_ms": round(taken[-1], 3)}
            rows.append({"beside": name, "rounds": len(taken), **told})
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path)
    chosen = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        rows = runner.run(measured(chosen.repeats))
    record = {
        "what": "a round of an event loop while a limit rate is predicted",
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": facts(),
        "rows": rows,
    }
    if chosen.output:
        chosen.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
