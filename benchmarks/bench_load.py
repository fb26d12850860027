"""How much load one core can make: `onbudget load`, against the least server that can answer, on another core.

    python benchmarks/bench_load.py [--seconds 5] [-o benchmarks/results/NAME.json]

Each rate sends JSON bodies of 16 KB (one 64×64×3 tile in base64) for some seconds. A rate counts as carried when all
were answered and the generator's own lag stayed within what `onbudget load` allows; the lag is reported as it is, so a
machine that is busy with other things shows. As root both sides run in real time (SCHED_RR), and the record says so.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SERVER_CORE, CLIENT_CORE = 0, 1
RATES = (20, 200, 1000, 2000, 4000, 5000, 6000, 8000)
ANSWER = b'{"predictions":[{"label":"x","confidence":0.5}]}'


class Least(asyncio.Protocol):
    """Counts bytes and answers; it does not look at them."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.need = self.have = 0
        self.answer = (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(ANSWER) + ANSWER
        )

    def data_received(self, data: bytes) -> None:
        if not self.need:
            end = data.find(b"\r\n\r\n")
            at = data.find(b"Content-Length: ")
            self.need = end + 4 + (int(data[at + 16 :].split(b"\r\n", 1)[0]) if 0 <= at < end else 0)
        self.have += len(data)
        if self.have >= self.need:
            self.need = self.have = 0
            self.transport.write(self.answer)


def serve() -> None:
    """The server process."""
    import uvloop

    os.sched_setaffinity(0, {SERVER_CORE})

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Least, "127.0.0.1", 0, backlog=1024)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    uvloop.run(main())


def ask_for_priority() -> bool:
    """Real-time turns on our core, which the server inherits; whether we may (root may)."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        return True
    return False


def one(port: int, rate: float, seconds: float, body: Path) -> dict[str, Any]:
    """One rate."""
    from onbudget.prove.load import LoadOptions, run_load

    options = LoadOptions(
        url=f"http://127.0.0.1:{port}/", rate=rate, duration=seconds, warmup=0.5, body=str(body), p95=0.02
    )
    began = time.thread_time()
    run = run_load(options)
    told = run.summary()
    return {
        "rate": rate,
        "offered": told.offered,
        "answered": told.answered,
        "throughput": round(told.throughput, 1),
        "p50_us": round(told.latency.p50 * 1e6, 1),
        "p95_us": round(told.latency.p95 * 1e6, 1),
        "own_lag_p50_us": round(told.lag.p50 * 1e6, 1),
        "own_lag_p99_us": round(told.lag.p99 * 1e6, 1),
        "late_sends": told.late_sends,
        "generator_core_share": round((time.thread_time() - began) / (seconds + 0.5), 3),
        "starved_share": run.ending.starved,
        "connections": run.ending.connections,
        "bytes_a_request": run.header.payload["bytes"],
        "carried": told.answered == told.offered and not told.void,
        "void": told.void,
    }


def main() -> None:
    """Measure every rate and print; with -o keep the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        serve()
        return
    import base64
    import random
    import tempfile

    from onbudget.engine.machine import facts

    os.sched_setaffinity(0, {CLIENT_CORE})
    real_time = ask_for_priority()
    server = subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        with tempfile.TemporaryDirectory() as folder:
            body = Path(folder) / "tile.json"
            tile = base64.b64encode(random.Random(0).randbytes(64 * 64 * 3)).decode()
            body.write_text(json.dumps({"tiles": [tile]}))
            found = []
            for rate in RATES:
                result = one(port, rate, chosen.seconds, body)
                found.append(result)
                print(
                    f"{rate:6g}/s  answered {result['answered']}/{result['offered']}  p50 {result['p50_us']:.0f} µs  "
                    f"p95 {result['p95_us']:.0f} µs  own lag p50 {result['own_lag_p50_us']:.0f} p99 "
                    f"{result['own_lag_p99_us']:.0f} µs  core {result['generator_core_share']:.0%}  "
                    f"starved {result['starved_share']}  {'carried' if result['carried'] else 'NOT carried'}",
                    flush=True,
                )
    finally:
        server.kill()
        server.wait()
    carried = [r["rate"] for r in found if r["carried"]]
    record = {
        "schema": 1,
        "kind": "bench-load",
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": facts(),
        "load_average": os.getloadavg(),
        "real_time": real_time,
        "seconds": chosen.seconds,
        "highest_rate_carried": max(carried, default=None),
        "rates": found,
    }
    if chosen.output:
        chosen.output.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
