"""A long run of mixed traffic at 80 % of the limit: does memory grow, does the p95 drift, is anything answered wrongly?

    PYTHONPATH=src python benchmarks/bench_soak.py served.onnx --rate 1800/s --minutes 30 -o results/soak-….json

`--rate` is the limit in items a second. A hundred requests go round in random order: JSON, raw bytes, JPEG in a form
and by itself, four items in JSON, and some that must be told what is wrong with them (`bodies.MIX`); and twice a second
somebody hangs up in the middle of a body. The load is open-loop, in windows of a minute (of a third of the time where
there are fewer than three), each on connections of its own. The server's memory is read every 5 s. Told at the end:

* the slope of the memory by least squares, from the first quarter on, in MB an hour, with its standard error;
* the median of the windows' p95 in the last third over that in the first one; refusals count as infinitely late;
* `errors`: everything but the wanted status and a refusal; and what is in flight in the server when all is over.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from bodies import contract, mean_items, mixed
from live import CLIENT_CORE, SERVER_CORE, claim_core, command, keep, opening, resident_mb, server, slope

from onbudget.core import units
from onbudget.core.histogram import percentile
from onbudget.core.records import Hits
from onbudget.core.summary import Percentiles, allowed_lag, judge_lag
from onbudget.prove.arrivals import poisson
from onbudget.prove.client import Target, ask, parse_target, resolve
from onbudget.prove.generator import Generator, Progress
from onbudget.prove.load import new_loop
from onbudget.prove.payloads import assemble, head

SAMPLE_S, HANG_UP_S = 5.0, 0.5
CONNECTIONS = 256


class Memory:
    """The server's memory by seconds since the start; `look` is called often, and reads it every SAMPLE_S."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._began = time.monotonic()
        self.seconds: list[float] = []
        self.mb: list[float] = []

    def look(self, now: Progress | None = None) -> None:
        passed = time.monotonic() - self._began
        if not self.seconds or passed - self.seconds[-1] >= SAMPLE_S:
            self.seconds.append(round(passed, 2))
            self.mb.append(round(resident_mb(self._pid), 3))

    def told(self) -> dict[str, Any]:
        """What it did after the first quarter; the slope is None while four points are not there."""
        later = [i for i, at in enumerate(self.seconds) if at >= self.seconds[-1] / 4]
        seconds, mb = [self.seconds[i] for i in later], [self.mb[i] for i in later]
        change, error = slope(seconds, mb) if len(later) >= 4 else (None, None)
        return {
            "memory_mb_per_hour": change if change is None else round(change, 3),
            "memory_mb_per_hour_error": error if error is None else round(error, 3),
            "memory_mb": {"first": self.mb[0], "after a quarter": mb[0], "last": self.mb[-1], "most": max(self.mb)},
        }


def window(hits: Hits, wanted: list[int], budget_s: float) -> dict[str, Any]:
    """One window: p50 and p95 of the requests that can be answered, and what became of all."""
    status = np.array([outcome.status for outcome in hits.outcomes])[hits.outcome]
    must = np.resize(np.array(wanted), len(hits))
    refused = (status == 429) & (must != 429)
    wrong = hits.outcome[(status != must) & ~refused]
    found = Percentiles.of(hits.latency()[must == 200])
    p50, p95 = (round(value * 1e3, 3) if np.isfinite(value) else None for value in (found.p50, found.p95))
    return {
        "sent": len(hits),
        "as_wanted": int((status == must).sum()),
        "told_what_is_wrong": int(((status == must) & (must != 200)).sum()),
        "refused": int(refused.sum()),
        "errors": {f"{hits.outcomes[i].status} {hits.outcomes[i].word}": n for i, n in Counter(wrong.tolist()).items()},
        "p50_ms": p50,
        "p95_ms": p95,
        "lag_p99_ms": round(percentile(hits.lag, 99) * 1e3, 3),
        "void": bool(judge_lag(hits.lag, allowed_lag(budget_s, found.p50))),
    }


