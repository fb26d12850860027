"""What the load test sends: whole requests as bytes, built before the first one is due, several distinct in rotation.

Bodies come from a file that is sent as it is (`--body`), from pictures in a folder, from a bundle's reference samples,
or, without any of them, from what the server says of its model (`GET /ready`): seeded random items of that shape.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from onbudget.core.errors import RequestError, TargetError, UsageError
from onbudget.core.recipe import Recipe
from onbudget.prove.client import Answer, Target

Format = Literal["json", "octet", "jpeg", "png"]
Array = npt.NDArray[Any]

DISTINCT = 64  # bodies at least, where they can be varied
_MOST_PICTURES = 256
_MOST_BYTES = 256 * 10**6
BOUNDARY = "onbudget-7f1c0d2a9b"  # in no picture: 18 given bytes in a row
_MAGIC = {b"\xff\xd8\xff": "jpeg", b"\x89PNG": "png", b"RIFF": "webp"}
_TYPES = {
    ".json": "application/json",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
    ".bin": "application/octet-stream",
}


@dataclass(frozen=True, slots=True)
class Item:
    """What one request carries: a content type and the body."""

    kind: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Shape:
    """What a model takes: the name that callers use, one item's shape, numpy's name of its numbers."""

    field: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Payloads:
    """Whole requests, and where their bodies came from, in a word for people."""

    requests: tuple[bytes, ...]
    source: str
    sha256: str

    def facts(self) -> dict[str, Any]:
        """For the record's header."""
        return {
            "count": len(self.requests),
            "bytes": round(sum(map(len, self.requests)) / len(self.requests)),
            "source": self.source,
            "sha256": self.sha256,
        }


def head(
    method: str, target: Target, path: str, headers: Sequence[tuple[str, str]] = (), length: int | None = None
) -> bytes:
    """A request's head."""
    named = [] if any(k.lower() == "host" for k, _ in headers) else [f"Host: {target.authority}"]
    told = [f"{method} {path} HTTP/1.1", *named, *(f"{k}: {v}" for k, v in headers)]
    if length is not None:
        told.append(f"Content-Length: {length}")
    return ("\r\n".join(told) + "\r\n\r\n").encode("latin-1")


def assemble(items: Sequence[Item], target: Target, headers: Sequence[tuple[str, str]], source: str) -> Payloads:
    """Requests of these items; the user's `headers` come first, and one of ours that they name is left out."""
    given = {name.lower() for name, _ in headers}
    digest = hashlib.sha256()
    requests = []
    for item in items:
        ours = [("Content-Type", item.kind), ("Accept", "application/json")]
        told = [*headers, *(pair for pair in ours if pair[0].lower() not in given)]
        requests.append(head("POST", target, target.path, told, len(item.body)) + item.body)
        digest.update(item.body)
    return Payloads(tuple(requests), source, digest.hexdigest())


def from_file(path: Path, content_type: str | None) -> list[Item]:
    """The file's bytes as they are, of the type given or told by its name; UsageError where neither tells."""
    kind = content_type or _TYPES.get(path.suffix.lower())
    if kind is None:
        raise UsageError(f"{path}: what type is it? Say it with --content-type (application/json, image/jpeg, …)")
    return [Item(kind, _read(path))]


def from_pictures(folder: Path, form: Format, shape: Shape | None) -> list[Item]:
    """Pictures of a folder, in order of their names: as they are for jpeg and png, else as raw items of the shape.

    UsageError where there are none that fit.
    """
    found = [(path, _kind_of(path)) for path in sorted(folder.iterdir()) if path.is_file()]
    pictures = [(path, kind) for path, kind in found if kind]
    if form in ("jpeg", "png"):
        raw = [_read(path) for path, _ in _few([pair for pair in pictures if pair[1] == form])]
        if not raw:
            there = ", ".join(sorted({kind for _, kind in pictures})) or "no pictures"
            raise UsageError(f"{folder} has no {form} files (it has {there})")
        return [_upload(data, form) for data in raw]
    if not pictures:
        raise UsageError(f"{folder} has no pictures (jpeg, png or webp)")
    if shape is None or len(shape.shape) != 3 or shape.shape[2] not in (1, 3):
        raise UsageError(
            f"the server does not say what size of picture its model takes, so those in {folder} cannot be made into "
            f"--format {form}; send them as they are with --format jpeg or png"
        )
    return [_item(_decoded(path, shape), form, shape) for path, _ in _few(pictures)]


