"""prove.versus: the comparison as a table, JSON and words."""

from __future__ import annotations

import json

import pytest

from onbudget.prove import versus
from onbudget.prove.load import Run
from tests.support.runs import made


def words(before: Run, after: Run, margin: float = 0.1) -> str:
    return versus.words(versus.compare(before, after, margin), margin)


def test_the_words_tell_how_far_it_may_be_either_way() -> None:
    """Worse, better, no worse and undecided, each with its interval and what would settle it."""
    assert words(made(0.005, seed=1), made(0.0075, seed=2)).startswith("worse: its p95 is ")
    assert words(made(0.005, seed=1), made(0.0075, seed=2)).endswith("% higher")
    assert words(made(0.0075, seed=1), made(0.005, seed=2)).startswith("better: its p95 is ")
    assert words(made(0.0075, seed=1), made(0.005, seed=2)).endswith("% lower")
    same = words(made(count=20_000, seed=1), made(count=20_000, seed=2))
    assert same.startswith("no worse: its p95 is ")
    assert "(up to 10 % higher counts as no worse)" in same
    few = words(made(count=220, seed=1), made(count=220, seed=2))
    assert few.startswith("undecided: its p95 is ")
    assert "times as long would settle it" in few
    near = words(made(count=20_000, seed=1), made(count=20_000, seed=2), 0.0)
    assert "too near to each other" in near or "times as long" in near


def test_the_table_has_a_change_only_where_its_trust_is_known() -> None:
    """p95 and the share in budget have an interval and a verdict; p50 and p99 are figures beside each other."""
    before, after = made(0.005, seed=1), made(0.0075, seed=2, refused=20)
    found = {row[0]: row for row in versus.rows(before, after, versus.compare(before, after))}
    assert found["offered"][1:] == ("1000 (100/s)", "1000 (100/s)", "", "", "")
    assert found["answered"][1:3] == ("100.00 %", "98.00 %")
    assert found["in budget, a second"][1:3] == ("100/s", "98/s")
    assert found["p95"][3].startswith("+")
    assert found["p95"][5] == "worse"
    assert found["in budget"][3] == "-2.00 points"
    assert found["p50"][3:] == found["p99"][3:] == ("", "", "")
    assert {len(row) for row in found.values()} == {len(versus.COLUMNS)}


def test_the_json_is_strict() -> None:
    """What is infinite is null; the verdict, both figures and what differs are there."""
    before, after = made(), made(refused=200, rate=50.0)
    told = versus.to_json(before, after, versus.compare(before, after), 0.1)
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert (told["verdict"], told["p95_ms"]["second"], told["p95_ms"]["change_high"]) == ("worse", None, None)
    assert told["in_budget"]["second"] == pytest.approx(0.8)
    assert told["differs"] == ["rate 100/s and 50/s"]


def test_what_cannot_be_compared_says_which_and_why() -> None:
    """No verdict but the reason."""
    assert words(made(), made(count=20)) == "not to be compared: the second run has only 18 requests to judge"
