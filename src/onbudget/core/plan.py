"""How to serve a model on a machine: the record that the tuner makes and `onbudget serve --plan` reads.

The format is a promise, like a profile's (`core.document`). A plan is of one model: another's is refused. It was made
on one machine, and on another it is still a sensible start: `check_origin` then returns a sentence to warn with.

In JSON, a p95 of null is one without bound: the queue grew for ever, or too many requests were refused. The record
holds all that its report shows: what was predicted, what was measured, and what runs and requests cost.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from onbudget.core.document import differences, opened
from onbudget.core.errors import RecordError, UsageError
from onbudget.core.overheads import Overheads
from onbudget.core.pick import Loads
from onbudget.core.profile import Point, shape

SCHEMA = 1
KIND = "plan"
Made = TypeVar("Made", Point, Overheads)
POLICIES = ("deadline", "greedy")  # timer has a wait of its own to set, which nothing here tells


@dataclass(frozen=True, slots=True)
class Configuration:
    """How a server runs: so many lanes, threads in a run, items in a batch at most, and its policy."""

    lanes: int
    threads: int
    max_batch: int
    policy: str = "deadline"

    def __post_init__(self) -> None:
        """ValueError for numbers that no server runs with."""
        for name in ("lanes", "threads", "max_batch"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a whole number from 1, not {value!r}")
        if self.policy not in POLICIES:
            raise ValueError(f"policy must be {' or '.join(POLICIES)}, not {self.policy!r}")

    def __str__(self) -> str:
        return f"{shape(self.threads, self.lanes)}, max batch {self.max_batch}, {self.policy}"


@dataclass(frozen=True, slots=True)
class Trial:
    """A load test of a server with one configuration: what became of `offered` requests at `rate` a second.

    `p95_s` is of all of them, infinity where more than 5 % got no answer, and truly from `low_s` to `high_s`; shares
    are of all too: `in_budget`, and `refused` for whoever got no answer. `word` is the verdict, as `onbudget load` says
    it. `doubt` is empty, or why the measurement itself is in doubt.
    """

    rate: float
    offered: int
    in_budget: float
    refused: float
    p95_s: float
    low_s: float
    high_s: float
    word: str
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration that was considered: its highest rate that holds (predicted), and its p95 at quiet and at peak.

    `limit_rate` is in requests a second; `measured_limit` is the same by load tests, None where it was not looked for.
    `predicted` is None where no loads were given, `measured` where none were offered to it; of a trace both of its
    values are the trace's p95. `curve` is (rate, p95 in seconds) as predicted, `trials` what was measured. `model` is
    empty, or the file name of the variant that it serves, where that is not the plan's own.
    """

    configuration: Configuration
    limit_rate: float
    predicted: Loads | None = None
    measured: Loads | None = None
    measured_limit: float | None = None
    curve: tuple[tuple[float, float], ...] = ()
    trials: tuple[Trial, ...] = ()
    model: str = ""

    def __post_init__(self) -> None:
        """ValueError for a rate that cannot be."""
        _number("limit_rate", self.limit_rate, least=0.0)
        if self.measured_limit is not None:
            _number("measured_limit", self.measured_limit, least=0.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """The chosen configuration of a model for a budget, and all that were considered.

    `p95_s` is the budget; `quiet` and `peak` are the loads it was chosen for, requests a second, both None where it was
    chosen for the highest rate or for a `trace` (its file's name); `machine` are the facts of `engine.machine`, as the
    server sees it; `notes` are what a reader should know. `costs` are the runs of the chosen model as they were timed,
    `overheads` what requests and batches cost beside them.
    """

    model: str
    sha256: str
    machine: dict[str, Any]
    p95_s: float
    quiet: float | None
    peak: float | None
    chosen: Configuration
    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...]
    started: str  # UTC, ISO 8601
    seconds: float
    made_by: str
    trace: str = ""
    costs: tuple[Point, ...] = ()
    overheads: Overheads | None = None

    def __post_init__(self) -> None:
        """ValueError for a plan that contradicts itself."""
        if not isinstance(self.machine, dict) or not isinstance(self.machine.get("hash"), str):
            raise ValueError("its machine has no hash")
        if not isinstance(self.sha256, str) or not self.sha256:
            raise ValueError("it does not say of which model it is")
        _number("p95_s", self.p95_s)
        if (self.quiet is None) != (self.peak is None):
            raise ValueError("it has one of the loads quiet and peak, and needs both or none")
        for name in ("quiet", "peak"):
            if (rate := getattr(self, name)) is not None:
                _number(name, rate)
        known = [(one.model, one.configuration) for one in self.candidates]
        if len(set(known)) < len(known):
            raise ValueError("it has a candidate twice")
        if ("", self.chosen) not in known:
            raise ValueError(f"what it chose is not among its candidates: {self.chosen}")

    @property
    def choice(self) -> Candidate:
        """The chosen one of the candidates."""
        return next(one for one in self.candidates if (one.model, one.configuration) == ("", self.chosen))

    @property
    def limit_rate(self) -> float:
        """The highest rate, in requests a second, at which the chosen configuration is predicted to hold."""
        return self.choice.limit_rate

    def settings(self) -> dict[str, Any]:
        """The server's options that it decides, by the names in `serve.settings`."""
        return {"p95": self.p95_s, **dataclasses.asdict(self.chosen)}

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, the schema first."""
        told = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        told |= {
            "chosen": dataclasses.asdict(self.chosen),
            "candidates": [_candidate(one) for one in self.candidates],
            "notes": list(self.notes),
            "costs": [dataclasses.asdict(point) for point in self.costs],
            "overheads": None if self.overheads is None else dataclasses.asdict(self.overheads),
        }
        return {"schema": SCHEMA, "kind": KIND, **told}


def parse(text: str | bytes, name: str) -> Plan:
    """Read a record back; `name` is the file's. RecordError for damage and for a newer schema."""
    told = opened(text, name, kind=KIND, schema=SCHEMA, again="make the plan again")
    try:
        values = {f.name: told[f.name] for f in dataclasses.fields(Plan) if f.default is dataclasses.MISSING}
        values["chosen"] = _configuration(values["chosen"])
        values["candidates"] = tuple(_filled(one) for one in values["candidates"])
        values["notes"] = tuple(values["notes"])
        overheads = told.get("overheads")
        return Plan(
            **values,
            trace=told.get("trace", ""),
            costs=tuple(_made(Point, point) for point in told.get("costs", ())),
            overheads=None if overheads is None else _made(Overheads, overheads),
        )
    except KeyError as error:
        raise RecordError(f"{name} is damaged: it has no {error}; make the plan again") from error
    except (TypeError, ValueError) as error:
        raise RecordError(f"{name} is damaged: {error}; make the plan again") from error


