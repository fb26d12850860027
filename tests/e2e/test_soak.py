"""Minutes of mixed traffic: memory and places in flight come back to where they were."""

from __future__ import annotations

import base64
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.support.children import Child, Start
from tests.support.tiles import Tiles

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def rss_kb(server: Child) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


@pytest.mark.timeout(300)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory from /proc")
def test_memory_does_not_grow_with_requests(start: Start, tiles: Tiles) -> None:
    """6,000 requests of 1 to 32 items in every shape, and 600 connections: no slope after the first third (pain 18)."""
    server = start(tiles.bundle)
    some = tiles.some(32)
    texts = [base64.b64encode(tile.tobytes()).decode() for tile in some]

    def burst(seed: int) -> None:
        rng = random.Random(seed)
        with httpx.Client(base_url=server.url) as client:
            for _ in range(10):
                count = rng.randint(1, 32)
                if rng.random() < 0.5:
                    answer = client.post("/predict", json={"tiles": texts[:count]})
                else:
                    kind = {"content-type": "application/octet-stream"}
                    answer = client.post("/predict", content=some[:count].tobytes(), headers=kind)
                assert len(answer.json()["predictions"]) == count

    sizes = []
    with ThreadPoolExecutor(4) as pool:
        for third in range(3):
            list(pool.map(burst, range(third * 200, third * 200 + 200)))
            sizes.append(rss_kb(server))
    metrics = httpx.get(server.url + "/metrics").text
    assert 'onbudget_requests_total{outcome="ok",route="/predict"} 6000.0' in metrics
    assert "onbudget_in_flight_items 0.0" in metrics
    assert "onbudget_in_flight_bytes 0.0" in metrics
    assert sizes[2] - sizes[0] < 8_000, f"memory grew: {sizes} kB"
