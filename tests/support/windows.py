"""Made-up windows of load, for what judges and tells them."""

from __future__ import annotations

import numpy as np

from onbudget.core.records import Hits, Outcome
from onbudget.prove.client import parse_target
from onbudget.prove.compare import Side, Window


def window(latency: float, *, count: int = 400, lag: float = 0.0, refused: int = 0, items: float = 0.0) -> Window:
    """A window of `count` requests, 1 ms apart, answered after `latency` seconds but for `refused` of them."""
    column = np.full(count, latency)
    codes = np.array([1] * refused + [0] * (count - refused), np.int16)
    hits = Hits(
        np.arange(count) / 1000, np.full(count, lag), column * 0, column, codes, (Outcome(200), Outcome(429, "full"))
    )
    return Window(hits, items, items / 4)


def side(name: str = "a") -> Side:
    """A server that nobody asks anything."""
    return Side(name, parse_target("127.0.0.1:1"), ("127.0.0.1", 1), (), metrics=True)
