"""A plan's record: what it says, what it refuses, and whose it is."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest

from onbudget.core.errors import RecordError, UsageError
from onbudget.core.overheads import Overheads
from onbudget.core.pick import Loads
from onbudget.core.plan import SCHEMA, Candidate, Configuration, Plan, Trial, check_origin, parse
from onbudget.core.profile import Point

FACTS: dict[str, Any] = {"hash": "a" * 16, "cpu": "Good CPU", "quota": None}
ONE, TWO = Configuration(1, 2, 4, "greedy"), Configuration(2, 1, 8)


def plan(**given: Any) -> Plan:
    values: dict[str, Any] = {
        "model": "tiles.onnx",
        "sha256": "f" * 64,
        "machine": FACTS,
        "p95_s": 0.02,
        "quiet": 20.0,
        "peak": 800.0,
        "chosen": TWO,
        "candidates": (
            Candidate(ONE, 0.0, Loads(0.004, math.inf)),
            Candidate(TWO, 1200.0, Loads(0.003, 0.009), Loads(0.004, 0.011)),
        ),
        "notes": ("a note",),
        "started": "2026-01-02T03:04:05+00:00",
        "seconds": 42.0,
        "made_by": "onbudget 9.9",
    }
    return Plan(**values | given)


def damaged(**given: Any) -> str:
    """The text of a plan with other values in it."""
    return json.dumps(plan().to_dict() | given)


def whole() -> Plan:
    """A plan with all that a report shows."""
    trials = (
        Trial(800.0, 4000, 0.99, 0.001, 0.011, 0.010, 0.013, "met"),
        Trial(1300.0, 5000, 0.4, 0.6, math.inf, 0.0, math.inf, "missed", "this machine was busy"),
        Trial(1400.0, 5000, 0.0, 1.0, math.inf, math.inf, math.inf, "missed"),
    )
    curve = ((600.0, 0.006), (1400.0, math.inf))
    best = Candidate(TWO, 1200.0, Loads(0.003, 0.009), Loads(0.004, 0.011), 1250.0, curve, trials)
    costs = (Point(1, 2, 1, 30, 0.001, 0.0012, 0.001), Point(1, 2, 8, 30, 0.006, 0.007, 0.006))
    overheads = Overheads(1e-4, 3e-5, 9e-5)
    other = Candidate(TWO, 900.0, model="tiles-int8.onnx")
    return plan(candidates=(best, other), costs=costs, overheads=overheads, trace="monday.txt")


def test_a_plan_of_the_first_version_is_read() -> None:
    """It has neither trials nor costs."""
    told = plan().to_dict()
    for name in ("trace", "costs", "overheads"):
        del told[name]
    for one in told["candidates"]:
        for name in ("model", "measured_limit", "curve", "trials"):
            del one[name]
    assert parse(json.dumps(told), "p.json") == plan()


@pytest.mark.parametrize(
    "found", [plan(), plan(quiet=None, peak=None, candidates=(Candidate(TWO, 7.5),)), whole()], ids=["a", "b", "whole"]
)
def test_it_survives_json(found: Plan) -> None:
    """To text that every JSON reader takes and back is the same plan, boundless p95s too; schema and kind first."""
    told = found.to_dict()
    assert list(told)[:2] == ["schema", "kind"]
    assert parse(json.dumps(told, allow_nan=False), "p.json") == found


def test_keys_of_later_versions_are_ignored() -> None:
    """An older reader reads what it knows, at the top, in the choice, in a candidate and in its loads."""
    told = plan().to_dict()
    for part in (told, told["chosen"], told["candidates"][1], told["candidates"][1]["measured"]):
        part["colour"] = "blue"
    assert parse(json.dumps(told), "p.json") == plan()


def test_a_newer_schema_is_refused_by_name() -> None:
    """The number, who wrote it, and what to do."""
    with pytest.raises(RecordError, match=rf"p.json has plan schema {SCHEMA + 1}, written by onbudget 9.9.*newer"):
        parse(damaged(schema=SCHEMA + 1), "p.json")


CANDIDATE = plan().to_dict()["candidates"][1]
TRIAL = whole().to_dict()["candidates"][0]["trials"][0]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"kind": "profile"}, 'it has no "kind": "plan"'),
        ({"schema": 0}, "schema must be a whole number"),
        ({"machine": {}}, "no hash"),
        ({"sha256": ""}, "of which model"),
        ({"p95_s": 0}, "p95_s must be a number above zero, not 0"),
        ({"p95_s": "20ms"}, "p95_s must be a number above zero, not '20ms'"),
        ({"p95_s": True}, "p95_s must be a number above zero, not True"),
        ({"quiet": None}, "needs both or none"),
        ({"peak": math.nan}, "peak must be a number above zero"),
        ({"chosen": {"lanes": 2}}, "it has no 'threads'"),
        ({"chosen": CANDIDATE | {"lanes": 0}}, "lanes must be a whole number from 1, not 0"),
        ({"chosen": CANDIDATE | {"max_batch": 2.5}}, "max_batch must be a whole number from 1"),
        ({"chosen": CANDIDATE | {"policy": "timer"}}, "policy must be deadline or greedy"),
        ({"chosen": CANDIDATE | {"max_batch": 16}}, "not among its candidates: 2 lanes × 1 thread, max batch 16"),
        ({"candidates": [CANDIDATE, CANDIDATE]}, "a candidate twice"),
        ({"candidates": [CANDIDATE | {"limit_rate": -1}]}, "limit_rate must be a number from 0"),
        ({"candidates": [CANDIDATE | {"measured": {"quiet_s": 0.1, "peak_s": -1}}]}, "peak_s must be a number above"),
        ({"candidates": [CANDIDATE | {"measured": {"quiet_s": 0.1}}]}, "it has no 'peak_s'"),
        ({"candidates": None}, "not iterable"),
        ({"candidates": [CANDIDATE | {"measured_limit": "x"}]}, "measured_limit must be a number from 0, not 'x'"),
        ({"candidates": [CANDIDATE | {"curve": [[-1, 0.1]]}]}, "a rate must be a number above zero, not -1"),
        ({"candidates": [CANDIDATE | {"trials": [TRIAL | {"p95_s": "x"}]}]}, "p95_s must be a number above zero"),
        ({"overheads": {"accept_s": -1}}, "accept_s must be a number from 0, not -1"),
        ({"costs": [{"batch": 1}]}, "missing"),
    ],
    ids=str,
)
def test_damage_is_told(damage: dict[str, Any], said: str) -> None:
    """One sentence with the file's name; never a plan that no server can run."""
    with pytest.raises(RecordError) as raised:
        parse(damaged(**damage), "p.json")
    assert str(raised.value).startswith("p.json is")
    assert said in str(raised.value)


