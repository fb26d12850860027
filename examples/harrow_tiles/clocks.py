"""What a load test hides that starts its clock when it starts a request, beside `onbudget load`, which does not.

    python clocks.py            about a minute; prints two tables

The same classifier and MicroBatcher under the same rate, twice: with a free event loop, and with one that somebody's
blocking call holds for 200 ms every second. `load_test` runs in the batcher's own loop, as `serving.py pick` does, and
its requests are timed by both clocks at once. `onbudget load` asks the same over HTTP, from a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import serving
import uvicorn
from fastapi import FastAPI

import onbudget

RATE, SECONDS, BLOCK_S, EVERY_S = 100.0, 8.0, 0.2, 1.0


async def blocks() -> None:
    """Somebody's blocking call, once a second."""
    while True:
        await asyncio.sleep(EVERY_S - BLOCK_S)
        time.sleep(BLOCK_S)  # noqa: ASYNC251 - the mistake itself


class Watched:
    """A batcher around a batcher, which knows when each request was due: they come in the order of the schedule."""

    def __init__(self, batcher: onbudget.MicroBatcher, seed: int) -> None:
        self._batcher = batcher
        self._draws = random.Random(seed)
        self._due = time.perf_counter()
        self.from_due: list[float] = []

    async def submit(self, tile: Any) -> Any:
        """The batcher's answer; notes the milliseconds since the moment that it was due."""
        self._due += self._draws.expovariate(RATE)
        due = self._due
        answer = await self._batcher.submit(tile)
        self.from_due.append((time.perf_counter() - due) * 1e3)
        return answer


async def in_process(blocked: bool, seed: int = 0) -> tuple[list[float], list[float], float]:
    """load_test's figures, the same requests from when they were due (p50 and p95 in ms), and the mean batch."""
    batcher = onbudget.MicroBatcher(serving.classifier_here(), **serving.CONFIG)
    await batcher.submit(serving.a_tile())
    batcher.batch_sizes.clear()
    blocker = asyncio.create_task(blocks()) if blocked else None
    watched = Watched(batcher, seed)
    told = await serving.load_test(watched, serving.a_tile(), RATE, round(RATE * SECONDS), seed)
    if blocker is not None:
        blocker.cancel()
    sizes = batcher.batch_sizes
    batcher.stop()
    from_due = [serving.percentile(watched.from_due, q) for q in (50, 95)]
    return [told["p50"], told["p95"]], from_due, sum(sizes) / len(sizes)


def app(blocked: bool) -> FastAPI:
    """The example's own application, with the blocking call or without."""
    classifier = serving.classifier_here()
    made = serving.create_app(classifier, onbudget.MicroBatcher(classifier, **serving.CONFIG))
    inner = made.router.lifespan_context

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        blocker = asyncio.create_task(blocks()) if blocked else None
        async with inner(app):
            yield
        if blocker is not None:
            blocker.cancel()

    made.router.lifespan_context = lifespan
    return made


def over_http(blocked: bool, port: int) -> dict[str, Any]:
    """What `onbudget load --json` says of that application."""
    server = subprocess.Popen([sys.executable, __file__, "--serve", str(port), *(["--blocked"] if blocked else [])])
    try:
        with tempfile.TemporaryDirectory() as folder:
            body = Path(folder) / "body.json"
            body.write_text(json.dumps({"tiles": [b64encode(serving.a_tile().tobytes()).decode()]}))
            _wait(port)
            load = [sys.executable, "-m", "onbudget", "load", f"127.0.0.1:{port}", "--body", str(body), "--json"]
            asked = [*load, "--rate", f"{RATE:g}/s", "--duration", f"{SECONDS:g}s", "--warmup", "1s"]
            done = subprocess.run(asked, stdout=subprocess.PIPE, text=True)
        if not done.stdout:
            raise SystemExit(done.returncode)
        told: dict[str, Any] = json.loads(done.stdout)
        return told
    finally:
        server.terminate()
        server.wait(10)


def _wait(port: int) -> None:
    import http.client

    for _ in range(300):
        with contextlib.suppress(OSError):
            door = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            door.request("GET", "/health")
            if door.getresponse().status == 200:
                return
        time.sleep(0.1)
    raise SystemExit(f"the server did not come up on port {port}")


def main() -> None:
    """Both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--blocked", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        uvicorn.run(app(asked.blocked), port=asked.serve, log_level="error")
        return
    print(f"{RATE:g} requests a second for {SECONDS:g} s, CONFIG {serving.CONFIG}")
    for blocked in (False, True):
        started, due, mean = asyncio.run(in_process(blocked))
        load = over_http(blocked, asked.port)
        print(f"\n{'blocked 200 ms every second' if blocked else 'free loop':28}   p50 ms   p95 ms")
        for name, (p50, p95) in (
            ("load_test, from its start", started),
            ("the same, from due", due),
            ("onbudget load, from due", [load["latency_ms"][q] for q in ("p50", "p95")]),
            ("onbudget load, from send", [load["latency_from_send_ms"][q] for q in ("p50", "p95")]),
        ):
            print(f"{name:28} {p50 or float('nan'):8.2f} {p95 or float('nan'):8.2f}")
        print(f"mean batch in load_test: {mean:.2f}")


if __name__ == "__main__":
    main()
