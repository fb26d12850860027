"""An application's own Python before and after the model: off the event loop, and one request's faults are its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

import onbudget
from onbudget.core.errors import UsageError
from onbudget.serve.models import Model
from onbudget.serve.seam import Seam
from tests.models import echo, tile_cnn, two_inputs, write
from tests.support.tiles import Tiles

loops: set[int] = set()
_GREYS = range(256)


def grey(item: Any) -> np.ndarray[Any, Any]:
    """A number → a tile of that grey; what is none, or too large, is an error of one kind or the other."""
    loops.add(threading.get_ident())
    if isinstance(item, bytes):
        item = int(item)
    if not isinstance(item, int):
        raise ValueError(f"{item!r} is no grey")
    return np.full((16, 16, 3), _GREYS[item], np.uint8)  # an IndexError for 256


def client(model: Any, **given: Any) -> TestClient:
    return TestClient(onbudget.create_app(model, **given))


def test_decode_makes_the_models_items(tiles: Tiles) -> None:
    """Each item of the list goes through it, by either name; the answers are the model's, and no event loop ran it."""
    expected = [label for label, _ in tiles.expect(np.stack([grey(v) for v in (3, 200)]))]
    loops.clear()
    with client(tiles.bundle, decode=grey) as caller:
        for field in ("tiles", "instances"):
            told = caller.post("/predict", json={field: [3, 200]}).json()["predictions"]
            assert [answer["label"] for answer in told] == expected
        whole = caller.post("/predict", content=b"200", headers={"content-type": "audio/wav"})
        assert whole.json()["label"] == expected[1]
        upload = caller.post("/predict", files={"file": ("a", b"3", "application/x-own")})
        assert upload.json()["label"] == expected[0]
    assert threading.get_ident() not in loops
    assert loops


