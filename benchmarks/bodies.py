"""Bodies that the load test does not make by itself: of several items, of any size, and of all kinds in turn."""

from __future__ import annotations

import base64
import io
import json
import random
from collections.abc import Sequence
from math import sqrt
from pathlib import Path

import numpy as np
from PIL import Image

from onbudget.engine.session import load_runner
from onbudget.prove.payloads import Item, Shape, random_items
from onbudget.serve.contract import Contract, contract_of

# (kind, requests of it in a hundred): `wrong` are requests that the server must tell what is wrong with them
MIX = (("json", 40), ("octet", 25), ("jpeg", 12), ("picture", 12), ("several", 8), ("wrong", 3))
SEVERAL = 4  # items in one of `several`
GRAIN = 12  # of a photo's pixels: with it a JPEG has the bytes a pixel that a telephone's has


def contract(bundle: Path) -> Contract:
    """What a bundle takes."""
    return contract_of(load_runner(bundle))


def shape(taken: Contract) -> Shape:
    """The same as the load test has it. ValueError for items of no fixed shape."""
    if taken.shape is None:
        raise ValueError("this model's items have no fixed shape; the benchmarks need one")
    return Shape(taken.field, taken.shape, str(taken.dtype))


def several(of: Shape, count: int, seed: int = 0) -> Item:
    """JSON with so many items."""
    rows = [json.loads(item.body)[of.field][0] for item in random_items("json", of, seed)]
    given = [rows[i % len(rows)] for i in range(count)]
    return Item("application/json", json.dumps({of.field: given}, separators=(",", ":")).encode())


def padded(of: Shape, size: int) -> Item:
    """One item in JSON and spaces, `size` bytes: what bytes cost that carry nothing. ValueError for too few."""
    body = several(of, 1).body
    if len(body) > size:
        raise ValueError(f"one item takes {len(body)} bytes already; {size} are too few")
    return Item("application/json", body[:-1] + b" " * (size - len(body)) + body[-1:])


def photo(size: int) -> Item:
    """A JPEG of `size` bytes, within 5 %, with more pixels the larger it is: 0.3 bytes a pixel, like a telephone's.

    ValueError for a size so small that no picture has it.
    """
    edge = sqrt(size / 0.3)
    for _ in range(12):
        data = _jpeg(max(1, round(edge)))
        if abs(len(data) / size - 1) < 0.05:
            return Item("image/jpeg", data)
        edge *= sqrt(size / len(data))
    raise ValueError(f"no JPEG of about {size} bytes")


def _jpeg(edge: int) -> bytes:
    """Soft shapes of all sizes, the smaller the fainter, and grain."""
    rng = np.random.default_rng(edge)
    whole = rng.normal(128, GRAIN, (edge, edge, 3))
    for cells, height in ((4, 45), (16, 20), (64, 10), (256, 7), (1024, 5)):
        if cells > edge:
            break
        rough = (rng.normal(0, height, (cells, cells, 3)) + 128).clip(0, 255).astype(np.uint8)
        whole += np.asarray(Image.fromarray(rough).resize((edge, edge), Image.Resampling.BICUBIC), np.float64) - 128
    out = io.BytesIO()
    Image.fromarray(whole.clip(0, 255).astype(np.uint8)).save(out, "jpeg", quality=85)
    return out.getvalue()


def mixed(taken: Contract, seed: int = 0) -> list[tuple[str, Item, int]]:
    """A hundred requests in random order, fewer where no pictures are taken: (kind, item, the status it must get)."""
    of = shape(taken)
    plain = {form: random_items(form, of, seed) for form in ("json", "octet")}
    if taken.pictures and of.dtype == "uint8":
        plain["jpeg"] = random_items("jpeg", of, seed)
        plain["picture"] = [_alone(item) for item in plain["jpeg"]]
    plain["several"] = [several(of, SEVERAL, seed + i) for i in range(8)]
    told = []
    for kind, count in MIX:
        if kind == "wrong":
            told += [(kind, *_wrong(of, i)) for i in range(count)]
        elif kind in plain:
            told += [(kind, plain[kind][i % len(plain[kind])], 200) for i in range(count)]
    random.Random(seed).shuffle(told)
    return told


def mean_items(requests: Sequence[tuple[str, Item, int]]) -> float:
    """Items that a request of a mix has at the average; a wrong one counts none."""
    return sum({"several": SEVERAL, "wrong": 0}.get(kind, 1) for kind, _, _ in requests) / len(requests)


def _alone(form: Item) -> Item:
    """The picture of a multipart body by itself."""
    body = form.body
    return Item("image/jpeg", body[body.index(b"\r\n\r\n") + 4 : body.rindex(b"\r\n--")])


def _wrong(of: Shape, index: int) -> tuple[Item, int]:
    """Not JSON; a picture's bytes that are none of any; a type that is not taken."""
    text = base64.b64encode(b"\xff\xd8\xff neither a row nor a picture").decode()
    every = (
        (Item("application/json", f'{{"{of.field}":['.encode()), 400),
        (Item("application/json", json.dumps({of.field: [text]}).encode()), 422),
        (Item("text/plain", b"hello"), 415),
    )
    return every[index % len(every)]
