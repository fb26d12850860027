"""Serve the tile classifier on one CPU core: export, runtime, HTTP, dynamic batching and a p95 budget.

    python serving.py export             weights.pt → tile_model.onnx, verified (needs torch)
    python serving.py serve              with CONFIG, on 127.0.0.1:8000
    python serving.py pick --budget 20   measure a few configurations, quiet and at peak, and say which one fits

Only `export_onnx` and `max_difference` need torch, and they alone. The rest is what a small service looks like with the
library's pieces in its hands; `onbudget serve` is the same as a product.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

import onbudget
from onbudget.core.dialects import read_recipe
from onbudget.core.histogram import percentile as _percentile
from onbudget.core.pick import Loads, pick
from onbudget.engine.embedded import bundle_path, tiles
from onbudget.engine.timing import per_item_ms

HERE = Path(__file__).resolve().parent
RECIPE = read_recipe(json.loads((HERE / "recipe.json").read_text()))  # MEAN and STD, as model.py trains with them
SHAPE = RECIPE.shape  # 64 × 64 × 3

ONNX_PATH = "tile_model.onnx"
TILE_BYTES = RECIPE.item_bytes  # 12,288: raw RGB, row by row
MAX_TILES = 32
TICK_S = 0.005  # load_test looks so often who is due
# What `python serving.py pick` chose for 20 ms on two shared cores; choose again on yours.
CONFIG = {"max_batch": 16, "max_wait_ms": 0}

Array = np.ndarray[Any, Any]
Stats = dict[str, float]


# ---- export ---------------------------------------------------------------------------------------------------------


def export_onnx(model: Any, path: str = ONNX_PATH) -> str:
    """Write `model` to `path`, which is returned: "tiles" (N, 3, 64, 64) float32 → "logits", any N in one file.

    The file is compared with PyTorch at 1, 2, 3 and 32 rows before it is written. Needs torch and onnx.
    """
    from onbudget.make.export import ExportOptions, export

    height, width, channels = SHAPE
    export(
        model,
        ExportOptions(
            example=(1, channels, height, width),
            input_name="tiles",
            output_name=("logits",),
            exporter="legacy",  # torch.onnx.export(..., dynamo=False)
            output=Path(path),
        ),
    )
    return path


def max_difference(model: Any, session: Any, x: Any) -> float:
    """The largest absolute difference between the PyTorch model's logits and the ONNX session's, on the tensor `x`."""
    import torch

    with torch.no_grad():
        theirs = model(x).numpy()
    (ours,) = session.run(None, {"tiles": x.numpy()})
    return float(np.abs(theirs - ours).max())


# ---- runtime --------------------------------------------------------------------------------------------------------


def preprocess(tiles: Array) -> Array:
    """uint8 (n, 64, 64, 3) → float32 (n, 3, 64, 64), scaled and normalised as in training; contiguous, numpy only."""
    return RECIPE.tensor(np.asarray(tiles))


class Classifier(onbudget.Classifier):
    """A plain .onnx file on one thread, with its class names: `predict(tiles)` → `{"label", "confidence"}` a tile."""

    def __init__(self, path: str, classes: Sequence[str]) -> None:
        super().__init__(path, classes, preprocess)


def per_tile_ms(fn: Callable[[Array], Any], tiles: Array, repeats: int = 20) -> float:
    """Median milliseconds a tile of `fn(tiles)`, over `repeats` timed calls after two untimed ones."""
    return per_item_ms(fn, tiles, repeats)


# ---- HTTP -----------------------------------------------------------------------------------------------------------


class PredictRequest(BaseModel):
    """A request's body: each tile is base64 of its 12,288 raw RGB bytes."""

    tiles: list[str]


def decode_tile(b64: str) -> Array:
    """The (64, 64, 3) uint8 tile in a base64 text; ValueError for other characters and for any other length."""
    try:
        raw = base64.b64decode(b64, validate=True)
    except ValueError as error:
        raise ValueError(f"not valid base64: {error}") from error
    if len(raw) != TILE_BYTES:
        raise ValueError(f"it has {len(raw)} bytes, but a tile has {TILE_BYTES} (64 × 64 × 3, raw RGB)")
    return np.frombuffer(raw, np.uint8).reshape(SHAPE)


def decode_all(texts: Sequence[str]) -> list[Array]:
    """The tiles of one request; a 422 says what is wrong with it, and with which tile."""
    if not texts:
        raise HTTPException(422, "no tiles: send at least one")
    if len(texts) > MAX_TILES:
        raise HTTPException(422, f"{len(texts)} tiles are too many: the limit is {MAX_TILES} a request")
    decoded = []
    for index, text in enumerate(texts):
        try:
            decoded.append(decode_tile(text))
        except ValueError as error:
            raise HTTPException(422, f"tile {index + 1} (tiles[{index}]): {error}") from error
    return decoded


def create_app(classifier: Any, batcher: Any = None) -> FastAPI:
    """`GET /health` and `POST /predict` over any object with `predict` and `classes`, batched where there is a batcher.

    `onbudget.create_app` is the whole server: limits, metrics, draining, refusals. This one is the idea alone.
    """

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        if hasattr(batcher, "stop"):
            batcher.stop()

    app = FastAPI(title="Harrow County tiles", lifespan=lifespan)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "classes": list(classifier.classes)}

    @app.post("/predict")
    async def predict(request: PredictRequest) -> dict[str, Any]:
        decoded = decode_all(request.tiles)
        if batcher is None:
            answers = await asyncio.to_thread(classifier.predict, np.stack(decoded))
        else:
            answers = await asyncio.gather(*[batcher.submit(tile) for tile in decoded])
        return {"predictions": list(answers)}

    return app


