"""prove.payloads: whole requests, distinct, exactly what a server would be sent by a person."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from onbudget.core.errors import TargetError, UsageError
from onbudget.core.metadata import Metadata, Sample
from onbudget.core.recipe import Recipe
from onbudget.engine.bundle import with_metadata
from onbudget.prove import payloads
from onbudget.prove.client import Answer, Target
from onbudget.prove.payloads import Format, Item, Shape

TARGET = Target("127.0.0.1", 8000, "/predict", "127.0.0.1:8000")
TILES = Shape("tiles", (8, 6, 3), "uint8")
MODEL = {"field": "tiles", "shape": [8, 6, 3], "dtype": "uint8", "task": "classify"}
TYPES = {"json": "application/json", "octet": "application/octet-stream"}


def pixels(item: Item, form: str, shape: Shape) -> Any:
    """What a server would make of an item's body."""
    if form == "json":
        told = json.loads(item.body)
        assert list(told) == [shape.field]
        assert len(told[shape.field]) == 1
        raw = base64.b64decode(told[shape.field][0], validate=True)
    elif form == "octet":
        raw = item.body
    else:
        start, _, rest = item.body.partition(b"\r\n\r\n")
        assert b'name="file"; filename="item.%b"' % form.encode() in start
        assert f"Content-Type: image/{form}".encode() in start
        return np.asarray(
            Image.open(io.BytesIO(rest.rpartition(b"\r\n--" + payloads.BOUNDARY.encode() + b"--\r\n")[0]))
        )
    return np.frombuffer(raw, shape.dtype).reshape(shape.shape)


@pytest.mark.parametrize("form", ["json", "octet", "png"])
def test_random_items_are_of_the_models_shape_and_distinct(form: Format) -> None:
    """64 of them, all different, the same for the same seed, in every format that loses nothing."""
    items = payloads.random_items(form, TILES, 3)

    assert len({item.body for item in items}) == len(items) == 64
    assert all(pixels(item, form, TILES).shape == (8, 6, 3) for item in items)
    assert items == payloads.random_items(form, TILES, 3)
    assert items[0] != payloads.random_items(form, TILES, 4)[0]
    assert items[0].kind.split(";")[0] == TYPES.get(form, "multipart/form-data")


def test_random_uint8_items_use_all_values_and_jpegs_are_pictures() -> None:
    """0 and 255 occur; a grey model gets grey pictures."""
    items = payloads.random_items("octet", Shape("x", (64, 64, 3), "uint8"), 0)
    assert (items[0].body.count(0) > 0, items[0].body.count(255) > 0) == (True, True)
    grey = payloads.random_items("jpeg", Shape("x", (28, 28, 1), "uint8"), 0)
    assert pixels(grey[0], "jpeg", Shape("x", (28, 28, 1), "uint8")).shape == (28, 28)


@pytest.mark.parametrize(
    ("dtype", "low", "high"), [("float32", 0, 1), ("float16", 0, 1), ("int64", 0, 9), ("bool", 0, 1)]
)
def test_random_tensors_stay_in_a_range_that_most_models_take(dtype: str, low: float, high: float) -> None:
    """Floats from 0 to 1, token numbers small enough for any vocabulary."""
    shape = Shape("x", (16,), dtype)
    values = pixels(payloads.random_items("json", shape, 0)[0], "json", shape)

    assert values.dtype == np.dtype(dtype)
    assert low <= values.min() <= values.max() <= high


def test_tensors_cannot_be_sent_as_pictures() -> None:
    """It says which formats can."""
    with pytest.raises(UsageError, match="use --format json or octet"):
        payloads.random_items("png", Shape("x", (16,), "float32"), 0)


def _folder(path: Path) -> Path:
    for number, name in enumerate(["b.jpg", "a.jpg", "c.png", "d.webp"]):
        Image.new("RGB", (12, 16), (number * 60, 5, 9)).save(path / name)
    (path / "notes.txt").write_text("not a picture")
    return path


@pytest.mark.parametrize(("form", "names"), [("jpeg", ["a.jpg", "b.jpg"]), ("png", ["c.png"])])
def test_pictures_of_a_folder_are_sent_as_they_are(tmp_path: Path, form: Format, names: list[str]) -> None:
    """Byte for byte, in the order of their names, those of the format that was asked for."""
    items = payloads.from_pictures(_folder(tmp_path), form, None)

    assert len(items) == len(names)
    for item, name in zip(items, names, strict=True):
        assert (tmp_path / name).read_bytes() in item.body


