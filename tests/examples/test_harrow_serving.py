"""examples/harrow_tiles/serving.py keeps the seed's contract, row by row of A1 to A10, with the seed's own numbers."""

from __future__ import annotations

import ast
import asyncio
import base64
import importlib.util
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from onbudget.core.errors import NotReady
from onbudget.engine.timing import per_item_ms
from tests.models import tile_cnn, write

HERE = Path(__file__).resolve().parents[2] / "examples" / "harrow_tiles"
CLASSES = ["water", "coast", "vegetation", "built-up"]
SEED = 12


@pytest.fixture(scope="module")
def serving() -> Iterator[ModuleType]:
    """The example's serving.py, under a name of its own."""
    spec = importlib.util.spec_from_file_location("harrow_serving", HERE / "serving.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # pydantic looks its annotations up there
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the seed's shape: tiles (N, 3, 64, 64) float32 → logits."""
    return write(tile_cnn(size=64, classes=4), tmp_path_factory.mktemp("model") / "tile_model.onnx")


def some(count: int) -> np.ndarray[Any, Any]:
    """Distinct uint8 tiles."""
    return np.random.default_rng(SEED).integers(0, 256, (count, 64, 64, 3), dtype=np.uint8)


def text(tile: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(tile.tobytes()).decode()


class Fake:
    """Answers each tile with its first value; notes its batches and the threads that it ran on."""

    classes = CLASSES

    def __init__(self, fails: bool = False) -> None:
        self.batches: list[int] = []
        self.threads: set[int] = set()
        self.fails = fails
        self.go = threading.Event()
        self.go.set()

    def predict(self, tiles: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
        self.batches.append(len(tiles))
        self.threads.add(threading.get_ident())
        assert self.go.wait(30)
        if self.fails:
            raise ZeroDivisionError("the model is broken")
        return [{"label": "water", "confidence": int(np.ravel(tile)[0])} for tile in tiles]


# ---- A1, A2 ---------------------------------------------------------------------------------------------------------


@pytest.mark.torch
def test_a1_a2_one_file_for_any_batch_size_answers_as_pytorch(
    serving: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A1, A2: the path comes back; ports are named tiles and logits; 1 and 32 rows differ by next to nothing."""
    torch = pytest.importorskip("torch")
    import onnx
    import onnxruntime

    torch.manual_seed(SEED)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(4 * 62 * 62, 4)).eval()
    path = str(tmp_path / "m.onnx")
    exporter, dynamo = torch.onnx.export, []

    def spy(*given: Any, **named: Any) -> Any:
        dynamo.append(named["dynamo"])
        return exporter(*given, **named)

    monkeypatch.setattr(torch.onnx, "export", spy)
    assert serving.export_onnx(net, path) == path
    assert dynamo == [False]
    graph = onnx.load(path).graph
    (port,) = graph.input
    axes = port.type.tensor_type.shape.dim
    assert ([port.name], [out.name for out in graph.output]) == (["tiles"], ["logits"])
    assert axes[0].dim_param
    assert [axis.dim_value for axis in axes[1:]] == [3, 64, 64]
    session = onnxruntime.InferenceSession(path)
    for rows in (1, 32):
        x = torch.randn(rows, 3, 64, 64)
        difference = serving.max_difference(net, session, x)
        assert isinstance(difference, float)
        assert difference < 1e-4
    with torch.no_grad():
        net[2].bias += torch.tensor([0.0, 0.0, -0.5, 0.25])
    assert serving.max_difference(net, session, x) == pytest.approx(0.5, abs=1e-4)


# ---- A3, A4, A5 -----------------------------------------------------------------------------------------------------


def test_a3_preprocess_is_the_seeds_formula_without_torch(serving: ModuleType) -> None:
    """A3: / 255, minus MEAN, divided by STD, channels first, float32, contiguous."""
    tree = ast.parse((HERE / "model.py").read_text())
    told = {node.targets[0].id: node.value for node in tree.body if isinstance(node, ast.Assign)}  # type: ignore[attr-defined]  # plain names
    mean, std = (np.array(ast.literal_eval(told[name])) for name in ("MEAN", "STD"))
    tiles = some(3)
    made = serving.preprocess(tiles)
    assert (made.shape, made.dtype, made.flags["C_CONTIGUOUS"]) == ((3, 3, 64, 64), np.float32, True)
    np.testing.assert_allclose(made, ((tiles / 255 - mean) / std).transpose(0, 3, 1, 2), atol=1e-5)


def test_a3_serving_does_not_import_torch() -> None:
    """A3: torch is imported by export and parity alone, when they are called."""
    code = "import sys, serving; print('torch' in sys.modules, 'onnx' in sys.modules)"
    env = os.environ | {"PYTHONPATH": str(HERE.parents[1] / "src")}
    out = subprocess.run([sys.executable, "-c", code], cwd=HERE, env=env, capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False", "False"]


def test_a4_a_classifier_has_one_thread_and_softmax_confidences(serving: ModuleType, onnx_file: Path) -> None:
    """A4: label and probability of each tile, as numpy works them out from the session's logits."""
    classifier = serving.Classifier(str(onnx_file), CLASSES)
    assert classifier.classes == CLASSES
    assert classifier.session.get_session_options().intra_op_num_threads == 1
    tiles = some(5)
    (logits,) = classifier.session.run(None, {"tiles": serving.preprocess(tiles)})
    odds = np.exp(logits - logits.max(1, keepdims=True))
    odds /= odds.sum(1, keepdims=True)
    answers = classifier.predict(tiles)
    assert [a["label"] for a in answers] == [CLASSES[i] for i in odds.argmax(1)]
    np.testing.assert_allclose([a["confidence"] for a in answers], odds.max(1), rtol=1e-5)
    assert all(set(a) == {"label", "confidence"} and isinstance(a["confidence"], float) for a in answers)


def test_a5_per_tile_is_the_median_of_20_after_2(serving: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A5: 22 calls with the whole batch; the two slow first ones and one slow later one do not move the median."""
    calls: list[int] = []
    now = 0.0

    def fn(tiles: np.ndarray[Any, Any]) -> None:
        nonlocal now
        calls.append(len(tiles))
        now += 9.0 if len(calls) in (1, 2, 7) else 0.008

    monkeypatch.setattr(serving, "per_item_ms", partial(per_item_ms, clock=lambda: now))
    assert serving.per_tile_ms(fn, some(4)) == pytest.approx(2.0)
    assert calls == [4] * 22


# ---- A6 -------------------------------------------------------------------------------------------------------------


def test_a6_health_is_exact(serving: ModuleType) -> None:
    """A6: status and classes, nothing else."""
    client = TestClient(serving.create_app(Fake()))
    assert client.get("/health").json() == {"status": "ok", "classes": CLASSES}


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("count", [1, 32])
def test_a6_one_prediction_a_tile_in_order(serving: ModuleType, batched: bool, count: int) -> None:
    """A6: from `predict` in one call, or from `submit` for each tile; up to 32 of them."""
    fake = Fake()
    batcher = serving.MicroBatcher(fake) if batched else None
    with TestClient(serving.create_app(fake, batcher)) as client:
        answer = client.post("/predict", json={"tiles": [text(tile) for tile in some(count)]})
    assert answer.status_code == 200
    told = [p["confidence"] for p in answer.json()["predictions"]]
    assert told == [int(tile[0, 0, 0]) for tile in some(count)]
    assert fake.batches == ([16, 16] if batched and count == 32 else [count])
    assert threading.get_ident() not in fake.threads


def test_a6_a_client_without_a_lifespan_is_answered_again_and_again(serving: ModuleType) -> None:
    """A6, A7: such a test client has a new event loop for each request; the batcher starts anew in each."""
    fake = Fake()
    client = TestClient(serving.create_app(fake, serving.MicroBatcher(fake)))
    for _ in range(3):
        answer = client.post("/predict", json={"tiles": [text(tile) for tile in some(2)]})
        assert len(answer.json()["predictions"]) == 2
    assert fake.batches == [2, 2, 2]


GOOD = "A" * 16_384  # 12,288 zero bytes


@pytest.mark.parametrize(
    ("tiles", "told"),
    [
        ([], "no tiles"),
        ([GOOD] * 33, "33 tiles are too many: the limit is 32"),
        ([GOOD, "§§§§"], r"tile 2 \(tiles\[1\]\): not valid base64"),
        ([GOOD[:-4] + "\n" + GOOD[:4]], r"tile 1 \(tiles\[0\]\): not valid base64"),
        ([GOOD, GOOD, GOOD[:-4]], r"tile 3 \(tiles\[2\]\): it has 12285 bytes, but a tile has 12288"),
        ([GOOD + "AAAA"], "it has 12291 bytes"),
        ([""], "it has 0 bytes"),
    ],
)
def test_a6_what_is_wrong_is_422_and_told(serving: ModuleType, tiles: list[str], told: str) -> None:
    """A6: none, too many, or one that is no tile: a helpful detail that says which, and no predict."""
    fake = Fake()
    answer = TestClient(serving.create_app(fake)).post("/predict", json={"tiles": tiles})
    assert answer.status_code == 422
    assert re.search(told, answer.json()["detail"])
    assert fake.batches == []


@pytest.mark.parametrize("body", [{}, {"tiles": "text"}, {"tiles": [1]}])
def test_a6_another_body_is_422_too(serving: ModuleType, body: Any) -> None:
    """A6: PredictRequest is what a body must be."""
    assert TestClient(serving.create_app(Fake())).post("/predict", json=body).status_code == 422


def test_a6_a_tile_is_its_bytes_row_by_row(serving: ModuleType) -> None:
    """A6: decode_tile undoes base64 of a tile's bytes."""
    tile = some(1)[0]
    decoded = serving.decode_tile(text(tile))
    assert (decoded.shape, decoded.dtype) == ((64, 64, 3), np.uint8)
    np.testing.assert_array_equal(decoded, tile)
    assert (serving.TILE_BYTES, serving.MAX_TILES, serving.ONNX_PATH) == (12_288, 32, "tile_model.onnx")


# ---- A7 -------------------------------------------------------------------------------------------------------------


async def _submit(batcher: Any, values: Any) -> list[Any]:
    return await asyncio.gather(*[batcher.submit(np.full((2, 2), v, np.uint8)) for v in values])


def test_a7_everybody_gets_their_own_answer_in_batches_of_16(serving: ModuleType) -> None:
    """A7: forty at once are 16, 16 and 8, off the event loop, each with the answer to its own tile."""
    fake = Fake()
    batcher = serving.MicroBatcher(fake)
    assert (batcher.max_batch, batcher.max_wait, batcher.worker) == (16, 0.002, None)
    answers = asyncio.run(_submit(batcher, range(40)))
    assert [a["confidence"] for a in answers] == list(range(40))
    assert batcher.batch_sizes == fake.batches == [16, 16, 8]
    assert threading.get_ident() not in fake.threads


def test_a7_an_exception_reaches_the_whole_batch_and_nobody_else(serving: ModuleType) -> None:
    """A7: all of a batch get what predict raised; the next batch is answered."""
    fake = Fake(fails=True)
    batcher = serving.MicroBatcher(fake, max_batch=3)

    async def go() -> tuple[list[Any], list[Any]]:
        tiles = [np.full((2, 2), v, np.uint8) for v in range(3)]
        failed = await asyncio.gather(*[batcher.submit(tile) for tile in tiles], return_exceptions=True)
        fake.fails = False
        return failed, await _submit(batcher, [7])

    failed, after = asyncio.run(go())
    assert [type(error) for error in failed] == [ZeroDivisionError] * 3
    assert after[0]["confidence"] == 7
    assert batcher.batch_sizes == [3, 1]


def test_a7_stop_fails_whoever_waits_and_a_submit_starts_again(serving: ModuleType) -> None:
    """A7: the tile that runs and the tiles behind it hear of the stop at once; the next submit is answered."""
    fake = Fake()
    batcher = serving.MicroBatcher(fake, max_batch=1)

    async def go() -> tuple[list[Any], list[Any]]:
        fake.go.clear()
        waiting = asyncio.gather(_submit(batcher, [1]), _submit(batcher, [2]), return_exceptions=True)
        while not fake.batches:
            await asyncio.sleep(0)
        batcher.stop()
        stopped = await waiting
        fake.go.set()
        return stopped, await _submit(batcher, [3])

    stopped, after = asyncio.run(go())
    assert [type(error) for error in stopped] == [NotReady] * 2
    assert after[0]["confidence"] == 3
    assert fake.batches == [1, 1]  # the second tile never ran


# ---- A8, A9, A10 ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [0, 12.5, 50, 95, 100])
def test_a8_percentiles_are_numpys(serving: ModuleType, q: float) -> None:
    """A8: linear interpolation, as a float."""
    values = random.Random(3).sample(range(1000), 21)
    assert serving.percentile(values, q) == pytest.approx(float(np.percentile(values, q)))
    assert isinstance(serving.percentile(values, q), float)


class Door:
    """A batcher that only notes when it was asked."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    async def submit(self, tile: Any) -> None:
        self.asked.append(time.perf_counter())


def test_a9_requests_start_at_the_first_tick_after_they_are_due(
    serving: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A9: n submits, none before its due moment, a running sum of expovariate; figures in ms and 1/s."""
    draws, at, due = random.Random(5), 0.0, []
    for _ in range(60):
        at += draws.expovariate(400)
        due.append(at)
    door = Door()
    sleep, ticks = asyncio.sleep, []

    async def tick(seconds: float) -> None:
        ticks.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(serving.asyncio, "sleep", tick)
    begin = time.perf_counter()
    told = asyncio.run(serving.load_test(door, some(1)[0], 400, 60, seed=5))
    assert len(door.asked) == 60
    assert set(ticks) == {0.005}
    assert all(asked - begin >= moment for asked, moment in zip(door.asked, due, strict=True))
    assert set(told) == {"p50", "p95", "throughput"}
    assert told["throughput"] <= 60 / due[-1]


def test_a9_a_request_is_timed_from_its_start_and_not_from_when_it_was_due(serving: ModuleType) -> None:
    """A9: a loop that is blocked for a while is in no latency, which is what `onbudget load` is for."""
    blocked = threading.Event()

    class Blocks:
        async def submit(self, tile: Any) -> None:
            if not blocked.is_set():
                blocked.set()
                time.sleep(0.2)  # somebody's blocking call: everybody who is due meanwhile starts late

    told = asyncio.run(serving.load_test(Blocks(), None, 500, 60, seed=1))
    assert blocked.is_set()
    assert told["p50"] < 100 < 200 <= 60 / told["throughput"] * 1e3


def test_a9_a_failing_submit_ends_the_test_with_its_own_error(serving: ModuleType) -> None:
    """A9: no figure is made of answers that failed."""

    class Fails:
        async def submit(self, tile: Any) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(serving.load_test(Fails(), None, 1000, 5))


def _loads(quiet: float, peak: float) -> dict[str, dict[str, float]]:
    return {"quiet": {"p95": quiet}, "peak": {"p95": peak}}


def test_a10_the_lowest_peak_of_those_that_fit_under_both_loads(serving: ModuleType) -> None:
    """A10: one that breaks the budget when it is quiet does not count, however good it is at peak."""
    results = {(1, 0): _loads(2, 30), (8, 5): _loads(21, 9), (16, 2): _loads(6, 14), (32, 2): _loads(6, 20)}
    assert serving.pick_config(results, 20) == (16, 2)
    assert serving.pick_config(results, 25) == (8, 5)
    assert serving.pick_config({(32, 2): _loads(6, 20)}, 20) == (32, 2)  # within is: not above
    assert serving.pick_config(results, 5) is None
    assert serving.pick_config({}, 5) is None


def test_config_is_what_a_batcher_takes(serving: ModuleType) -> None:
    """CONFIG names a MicroBatcher's own parameters."""
    batcher = serving.MicroBatcher(Fake(), **serving.CONFIG)
    assert batcher.max_batch == serving.CONFIG["max_batch"]