# ---- batching -------------------------------------------------------------------------------------------------------

MicroBatcher = onbudget.MicroBatcher


# ---- a budget -------------------------------------------------------------------------------------------------------


def percentile(values: Sequence[float], q: float) -> float:
    """The q-th percentile (0 to 100) with numpy's linear interpolation."""
    return _percentile(values, q)


async def load_test(batcher: Any, tile: Array, rate: float, n: int, seed: int = 0) -> Stats:
    """Submit one tile `n` times as a Poisson stream of `rate` a second → "p50", "p95" (ms) and "throughput" (1/s).

    Every 5 ms all that are due are started, and each is timed from its own start: what a request waited for the tick,
    or for a busy loop, is in no number. `onbudget load` times from the moment that a request was due.
    """
    draws = random.Random(seed)
    due, at = [], 0.0
    for _ in range(n):
        at += draws.expovariate(rate)
        due.append(at)
    latencies: list[float] = []

    async def one() -> None:
        start = time.perf_counter()
        await batcher.submit(tile)
        latencies.append((time.perf_counter() - start) * 1e3)

    begin = time.perf_counter()
    tasks: list[asyncio.Task[None]] = []
    try:
        while len(tasks) < n:
            now = time.perf_counter() - begin
            while len(tasks) < n and due[len(tasks)] <= now:
                tasks.append(asyncio.create_task(one()))
            if len(tasks) < n:
                await asyncio.sleep(TICK_S)
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()  # of those that a failure left
    took = time.perf_counter() - begin
    return {"p50": percentile(latencies, 50), "p95": percentile(latencies, 95), "throughput": n / took}


def pick_config(results: Mapping[Any, Mapping[str, Stats]], budget_ms: float) -> Any:
    """The configuration with the lowest peak p95 of those within `budget_ms` under both loads; None if none is.

    `results`: {(max_batch, max_wait_ms): {"quiet": stats, "peak": stats}}.
    """
    measured = {
        key: Loads(quiet_s=loads["quiet"]["p95"] / 1e3, peak_s=loads["peak"]["p95"] / 1e3)
        for key, loads in results.items()
    }
    return pick(measured, budget_ms / 1e3)


# ---- the command ----------------------------------------------------------------------------------------------------

GRID = [(1, 0.0), (4, 2.0), (16, 0.0), (16, 2.0), (16, 5.0), (32, 10.0)]


def classifier_here() -> onbudget.Classifier:
    """tile_model.onnx where it was exported, else the bundle that ships in the package."""
    exported = HERE / ONNX_PATH
    if exported.exists():
        return Classifier(str(exported), (HERE / "labels.txt").read_text().splitlines())
    return onbudget.Classifier(bundle_path())


def a_tile() -> Array:
    """One held-out tile's pixels."""
    from onbudget.engine.images import decode

    return decode(tiles()[0].png, RECIPE)


async def measure(classifier: Any, quiet: float, peak: float, seconds: float) -> dict[tuple[int, float], Any]:
    """Every configuration of GRID under both loads, one line of progress each."""
    found: dict[tuple[int, float], Any] = {}
    for max_batch, max_wait_ms in GRID:
        loads = {}
        for name, rate in (("quiet", quiet), ("peak", peak)):
            batcher = MicroBatcher(classifier, max_batch, max_wait_ms)
            loads[name] = await load_test(batcher, a_tile(), rate, max(20, round(rate * seconds)))
            batcher.stop()
        found[max_batch, max_wait_ms] = loads
        told = "   ".join(f"{name} p95 {stats['p95']:7.2f} ms" for name, stats in loads.items())
        print(f"max_batch {max_batch:2}, max_wait_ms {max_wait_ms:4g}:   {told}", file=sys.stderr)
    return found


def main() -> None:
    """Do what the module's own words say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("export", help="weights.pt → tile_model.onnx")
    serving = commands.add_parser("serve", help="serve with CONFIG")
    serving.add_argument("--port", type=int, default=8000)
    picking = commands.add_parser("pick", help="measure and choose a configuration")
    picking.add_argument("--budget", type=float, default=20.0, help="p95 in milliseconds")
    picking.add_argument("--quiet", type=float, default=20.0, help="requests a second")
    picking.add_argument("--peak", type=float, default=400.0, help="requests a second")
    picking.add_argument("--seconds", type=float, default=3.0, help="of each load")
    asked = parser.parse_args()
    if asked.command == "export":
        from onbudget.make.factory import load_module

        sys.path.insert(0, str(HERE))
        print(export_onnx(load_module("model:build", HERE / "weights.pt"), str(HERE / ONNX_PATH)))
    elif asked.command == "serve":
        import uvicorn

        classifier = classifier_here()
        uvicorn.run(create_app(classifier, MicroBatcher(classifier, **CONFIG)), port=asked.port)
    else:
        results = asyncio.run(measure(classifier_here(), asked.quiet, asked.peak, asked.seconds))
        chosen = pick_config(results, asked.budget)
        if chosen is None:
            raise SystemExit(
                f"no configuration holds {asked.budget:g} ms under both loads: a looser budget, or less load"
            )
        print(f"CONFIG = {dict(zip(('max_batch', 'max_wait_ms'), chosen, strict=True))}")


if __name__ == "__main__":
    main()