@pytest.mark.parametrize("form", ["json", "octet"])
def test_pictures_become_items_of_the_models_size(tmp_path: Path, form: Format) -> None:
    """Decoded and stretched to what the server says that its model takes: all four formats, the text file left out."""
    items = payloads.from_pictures(_folder(tmp_path), form, TILES)
    found = [pixels(item, form, TILES) for item in items]

    assert [f.shape for f in found] == [(8, 6, 3)] * 4
    assert abs(int(found[2][4, 3, 0]) - 120) <= 1  # c.png is lossless


@pytest.mark.parametrize(
    ("form", "shape", "message"),
    [
        ("json", None, "the server does not say what size.*--format jpeg or png"),
        ("json", Shape("x", (16,), "float32"), "does not say what size"),
    ],
)
def test_pictures_without_a_known_size_say_what_to_do(
    tmp_path: Path, form: Format, shape: Shape | None, message: str
) -> None:
    """A server that says nothing, or whose model takes no pictures."""
    with pytest.raises(UsageError, match=message):
        payloads.from_pictures(_folder(tmp_path), form, shape)


def test_a_folder_without_fitting_pictures_says_what_it_has(tmp_path: Path) -> None:
    """No jpeg, but a png; or nothing at all; or a picture that is broken, by its name."""
    with pytest.raises(UsageError, match="has no pictures"):
        payloads.from_pictures(tmp_path, "json", TILES)
    Image.new("RGB", (4, 4)).save(tmp_path / "x.png")
    with pytest.raises(UsageError, match=r"has no jpeg files \(it has png\)"):
        payloads.from_pictures(tmp_path, "jpeg", None)
    (tmp_path / "y.jpg").write_bytes(b"\xff\xd8\xff\xe0 broken")
    with pytest.raises(UsageError, match=r"y\.jpg: "):
        payloads.from_pictures(tmp_path, "json", TILES)


