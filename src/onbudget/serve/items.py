"""What a request brings, as the lanes get it: its items, each with a word that says how it becomes a row."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

# How a payload becomes a row: the lane looks this word up.
BASE64 = "base64"  # str, or a view of bytes: base64 of exactly one row
ROW = "row"  # bytes: exactly one row
PICTURE = "picture"  # bytes: an encoded picture whose header was read
PHOTO = "photo"  # the same, so large that its decoding takes milliseconds
ARRAYS = "arrays"  # tuple of arrays, one an input
OWN = "own"  # whatever the application's own `decode` takes: a JSON value, or bytes


@dataclass(slots=True)
class Parsed:
    """A request's items as (kind, data, bucket key); `single`: the caller sent one thing and gets one answer back.

    `name` is what the items are called in messages: the JSON field, the form field, or the one picture.
    """

    items: list[tuple[str, Any, Hashable]]
    name: str
    single: bool = False
    top: int = 0


def where(name: str, index: int) -> str:
    """An item named from both ends: the eighth is `item 8 (tiles[7])`."""
    return f"item {index + 1} ({name}[{index}])"