def test_it_never_runs_on_the_event_loop(tiles: Tiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a model would be run inline, one with a seam gets a lane of its own."""
    monkeypatch.setattr("onbudget.engine.machine.Machine.cores", lambda machine: 1.0)
    settings = onbudget.Settings(lanes=1, p95=5.0)
    seams = (None, Seam(decode=grey), Seam(finish=str))
    assert [Model(tiles.bundle, settings, seam).inline for seam in seams] == [True, False, False]


@pytest.mark.parametrize(
    ("item", "status", "told"),
    [
        ("black", 422, "item 2 (tiles[1]): 'black' is no grey"),
        (256, 500, "item 2 (tiles[1]): it could not be decoded: IndexError; the server's log has it"),
    ],
)
def test_an_exception_in_decode_is_its_requests_alone(tiles: Tiles, item: Any, status: int, told: str) -> None:
    """A ValueError is 422 with its own words, anything else 500; requests of the same batch are answered."""
    gate, entered = threading.Event(), threading.Event()

    def decode(sent: Any) -> np.ndarray[Any, Any]:
        if sent == 1:
            entered.set()
            assert gate.wait(30)
        return grey(sent)

    settings = onbudget.Settings(lanes=1)
    with client(tiles.bundle, settings=settings, decode=decode) as caller, ThreadPoolExecutor() as pool:
        first = pool.submit(caller.post, "/predict", json={"tiles": [1]})
        assert entered.wait(30)  # the one lane is busy: the others will share the next batch
        queue = caller.app.state.service.model.queue  # type: ignore[attr-defined]  # it is the app made above
        bodies = [[2], [3, item], [4]]
        others = [pool.submit(caller.post, "/predict", json={"tiles": sent}) for sent in bodies]
        while queue.waiting < 4:
            time.sleep(0)
        gate.set()
        answers = [one.result() for one in others]
        assert first.result().status_code == 200
    assert [answer.status_code for answer in answers] == [200, status, 200]
    assert answers[1].json()["detail"] == told


def test_what_the_model_does_not_take_is_the_applications_fault(tiles: Tiles) -> None:
    """A decode whose array has another shape is a 500 that says so; its caller could not have known."""
    with client(tiles.bundle, decode=lambda item: np.zeros((8, 8, 3), np.uint8)) as caller:
        answer = caller.post("/predict", json={"tiles": [1]})
    assert answer.status_code == 500
    assert "decode made what the model does not take: item 1 (tiles[0]): its shape is 8×8×3" in answer.json()["detail"]


def test_finish_makes_what_is_sent(tiles: Tiles) -> None:
    """Each answer goes through it; numpy's numbers are sent as numbers."""

    def finish(answer: dict[str, Any]) -> dict[str, Any]:
        return {"is": answer["label"].upper(), "sure": np.float32(0.5), "both": np.arange(2)}

    with client(tiles.bundle, decode=grey, finish=finish) as caller:
        (told,) = caller.post("/predict", json={"tiles": [3]}).json()["predictions"]
    ((label, _),) = tiles.expect(grey(3)[None])
    assert told == {"is": label.upper(), "sure": 0.5, "both": [0, 1]}


def test_an_exception_in_finish_is_its_requests_alone(tiles: Tiles) -> None:
    """500 for that request, and the next is answered."""
    sent = iter([ZeroDivisionError(), ValueError("no"), None])

    def finish(answer: dict[str, Any]) -> dict[str, Any]:
        if (error := next(sent)) is not None:
            raise error
        return answer

    with client(tiles.bundle, decode=grey, finish=finish) as caller:
        told = [caller.post("/predict", json={"tiles": [3]}) for _ in range(3)]
    assert [answer.status_code for answer in told] == [500, 500, 200]
    assert "item 1 (tiles[0]): its answer could not be finished: ZeroDivisionError" in told[0].json()["detail"]


def test_limits_and_unreadable_bodies_are_as_without_it(tiles: Tiles) -> None:
    """Counts, names and JSON are checked before any decode; what curl -d says of a body is still 415."""
    with client(tiles.bundle, decode=grey) as caller:
        assert "no tiles" in caller.post("/predict", json={"tiles": []}).json()["detail"]
        assert "33 items are too many" in caller.post("/predict", json={"tiles": [1] * 33}).json()["detail"]
        assert caller.post("/predict", json={"other": [1]}).status_code == 422
        assert caller.post("/predict", content=b"{").status_code == 400
        urlencoded = {"content-type": "application/x-www-form-urlencoded"}
        assert caller.post("/predict", content=b"3", headers=urlencoded).status_code == 415
        schemas = caller.get("/openapi.json").json()["components"]["schemas"]
        assert schemas["Item"] == {"description": "Whatever this application's `decode` takes."}


def test_open_axes_and_several_inputs(tmp_path: Path) -> None:
    """Arrays of different lengths run apart, and a dict by input name feeds a model of two inputs."""
    open_axis = write(echo(-1), tmp_path / "echo.onnx")
    with client(open_axis, decode=lambda text: np.array([float(c) for c in text], np.float32)) as caller:
        told = caller.post("/predict", json={"instances": ["12", "345"]}).json()["predictions"]
        assert [answer["y"] for answer in told] == [[1, 2], [3, 4, 5]]
    two = write(two_inputs(), tmp_path / "two.onnx")
    with client(two, decode=lambda v: {"a": [v, v, v], "b": [1.0, 2.0, 3.0]}) as caller:
        told = caller.post("/predict", json={"instances": [10]}).json()["predictions"]
        assert told == [{"sum": [11, 12, 13]}]


async def _async(item: Any) -> Any:
    return item


@pytest.mark.parametrize("name", ["decode", "finish"])
@pytest.mark.parametrize("given", [_async, 7])
def test_only_plain_functions(tiles: Tiles, name: str, given: Any) -> None:
    """An async function would never be awaited in a lane: that is said when the application is made."""
    with pytest.raises(UsageError, match=f"{name} is .*plain function"):
        onbudget.create_app(tiles.bundle, **{name: given})


# ---- a Python classifier in the model's place -----------------------------------------------------------------------


class Mean:
    """Calls a tile dark or light by its mean."""

    classes = ("dark", "light")

    def __init__(self) -> None:
        self.batches: list[int] = []

    def predict(self, items: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
        self.batches.append(len(items))
        return [{"label": self.classes[int(one.mean() > 127)], "confidence": np.float64(1)} for one in items]


def test_any_classifier_is_served(tiles: Tiles) -> None:
    """`predict` and `classes` are enough, with a decode; every route is there, and its batches are the batcher's."""
    mean = Mean()
    batcher = onbudget.MicroBatcher(mean, max_batch=2, max_wait_ms=1)
    with client(mean, batcher=batcher, decode=grey) as caller:
        told = caller.post("/predict", json={"instances": [3, 200, 4]}).json()["predictions"]
        assert [answer["label"] for answer in told] == ["dark", "light", "dark"]
        assert caller.get("/health").json() == {"status": "ok", "classes": ["dark", "light"]}
        ready = caller.get("/ready").json()
        assert (ready["settings"]["policy"], ready["settings"]["max_batch"], ready["settings"]["lanes"]) == (
            "timer",
            2,
            1,
        )
        assert caller.get("/status").status_code == caller.get("/openapi.json").status_code == 200
        assert 'onbudget_batches_total{why="full"} 1' in caller.get("/metrics").text
    assert mean.batches == batcher.batch_sizes == [2, 1]


def test_a_free_decode_that_disagrees_with_itself_fails_alone() -> None:
    """Where nobody declared a shape the first of a batch does, and another one's request fails by itself."""
    with client(Mean(), decode=lambda size: np.zeros(size, np.uint8)) as caller:
        answer = caller.post("/predict", json={"instances": [3, 4]})
        assert (answer.status_code, "(4,) uint8 of it and (3,) uint8 of others" in answer.text) == (500, True)
        assert caller.post("/predict", json={"instances": [4]}).status_code == 200


def recipe() -> onbudget.Recipe:
    return onbudget.Recipe("picture", (8, 8, 3), scale=1 / 255)


@pytest.mark.parametrize("how", ["recipe", "function"])
def test_a_classifier_of_a_plain_file_needs_no_decode(tmp_path: Path, how: str) -> None:
    """A Recipe says what an item is, and a function that turns pixels into the model's input shows it when tried."""
    path = write(tile_cnn(), tmp_path / "model.onnx")
    preprocess: Any = recipe() if how == "recipe" else recipe().tensor
    classifier = onbudget.Classifier(path, ["a", "b", "c", "d"], preprocess)
    tile = np.random.default_rng(1).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    with client(classifier, batcher=onbudget.MicroBatcher(classifier)) as caller:
        sent = caller.post("/predict", content=tile.tobytes(), headers={"content-type": "application/octet-stream"})
        assert sent.json()["predictions"] == classifier.predict(tile[None])
        nested = caller.post("/predict", json={"tiles": [tile.tolist()]})
        assert nested.json()["predictions"] == classifier.predict(tile[None])


def test_a_bundles_classifier_is_served_from_its_file(tiles: Tiles) -> None:
    """With all that a file has: costs, a budget, pictures."""
    with client(onbudget.Classifier(tiles.bundle), settings=onbudget.Settings(p95=5.0)) as caller:
        ready = caller.get("/ready").json()
        assert ready["settings"]["policy"] == "deadline"
        assert ready["providers"] == ["CPUExecutionProvider"]


@pytest.mark.parametrize(
    ("make", "given", "told"),
    [
        (lambda t: t.bundle, {"batcher": True}, "a batcher goes with a classifier"),
        (lambda t: object(), {"decode": grey}, "object has no 'predict'"),
        (lambda t: Mean(), {}, "give decode="),
        (lambda t: Mean(), {"decode": grey, "batcher": True}, "of the same classifier"),
        (
            lambda t: Mean(),
            {"decode": grey, "settings": onbudget.Settings(p95=1.0, policy="deadline")},
            "must know what a run costs",
        ),
    ],
)
def test_what_does_not_go_together_is_told(
    tiles: Tiles, make: Callable[[Tiles], Any], given: dict[str, Any], told: str
) -> None:
    """A UsageError when the application is made, not a surprise at its first request."""
    if given.get("batcher"):
        given = given | {"batcher": onbudget.MicroBatcher(Mean())}
    with pytest.raises(UsageError, match=told):
        onbudget.create_app(make(tiles), **given)


def test_settings_may_still_come_second(tiles: Tiles) -> None:
    """`create_app(path, Settings(…))` is what applications wrote before there were batchers."""
    with TestClient(onbudget.create_app(tiles.bundle, onbudget.Settings(max_items=1))) as caller:
        assert caller.get("/ready").json()["settings"]["max_items"] == 1