def test_a_missing_field_is_named() -> None:
    """A record that lost a field."""
    told = plan().to_dict()
    del told["notes"]
    with pytest.raises(RecordError, match="it has no 'notes'"):
        parse(json.dumps(told), "p.json")


def test_it_decides_these_settings() -> None:
    """The budget and the chosen configuration, and the rate that is predicted for that one."""
    assert plan().settings() == {"p95": 0.02, "lanes": 2, "threads": 1, "max_batch": 8, "policy": "deadline"}
    assert plan().limit_rate == 1200.0


def test_its_settings_are_options_of_a_server() -> None:
    """By their names there, so that none is lost on the way."""
    from onbudget.serve.settings import Settings

    assert set(plan().settings()) <= {field.name for field in dataclasses.fields(Settings)}


def test_on_its_own_machine_there_is_nothing_to_warn_of() -> None:
    """Other facts, such as free memory, may differ."""
    assert check_origin(plan(), "p.json", sha256="f" * 64, machine=FACTS | {"memory_available": 1}) == ""


def test_another_machine_is_a_warning() -> None:
    """Both hashes, and what differs; the plan may still be used."""
    told = check_origin(plan(), "p.json", sha256="f" * 64, machine=FACTS | {"hash": "b" * 16, "quota": 1.5})
    assert told.startswith(f"p.json was made on another machine ({'a' * 16} there, {'b' * 16} here): quota none there")


def test_another_models_plan_is_refused() -> None:
    """On whatever machine: both hashes, and the name of the file that it was made of."""
    with pytest.raises(UsageError, match=r"p.json is the plan of tiles.onnx \(sha256 ffff.*sha256 eeee"):
        check_origin(plan(), "p.json", sha256="e" * 64, machine=FACTS | {"hash": "b" * 16})
