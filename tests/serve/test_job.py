"""serve.job: tickets of all kinds become rows, and one that can't fails alone."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from onbudget.core.errors import BadContent
from onbudget.core.queue import Group, Ticket
from onbudget.core.tasks import Tensors
from onbudget.engine.session import Port
from onbudget.serve.contract import Contract
from onbudget.serve.items import ARRAYS, BASE64, ROW, Parsed
from onbudget.serve.job import Job
from onbudget.serve.settings import Settings


class Note:
    parsed = Parsed([], "rows")


class Silent:
    """A runner that is never asked."""

    inputs = outputs = ()


def job(width: int) -> Job:
    port = Port("x", "uint8", (None, width))
    return Job(Silent(), Contract("rows", (port,), ((width,),), None, None, ""), Tensors(("y",)), 8, Settings())  # type: ignore[arg-type]


def tickets(*payloads: tuple[str, Any]) -> list[Ticket]:
    group = Group(0.0, 0, lambda group: None, Note())
    for payload in payloads:
        group.add(payload)
    return group.tickets


def prepared(width: int, *payloads: tuple[str, Any]) -> tuple[list[list[int]], list[int], list[tuple[int, str]]]:
    """(rows in order, the indices of those that are good, the others' with their errors)."""
    made = job(width)
    feeds, good, bad = made.prepare(made.bench(), tickets(*payloads))
    rows = feeds["x"].tolist() if feeds else []
    return rows, [ticket.index for ticket in good], [(ticket.index, str(error)) for ticket, error in bad]


def text(*row: int) -> str:
    return base64.b64encode(bytes(row)).decode()


def test_each_item_lands_in_its_own_row() -> None:
    """Base64 as text or as bytes, raw rows and numbers side by side, in order."""
    rows, good, bad = prepared(
        3,
        (BASE64, text(1, 2, 3)),
        (ROW, bytes([4, 5, 6])),
        (BASE64, text(7, 8, 9).encode()),
        (ARRAYS, (np.array([10, 11, 12]),)),
        (BASE64, text(13, 14, 15)),
    )

    assert rows == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12], [13, 14, 15]]
    assert (good, bad) == ([0, 1, 2, 3, 4], [])


@pytest.mark.parametrize("wrong", ["AA!A", "A=AA", "Aé=A", "AA\n=", "\ud800AAA"])
def test_one_that_is_not_base64_fails_alone(wrong: str) -> None:
    """Junk, padding within, what no ASCII is: it is named, and its mates have their own rows."""
    rows, good, bad = prepared(3, (BASE64, text(1, 2, 3)), (BASE64, wrong), (BASE64, text(7, 8, 9)))

    assert (rows, good) == ([[1, 2, 3], [7, 8, 9]], [0, 2])
    assert [index for index, _ in bad] == [1]
    assert bad[0][1].startswith("item 2 (rows[1]): not valid base64")


def test_all_wrong_is_no_run() -> None:
    """No feeds, and an error each."""
    made = job(3)
    feeds, good, bad = made.prepare(made.bench(), tickets((BASE64, "A!AA"), (BASE64, b"AA!A")))

    assert (feeds, good) == ({}, [])
    assert [type(error) for _, error in bad] == [BadContent, BadContent]