def test_a_large_folder_is_sampled_the_same_each_time(tmp_path: Path) -> None:
    """256 of 300, always those."""
    for number in range(300):
        Image.new("RGB", (2, 2), (number % 256, number // 256, 0)).save(tmp_path / f"{number:03}.png")
    first, again = (payloads.from_pictures(tmp_path, "png", None) for _ in range(2))

    assert first == again
    assert len({item.body for item in first}) == len(first) == 256


def _bundle(path: Path, metadata: Metadata) -> Path:
    # the outermost fields of an .onnx file: ir_version 10, and a graph without anything in it
    path.write_bytes(with_metadata(b"\x08\x0a" + b"\x3a\x0e\x12\x0cempty graph!", metadata))
    return path


def test_a_bundles_samples_are_sent_with_its_field(tmp_path: Path) -> None:
    """Its reference rows, and the same rolled sideways until there are 64 distinct bodies."""
    rows = np.random.default_rng(0).integers(0, 256, (3, 8, 64, 3)).astype(np.uint8)
    samples = tuple(Sample(base64.b64encode(row.tobytes()).decode(), (1.0,)) for row in rows)
    recipe = Recipe(kind="picture", shape=(8, 64, 3))
    path = _bundle(tmp_path / "b.onnx", Metadata(field="tiles", recipe=recipe, samples=samples))
    shape = Shape("tiles", (8, 64, 3), "uint8")
    items = payloads.from_bundle(path, "json", None)

    assert len({item.body for item in items}) == len(items) == 66
    np.testing.assert_array_equal([pixels(item, "json", shape) for item in items[:3]], rows)
    np.testing.assert_array_equal(pixels(items[3], "json", shape), np.roll(rows[0], 1, axis=1))
    assert list(json.loads(payloads.from_bundle(path, "json", "other")[0].body)) == ["other"]


def test_a_bundle_without_samples_says_what_to_give(tmp_path: Path) -> None:
    """Its passport holds none."""
    path = _bundle(tmp_path / "b.onnx", Metadata())
    with pytest.raises(UsageError, match="has no reference samples; give a folder of pictures, or --body"):
        payloads.from_bundle(path, "json", None)


def test_a_body_is_sent_as_it_is(tmp_path: Path) -> None:
    """Bytes untouched; the type by the file's name, or as given; where neither tells, it asks."""
    (tmp_path / "one.json").write_bytes(b'{"x": \xff}')
    (tmp_path / "odd.dat").write_bytes(b"x")
    (tmp_path / "empty.json").write_bytes(b"")

    assert payloads.from_file(tmp_path / "one.json", None) == [Item("application/json", b'{"x": \xff}')]
    assert payloads.from_file(tmp_path / "odd.dat", "text/x")[0].kind == "text/x"
    with pytest.raises(UsageError, match="--content-type"):
        payloads.from_file(tmp_path / "odd.dat", None)
    with pytest.raises(UsageError, match="is empty"):
        payloads.from_file(tmp_path / "empty.json", None)
    with pytest.raises(UsageError, match=r"none\.json cannot be read: No such file"):
        payloads.from_file(tmp_path / "none.json", None)


def test_a_request_is_whole_bytes() -> None:
    """Head and body in one; the length is right; a header that the user gives stands instead of ours."""
    items = [Item("application/json", b"{}"), Item("application/json", b"[1]")]
    sent = payloads.assemble(items, TARGET, [("X-Deadline-Ms", "20")], "tests")
    own = payloads.assemble(items, TARGET, [("host", "other"), ("content-type", "text/x")], "tests")

    assert sent.requests[0] == (
        b"POST /predict HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nX-Deadline-Ms: 20\r\nContent-Type: application/json\r\n"
        b"Accept: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )
    assert own.requests[1].startswith(b"POST /predict HTTP/1.1\r\nhost: other\r\ncontent-type: text/x\r\nAccept")
    assert sent.sha256 == own.sha256
    assert sent.facts()["count"] == 2


@pytest.mark.parametrize(
    ("path", "ready"),
    [
        ("/predict", "/ready"),
        ("/model/predict?top=3", "/model/ready"),
        ("/v1/models/x:predict", "/ready"),
        ("/x", "/ready"),
    ],
)
def test_ready_is_asked_beside_predict(path: str, ready: str) -> None:
    """An application may be mounted somewhere; another server's paths say nothing."""
    asked = payloads.ready_request(Target("h", 80, path, "h"), [("Authorization", "x")])

    assert asked == f"GET {ready} HTTP/1.1\r\nHost: h\r\nAuthorization: x\r\nAccept: application/json\r\n\r\n".encode()


def test_what_ready_says_is_read_carefully() -> None:
    """The model where it is told; nothing for other servers; not ready is an error with the server's words."""
    assert payloads.model_told(Answer(200, json.dumps({"model": MODEL}).encode()), TARGET) == MODEL
    for answer in (Answer(404, b"nope"), Answer(200, b"[]"), Answer(200, b'{"model": "tiles"}'), Answer(404, b"{}")):
        assert payloads.model_told(answer, TARGET) is None
    with pytest.raises(TargetError, match="is not ready: still loading"):
        payloads.model_told(Answer(503, b'{"detail": "still loading"}'), TARGET)


@pytest.mark.parametrize(
    "model",
    [
        None,
        {},
        {**MODEL, "shape": None},
        {**MODEL, "shape": [8, None, 3]},
        {**MODEL, "shape": [8, -1, 3]},
        {**MODEL, "shape": [True]},
        {**MODEL, "shape": "8x6"},
        {**MODEL, "shape": [10**6, 10**6]},
        {**MODEL, "dtype": "object"},
        {**MODEL, "dtype": "tensor(float)"},
        {**MODEL, "dtype": 7},
    ],
)
def test_a_model_that_cannot_be_fed_blindly_has_no_shape(model: dict[str, Any] | None) -> None:
    """Open axes, texts, and whatever a strange server says."""
    assert payloads.shape_of(model, None) is None


def test_a_models_shape_is_taken_as_told() -> None:
    """The field is the server's, unless the user names one."""
    assert payloads.shape_of(MODEL, None) == TILES
    assert payloads.shape_of(MODEL, "x") == Shape("x", (8, 6, 3), "uint8")


@pytest.mark.parametrize(("model", "message"), [(None, "does not say what its model takes"), (MODEL, "no fixed shape")])
def test_not_knowing_what_to_send_says_what_to_give(model: dict[str, Any] | None, message: str) -> None:
    """Pictures, a bundle, or a body."""
    assert message in str(payloads.no_items(TARGET, model))
    assert "--body FILE with --content-type" in str(payloads.no_items(TARGET, model))
