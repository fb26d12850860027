"""A profile's record: what it says, what it refuses, and whose it is."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest

from onbudget.core.errors import RecordError, UsageError
from onbudget.core.profile import SCHEMA, Point, Profile, check_origin, parse

FACTS: dict[str, Any] = {
    "hash": "a" * 16,
    "cpu": "Good CPU",
    "arch": "x86_64",
    "isa": ["avx2", "fma"],
    "affinity": 2,
    "quota": None,
    "governor": "performance",
    "onnxruntime": "1.20.0",
    "notes": [],
}


def point(batch: int, seconds: float, *, threads: int = 1, lanes: int = 1) -> Point:
    return Point(threads, lanes, batch, 30, seconds, seconds * 1.2, seconds * 0.9)


def profile(*points: Point, alone: str = "") -> Profile:
    given = points or (point(1, 0.003), point(4, 0.006), point(4, 0.007, lanes=2), point(1, 0.0035, lanes=2))
    return Profile(
        model="tiles.onnx",
        sha256="f" * 64,
        items={"tiles": [64, 64, 3]},
        alone=alone,
        providers=("CPUExecutionProvider",),
        machine=FACTS,
        points=given,
        notes=("a note",),
        started="2026-01-02T03:04:05+00:00",
        seconds=12.5,
        rounds=7,
        made_by="onbudget 9.9",
    )


def curve(**seconds: float) -> Profile:
    return profile(*(point(int(name[1:]), value) for name, value in seconds.items()))


def test_it_survives_json() -> None:
    """To text and back is the same profile, schema and kind first."""
    told = profile().to_dict()
    assert list(told)[:2] == ["schema", "kind"]
    assert parse(json.dumps(told), "p.json") == profile()


def test_keys_of_later_versions_are_ignored() -> None:
    """An older reader reads what it knows, at the top and in a point."""
    told = json.loads(json.dumps(profile().to_dict()))
    told["colour"] = "blue"
    told["points"][0]["watts"] = 3
    assert parse(json.dumps(told), "p.json") == profile()


def test_a_newer_schema_is_refused_by_name() -> None:
    """The number, who wrote it, and what to do."""
    told = profile().to_dict() | {"schema": SCHEMA + 1}
    with pytest.raises(RecordError, match=rf"p.json has profile schema {SCHEMA + 1}, written by onbudget 9.9.*newer"):
        parse(json.dumps(told), "p.json")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"kind": "load"}, 'it has no "kind": "profile"'),
        ({"schema": "1"}, "schema must be a whole number"),
        ({"schema": True}, "schema must be a whole number"),
        ({"points": []}, "it has no points"),
        ({"points": [{"batch": 1}]}, "missing"),
        ({"points": [dataclasses.asdict(point(1, 0.0))]}, "is not a measured cost"),
        ({"points": [dataclasses.asdict(point(1, 1.0))] * 2}, "a point twice"),
        ({"machine": {}}, "no hash"),
        ({"notes": None}, "not iterable"),
    ],
    ids=str,
)
def test_damage_is_told(damage: dict[str, Any], said: str) -> None:
    """One sentence with the file's name; never a profile of numbers that no run can take."""
    with pytest.raises(RecordError, match=said) as raised:
        parse(json.dumps(profile().to_dict() | damage), "p.json")
    assert str(raised.value).startswith("p.json is")


@pytest.mark.parametrize("text", ["", "[]", "{", b"\xff\xfe", "null", '{"schema":1}'])
def test_what_is_no_profile_is_told(text: str | bytes) -> None:
    """Other files, and halves of files."""
    with pytest.raises(RecordError, match=r"p\.json is not a profile"):
        parse(text, "p.json")


def test_a_missing_field_is_named() -> None:
    """A record that lost a field."""
    told = profile().to_dict()
    del told["rounds"]
    with pytest.raises(RecordError, match="'rounds'"):
        parse(json.dumps(told), "p.json")


