"""`onbudget serve --log-format json`, from start to end."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from tests.support.children import Child, Start
from tests.support.tiles import Tiles

pytestmark = pytest.mark.e2e


def told(child: Child) -> list[dict[str, Any]]:
    """All that it said, which is JSON line by line."""
    return [json.loads(line) for line in child.log.splitlines(keepends=True) if line.endswith("\n")]


def ready(child: Child) -> dict[str, Any]:
    """The record that says where it listens."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for one in told(child):
            if one["event"] == "ready":
                return one
        assert child.process.poll() is None, child.log
        time.sleep(0.02)
    raise AssertionError(child.log)


def test_a_server_says_everything_in_json(start: Start, tiles: Tiles) -> None:
    """From the first word to the last, uvicorn's too; no line for a request, and nothing of what was sent."""
    child = start(tiles.bundle, "--log-format", "json", "--p95", "50ms", "--lanes", "1", wait=False)
    one = ready(child)
    assert (one["level"], one["logger"], one["lanes"], one["p95_ms"]) == ("info", "onbudget", 1, 50)
    before = len(told(child))
    headers = {"authorization": "Bearer s3cret", "content-type": "application/json"}
    statuses = [
        httpx.post(f"{one['url']}/predict", content=body, headers=headers).status_code
        for body in (json.dumps({"tiles": tiles.some(1).tolist()}).encode(), b'{"tiles": ["s3cret"]}', b"s3cret")
    ]
    assert statuses == [200, 422, 400]
    assert len(told(child)) == before
    assert child.end() == 0
    assert {"onbudget", "uvicorn.error"} == {record["logger"] for record in told(child)}
    assert told(child)[-1]["event"].startswith("Finished server process")
    assert "s3cret" not in child.log


def test_what_stops_a_start_is_a_record_too(start: Start, tmp_path: Path) -> None:
    """The sentence, its code and the exit code; for a collector that reads nothing else."""
    child = start(tmp_path / "none.onnx", "--log-format", "json", wait=False)
    assert child.process.wait(60) == 1
    last = told(child)[-1]
    assert (last["level"], last["code"], last["exit_code"]) == ("error", "bundle", 1)
    assert "none.onnx: no such file" in last["event"]
