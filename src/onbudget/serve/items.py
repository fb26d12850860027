"""What a request brings, as the lanes get it: its items, each with a word that says how it becomes a row."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from onbudget.core.errors import RequestError
from onbudget.serve.contract import Contract
from onbudget.serve.exchange import Request
from onbudget.serve.settings import Settings

# How a payload becomes a row: the lane looks this word up.
BASE64 = "base64"  # str, or a view of bytes: base64 of exactly one row
ROW = "row"  # bytes: exactly one row
PICTURE = "picture"  # bytes: an encoded picture whose header was read
PHOTO = "photo"  # the same, so large that its decoding takes milliseconds
ARRAYS = "arrays"  # tuple of arrays, one an input
WHOLE = "whole"  # tuple of arrays, one an input, with their batch axis: a run of its own
OWN = "own"  # whatever the application's own `decode` takes: a JSON value, or bytes


@dataclass(slots=True)
class Parsed:
    """A request's items as (kind, data, bucket key); `single`: the caller sent one thing and gets one answer back.

    `name` is what the items are called in messages: the JSON field, the form field, or the one picture. `outputs` are
    the model's outputs that are wanted as they are, as a dict of arrays an item; none: the task's answer. `within`
    (seconds) and `priority` are what the body says of the deadline and the class, before what the head says. `note` is
    for whoever words the answer.
    """

    items: list[tuple[str, Any, Hashable]]
    name: str
    single: bool = False
    top: int = 0
    outputs: tuple[str, ...] = ()
    within: float | None = None
    priority: int | None = None
    note: Any = None


@dataclass(frozen=True, slots=True)
class Format:
    """How a route's requests are read and answered; `route` is its name in metrics.

    `parse` raises a RequestError for what it can't take. `answer` words one answer an item, and adds the headers that
    it is given. `refusal` words an error. What the last two return is handed to whoever waits.
    """

    route: str
    parse: Callable[[Request, Contract, Settings], Parsed]
    answer: Callable[[Parsed, list[Any], list[tuple[bytes, bytes]]], Any]
    refusal: Callable[[RequestError], Any]


def where(name: str, index: int) -> str:
    """An item named from both ends: the eighth is `item 8 (tiles[7])`."""
    return f"item {index + 1} ({name}[{index}])"
