"""Requests that a given model really answers, and what its answers look like: made up from its contract alone."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Collection, Sequence
from math import prod
from typing import Any

import numpy as np

from onbudget.core.metadata import Metadata
from onbudget.serve.contract import Contract

_NUMBERS = 1_024  # arrays up to this size are shown as nested numbers, larger ones as base64
_BYTES = 65_536  # above this an example would only slow the page down


def example_item(contract: Contract, accept: Collection[str]) -> Any:
    """One item of the JSON body that this model answers, or None where none can be made up (open axes, huge items,
    an application's own).

    For a picture model it is a small PNG, base64; for others nested numbers, or base64 of raw bytes where many.
    """
    if contract.own:  # only the application knows what its items are
        return None
    shape = contract.shape
    if shape is None:
        return _by_name(contract) if len(contract.inputs) > 1 else None
    if contract.pictures and "png" in accept:
        return base64.b64encode(_grey_png(shape[1], shape[0])).decode()
    low = contract.recipe.input_range[0] if contract.recipe and contract.recipe.input_range else 0
    if contract.dtype.kind == "O" or prod(shape) <= _NUMBERS:
        return _filled(shape, str(contract.dtype), low)
    if contract.row_bytes > _BYTES:
        return None
    return base64.b64encode(np.full(shape, low, contract.dtype).tobytes()).decode()


def example_answer(metadata: Metadata) -> Any:
    """What one answer looks like; None for models without labels."""
    if not metadata.labels or metadata.task == "tensors":
        return None
    one = {"label": metadata.labels[0], "confidence": 0.93}
    return one if metadata.task == "classify" else {"labels": [one]}


def _by_name(contract: Contract) -> Any:
    """An object by input name."""
    if any(d is None for shape in contract.shapes for d in shape):
        return None
    if any(prod(d or 1 for d in shape) > _NUMBERS for shape in contract.shapes):
        return None
    return {
        port.name: _filled(shape, port.dtype, 0) for port, shape in zip(contract.inputs, contract.shapes, strict=True)
    }


def _filled(shape: Sequence[int | None], dtype: str, value: float) -> Any:
    """Nested lists of `shape`, all of one value that the dtype allows."""
    whole = [d or 1 for d in shape]
    if dtype == "object":
        return np.full(whole, "text", dtype=object).tolist()
    return np.full(whole, value, np.dtype(dtype)).tolist()


def _grey_png(width: int, height: int) -> bytes:
    """A flat grey picture of some hundred bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = (b"\0" + b"\x80" * width) * height
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