def from_bundle(path: Path, form: Format, field: str | None) -> list[Item]:
    """A bundle's reference samples; pictures of numbers also rolled, so that there are DISTINCT of them. UsageError."""
    from onbudget.engine.bundle import read_metadata

    metadata = read_metadata(path)
    if metadata is None or not metadata.samples or metadata.recipe is None:
        raise UsageError(f"{path} has no reference samples; give a folder of pictures, or --body")
    shape = Shape(field or metadata.field, metadata.recipe.shape, metadata.recipe.input_dtype)
    rows = [np.frombuffer(base64.b64decode(s.item), shape.dtype).reshape(shape.shape) for s in metadata.samples]
    if metadata.recipe.kind == "picture":
        rows = [np.roll(row, turn, axis=1) for turn in range(-(-DISTINCT // len(rows))) for row in rows]
    return [_item(row, form, shape) for row in rows]


def random_items(form: Format, shape: Shape, seed: int) -> list[Item]:
    """DISTINCT random items of the shape: uint8 of all values, floats from 0 to 1, other whole numbers from 0 to 9."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(shape.dtype)
    if dtype.kind == "f":
        rows = [rng.random(shape.shape).astype(dtype) for _ in range(DISTINCT)]
    else:
        most = {"b": 2, "u": 256 if dtype.itemsize == 1 else 10}.get(dtype.kind, 10)
        rows = [rng.integers(0, most, shape.shape).astype(dtype) for _ in range(DISTINCT)]
    return [_item(row, form, shape) for row in rows]


def ready_path(target: Target) -> str:
    """Where the server tells of its model: beside its /predict, which may be mounted somewhere."""
    before, found, _ = target.path.partition("?")[0].rpartition("/predict")
    return f"{before}/ready" if found and target.path.partition("?")[0].endswith("/predict") else "/ready"


def ready_request(target: Target, headers: Sequence[tuple[str, str]]) -> bytes:
    """The question what the server's model takes."""
    return head("GET", target, ready_path(target), [*headers, ("Accept", "application/json")])


def model_told(answer: Answer, target: Target) -> dict[str, Any] | None:
    """What `/ready` says of the model; None where it says nothing. TargetError where it says that it is not ready."""
    told = answer.json()
    if told is not None and answer.status == 503:
        raise TargetError(f"http://{target.authority} is not ready: {answer.detail()}")
    model = (told or {}).get("model")
    return model if answer.status == 200 and isinstance(model, dict) else None


def shape_of(model: Mapping[str, Any] | None, field: str | None) -> Shape | None:
    """What `/ready` says of its model; None where it says nothing, or where items have no fixed shape or are texts."""
    if model is None:
        return None
    shape, dtype = model.get("shape"), model.get("dtype")
    whole = isinstance(shape, list) and all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in shape)
    try:
        known = np.dtype(dtype).kind in "biuf" if isinstance(dtype, str) else False
    except TypeError:
        known = False
    if not whole or not known or not isinstance(shape, list) or prod(shape) > _MOST_BYTES:
        return None
    return Shape(field or str(model.get("field") or "instances"), tuple(shape), str(dtype))


def no_items(target: Target, model: Mapping[str, Any] | None) -> TargetError:
    """What to say when the server does not tell what it takes."""
    what = (
        f"http://{target.authority}{ready_path(target)} does not say what its model takes"
        if model is None
        else "the server's model takes items of no fixed shape"
    )
    return TargetError(f"{what}; give --data with pictures or a bundle, or --body FILE with --content-type")


# ---- one item -------------------------------------------------------------------------------------------------------


def _item(row: Array, form: Format, shape: Shape) -> Item:
    if form in ("jpeg", "png"):
        return _upload(_encoded(row, form), form)
    raw = np.ascontiguousarray(row).tobytes()
    if form == "octet":
        return Item("application/octet-stream", raw)
    told = json.dumps({shape.field: [base64.b64encode(raw).decode()]}, separators=(",", ":"))
    return Item("application/json", told.encode())


def _upload(data: bytes, kind: str) -> Item:
    start = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="item.{kind}"\r\n'
        f"Content-Type: image/{kind}\r\n\r\n"
    )
    return Item(f"multipart/form-data; boundary={BOUNDARY}", start.encode() + data + f"\r\n--{BOUNDARY}--\r\n".encode())


def _encoded(row: Array, form: Format) -> bytes:
    from PIL import Image

    if row.dtype != np.uint8 or row.ndim != 3 or row.shape[2] not in (1, 3):
        raise UsageError(f"items of {row.dtype} {list(row.shape)} are no pictures; use --format json or octet")
    out = io.BytesIO()
    Image.fromarray(row[:, :, 0] if row.shape[2] == 1 else row).save(out, form, quality=90)
    return out.getvalue()


def _decoded(path: Path, shape: Shape) -> Array:
    """A picture stretched to the model's size: its numbers are real, and its exact resampling does not matter here."""
    from onbudget.engine.images import decode

    height, width, channels = shape.shape
    recipe = Recipe(
        kind="picture",
        shape=(height, width, channels),
        colour="rgb" if channels == 3 else "grey",
        resize="stretch",
        size=(height, width),
    )
    try:
        return decode(_read(path), recipe).astype(shape.dtype)
    except RequestError as error:
        raise UsageError(f"{path}: {error}") from error


def _kind_of(path: Path) -> str:
    with path.open("rb") as file:
        first = file.read(4)
    return next((kind for magic, kind in _MAGIC.items() if first.startswith(magic)), "")


def _few(pictures: list[tuple[Path, str]]) -> list[tuple[Path, str]]:
    """Not all of a large data set: every so many-th of it, the same each time."""
    if len(pictures) <= _MOST_PICTURES:
        return pictures
    return sorted(random.Random(0).sample(pictures, _MOST_PICTURES))


def _read(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if not data:
        raise UsageError(f"{path} is empty")
    return data