def drift(p95s: list[float | None]) -> float | None:
    """The last third's median over the first third's; None where one of them is infinite (None in the list)."""
    third = max(1, len(p95s) // 3)
    first, last = (median(np.inf if v is None else v for v in part) for part in (p95s[:third], p95s[-third:]))
    return round(last / first, 4) if np.isfinite(first) and np.isfinite(last) else None


async def hang_up(address: tuple[str, int], request: bytes) -> None:
    """Again and again: half a request, and gone."""
    while True:
        await asyncio.sleep(HANG_UP_S)
        _, out = await asyncio.open_connection(*address)
        out.write(request[: len(request) // 2])
        await asyncio.sleep(0.05)
        out.transport.abort()


async def in_flight(target: Target, address: tuple[str, int]) -> dict[str, float]:
    """What the server says that it still works on, a second after the last request."""
    await asyncio.sleep(1.0)
    answer = await ask(target, address, head("GET", target, "/metrics"), 5.0)
    lines = (line.rpartition(" ") for line in answer.body.decode().splitlines() if line[:1] != "#")
    return {name: float(value) for name, _, value in lines if name.startswith("onbudget_in_flight")}


async def soak(url: str, memory: Memory, record: dict[str, Any], chosen: argparse.Namespace) -> None:
    """All windows; the record grows by each."""
    target = parse_target(url)
    address, mix = await resolve(target), mixed(contract(chosen.bundle))
    requests = assemble([item for _, item, _ in mix], target, (), "a mix").requests
    rate = chosen.share * chosen.rate / mean_items(mix)
    count = max(3, round(chosen.minutes))
    record.update(requests_a_second=round(rate, 1), kinds=Counter(kind for kind, _, _ in mix))
    for number in range(count):
        generator = Generator(
            address,
            requests,
            poisson(rate, chosen.minutes * 60 / count, 0.0, number),
            connections=CONNECTIONS,
            on_progress=memory.look,
        )
        rude = asyncio.create_task(hang_up(address, requests[0]))
        hits, _ = await generator.run()
        if rude.done():
            rude.result()  # it ends by an error only
        rude.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await rude
        row = window(hits, [status for _, _, status in mix], units.seconds(chosen.p95))
        record["windows"].append(row)
        errors: Counter[str] = Counter()
        for one in record["windows"]:
            errors.update(one["errors"])
        record["told"] = {
            **memory.told(),
            "p95_drift": drift([one["p95_ms"] for one in record["windows"]]),
            "sent": sum(one["sent"] for one in record["windows"]),
            "refused": sum(one["refused"] for one in record["windows"]),
            "errors": errors,
        }
        record["memory"] = {"seconds": memory.seconds, "mb": memory.mb}
        keep(record, chosen.output)
        print(f"{number + 1}/{count}  {row}  {memory.mb[-1]:.1f} MB", flush=True)
    record["told"]["left_in_flight"] = await in_flight(target, address)
    keep(record, chosen.output)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--rate", type=units.per_second, required=True, help="the limit, in items a second")
    parser.add_argument("--share", type=float, default=0.8, help="of the limit")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--p95", default="25ms", help="the budget that the server is told")
    parser.add_argument("-o", "--output", type=Path)
    chosen = parser.parse_args()
    claim_core()
    record = opening(
        "memory, p95 and errors of a server under mixed traffic",
        chosen.bundle,
        cores={"server": SERVER_CORE, "client": CLIENT_CORE},
        **{name: getattr(chosen, name) for name in ("rate", "share", "minutes", "p95")},
        told={},
        windows=[],
    )
    with server(chosen.bundle, "--p95", chosen.p95) as served, asyncio.Runner(loop_factory=new_loop) as runner:
        url = served.url()
        runner.run(soak(url, Memory(served.pid), record, chosen))
    print(json.dumps(record["told"], indent=1))


if __name__ == "__main__":
    command(main)