def test_each_configuration_has_its_cost() -> None:
    """Median, q90 and CPU by batch; sizes between are interpolated."""
    found = profile()
    assert found.configurations() == [(1, 1), (1, 2)]
    assert found.cost(1, 1).seconds(4) == 0.006
    assert found.cost(1, 1).seconds(2) == pytest.approx(0.004)
    assert found.cost(1, 2).seconds(4) == 0.007
    assert found.cost(1, 2, "q90").seconds(1) == pytest.approx(0.0042)
    assert found.cost(1, 1, "cpu").seconds(1) == pytest.approx(0.0027)


def test_a_clock_without_cpu_time_gives_the_walls() -> None:
    """Some systems tell a thread's time in steps of 16 ms, which is 0 for a short run."""
    found = profile(dataclasses.replace(point(1, 0.003), cpu_s=0.0), point(4, 0.006))
    assert found.cost(1, 1, "cpu") == found.cost(1, 1)


def test_a_configuration_that_was_not_measured_is_told_with_those_that_were() -> None:
    """Threads and lanes are not guessed from others."""
    with pytest.raises(UsageError, match="no 1 lane × 4 threads; it has 1 lane × 1 thread, 2 lanes × 1 thread"):
        profile().cost(4, 1)


def test_items_a_second_are_of_all_lanes() -> None:
    """Two lanes with batches of 4 in 7 ms; the fastest point is the one with the most of them."""
    assert point(4, 0.007, lanes=2).items_per_s == pytest.approx(8 / 0.007)
    assert profile().fastest() == point(4, 0.007, lanes=2)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            curve(b1=3.0, b2=4.0, b4=6.0, b8=10.0, b16=20.0),
            "batching pays up to 8 here: 1 items/s against 0 one by one",
        ),
        (curve(b1=0.01, b8=0.0796), "does not pay on this machine: 100 items/s one by one, 101 at best"),
        (curve(b1=0.01, b8=0.16), "does not pay on this machine: 100 items/s one by one, 100 at best"),
        (curve(b1=0.01, b4=0.02, b32=0.32), "pays up to 4 here: 200 items/s .* and at 32 it gives 50% less"),
        (curve(b8=0.01), "only batches of 8 were measured"),
        (profile(point(1, 0.01), alone="it mixes its rows"), "items run one at a time: it mixes its rows"),
    ],
)
def test_whether_batching_pays_is_one_sentence(found: Profile, said: str) -> None:
    """Up to the smallest measured batch with 95 % of the best; less than 10 % more is no gain."""
    assert re.search(said, found.pays(1, 1))


def test_a_profile_of_this_model_on_this_machine_is_accepted() -> None:
    """The same hashes; other facts, such as free memory, may differ."""
    check_origin(profile(), "p.json", sha256="f" * 64, machine=FACTS | {"memory_available": 1})


def test_another_models_profile_is_refused() -> None:
    """Both hashes, and the name of the file that it was made of."""
    with pytest.raises(UsageError, match=r"p.json is the profile of tiles.onnx \(sha256 ffff.*sha256 eeee"):
        check_origin(profile(), "p.json", sha256="e" * 64, machine=FACTS)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"cpu": "Other CPU"}, "cpu Good CPU there, Other CPU here"),
        ({"onnxruntime": "1.21.0", "affinity": 8}, "affinity 2 there, 8 here; onnxruntime 1.20.0 there, 1.21.0 here"),
        ({"quota": 1.5}, "quota none there, 1.5 here"),
        ({"isa": ["avx2"]}, "isa avx2 fma there, avx2 here"),
        ({}, "its facts differ"),
    ],
)
def test_another_machines_profile_is_refused(other: dict[str, Any], said: str) -> None:
    """Both machines' hashes, and which of the facts that cost depends on differ."""
    with pytest.raises(UsageError, match="measured on another machine") as raised:
        check_origin(profile(), "p.json", sha256="f" * 64, machine=FACTS | {"hash": "b" * 16} | other)
    assert said in str(raised.value)
    assert "a" * 16 in str(raised.value)
    assert "b" * 16 in str(raised.value)