def check_origin(plan: Plan, name: str, *, sha256: str, machine: Mapping[str, Any]) -> str:
    """UsageError where the plan in file `name` is not of this model → a sentence where the machine (facts) differs.

    Empty where it is the same.
    """
    if plan.sha256 != sha256:
        raise UsageError(
            f"{name} is the plan of {plan.model} (sha256 {plan.sha256[:12]}…), not of the model with sha256 "
            f"{sha256[:12]}…; serve without --plan, or make a plan of this model"
        )
    told = differences(plan.machine, machine)
    return told and (
        f"{name} was made on another machine ({plan.machine['hash']} there, {machine['hash']} here): {told}; "
        "its configuration may not be the best here, and its predictions do not hold"
    )


def _seconds(name: str, value: Any, least: float | None = None) -> float:
    """A time above zero, or from `least`; None is one without bound."""
    return math.inf if value is None else _number(name, value, least)


def _number(name: str, value: Any, least: float | None = None) -> Any:
    """ValueError unless it is a finite number above zero, or from `least`."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not good or (value <= 0 if least is None else value < least):
        wanted = "above zero" if least is None else f"from {least:g}"
        raise ValueError(f"{name} must be a number {wanted}, not {value!r}")
    return value


def _candidate(one: Candidate) -> dict[str, Any]:
    return {
        **dataclasses.asdict(one.configuration),
        "model": one.model,
        "limit_rate": one.limit_rate,
        "measured_limit": one.measured_limit,
        "predicted": _told(one.predicted),
        "measured": _told(one.measured),
        "curve": [[rate, _finite(p95)] for rate, p95 in one.curve],
        "trials": [_told(trial) for trial in one.trials],
    }


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _told(part: Loads | Trial | None) -> dict[str, Any] | None:
    return None if part is None else {name: _finite(value) for name, value in dataclasses.asdict(part).items()}


def _filled(told: Mapping[str, Any]) -> Candidate:
    return Candidate(
        _configuration(told),
        told["limit_rate"],
        _loads(told["predicted"]),
        _loads(told["measured"]),
        told.get("measured_limit"),
        tuple((_number("a rate", rate), _seconds("a p95", p95)) for rate, p95 in told.get("curve", ())),
        tuple(_trial(one) for one in told.get("trials", ())),
        told.get("model", ""),
    )


def _configuration(told: Mapping[str, Any]) -> Configuration:
    return Configuration(told["lanes"], told["threads"], told["max_batch"], told["policy"])


def _loads(told: Mapping[str, Any] | None) -> Loads | None:
    return None if told is None else Loads(*(_seconds(name, told[name]) for name in ("quiet_s", "peak_s")))


def _trial(told: Mapping[str, Any]) -> Trial:
    return Trial(
        rate=_number("rate", told["rate"]),
        offered=int(told["offered"]),
        in_budget=_number("in_budget", told["in_budget"], least=0.0),
        refused=_number("refused", told["refused"], least=0.0),
        p95_s=_seconds("p95_s", told["p95_s"]),
        low_s=_seconds("low_s", told["low_s"], least=0.0),
        high_s=_seconds("high_s", told["high_s"]),
        word=str(told["word"]),
        doubt=str(told["doubt"]),
    )


def _made(kind: type[Made], told: Mapping[str, Any]) -> Made:
    """A part whose fields are all numbers; keys that it doesn't know are ignored."""
    known = {f.name for f in dataclasses.fields(kind)}
    return kind(**{key: _number(key, value, least=0.0) for key, value in told.items() if key in known})
