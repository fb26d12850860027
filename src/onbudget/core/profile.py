"""What a run of a model costs on a machine, by batch, threads and lanes: the record that `onbudget profile` makes.

The format is a promise, like a load test's: `SCHEMA` grows only when an old reader would misunderstand a new file; a
reader refuses a newer schema by name, reads every older one, and ignores keys that it does not know. A profile is of
one model on one machine and says so: `check_origin` refuses another's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from onbudget.core.cost import Cost
from onbudget.core.document import differences, opened
from onbudget.core.errors import RecordError, UsageError

SCHEMA = 1
KIND = "profile"

Which = Literal["median", "q90", "cpu"]


@dataclass(frozen=True, slots=True)
class Point:
    """Runs of one batch size with `lanes` lanes busy, `threads` threads in each: seconds a run.

    `cpu_s` is the median CPU time of the lane's own thread; with more than one thread in a run it is not all of it.
    """

    threads: int
    lanes: int
    batch: int
    runs: int
    median_s: float
    q90_s: float
    cpu_s: float

    @property
    def items_per_s(self) -> float:
        """What all lanes do together."""
        return self.lanes * self.batch / self.median_s


@dataclass(frozen=True, slots=True)
class Profile:
    """A measured model on a measured machine.

    `items` is the shape of one item by input, open axes filled in; `alone` is empty, or why items never share a run;
    `machine` are the facts of `engine.machine`; `notes` are sentences on what a reader should not overlook.
    """

    model: str
    sha256: str
    items: dict[str, list[int]]
    alone: str
    providers: tuple[str, ...]
    machine: dict[str, Any]
    points: tuple[Point, ...]
    notes: tuple[str, ...]
    started: str  # UTC, ISO 8601
    seconds: float
    rounds: int
    made_by: str

    def configurations(self) -> list[tuple[int, int]]:
        """The (threads, lanes) that were measured, in order."""
        return sorted({(p.threads, p.lanes) for p in self.points})

    def of(self, threads: int, lanes: int) -> list[Point]:
        """The points of one configuration by batch; UsageError names those that there are."""
        found = [p for p in self.points if (p.threads, p.lanes) == (threads, lanes)]
        if not found:
            there = ", ".join(shape(*one) for one in self.configurations())
            raise UsageError(f"the profile of {self.model} has no {shape(threads, lanes)}; it has {there}")
        return sorted(found, key=lambda point: point.batch)

    def cost(self, threads: int = 1, lanes: int = 1, which: Which = "median") -> Cost:
        """Seconds a run by batch in one configuration: median or q90 by the wall, or the lane's own CPU time.

        Where the system's clock was too coarse to tell CPU time, it is the wall's median.
        """
        points = self.of(threads, lanes)
        if which == "cpu" and not all(p.cpu_s > 0 for p in points):
            which = "median"
        return Cost.of({p.batch: {"median": p.median_s, "q90": p.q90_s, "cpu": p.cpu_s}[which] for p in points})

    def largest(self, threads: int, lanes: int) -> int:
        """The largest batch that was measured in one configuration."""
        return self.of(threads, lanes)[-1].batch

    def pays(self, threads: int, lanes: int) -> str:
        """Whether batching pays, and up to which measured size, in a plain sentence.

        It pays where it gives at least 10 % more items a second, up to the smallest batch with 95 % of the best.
        """
        if self.alone:
            return f"items run one at a time: {self.alone}"
        points = self.of(threads, lanes)
        if len(points) == 1:
            return f"only batches of {points[0].batch} were measured, so whether batching pays is not known"
        alone, top = points[0].items_per_s, max(p.items_per_s for p in points)
        if top < 1.1 * alone:
            return f"batching does not pay on this machine: {alone:,.0f} items/s one by one, {top:,.0f} at best"
        best = next(p for p in points if p.items_per_s >= 0.95 * top)
        told = f"batching pays up to {best.batch} here: {best.items_per_s:,.0f} items/s against {alone:,.0f} one by one"
        lost = 1 - points[-1].items_per_s / top
        return told + (f", and at {points[-1].batch} it gives {lost:.0%} less than at best" if lost > 0.1 else "")

    def fastest(self) -> Point:
        """The point with the most items a second."""
        return max(self.points, key=lambda point: point.items_per_s)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, the schema first."""
        told = dataclasses.asdict(self)
        told |= {name: list(told[name]) for name in ("providers", "points", "notes")}
        return {"schema": SCHEMA, "kind": KIND, **told}


def shape(threads: int, lanes: int) -> str:
    """`2 lanes × 1 thread`."""
    return f"{lanes} lane{'s' if lanes > 1 else ''} × {threads} thread{'s' if threads > 1 else ''}"


def parse(text: str | bytes, name: str) -> Profile:
    """Read a record back; `name` is the file's. RecordError for damage and for a newer schema."""
    told = opened(text, name, kind=KIND, schema=SCHEMA, again="measure again")
    try:
        return _filled(told)
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{name} is damaged: {error}; measure again with `onbudget profile`") from error


def _filled(told: Mapping[str, Any]) -> Profile:
    values = {f.name: told[f.name] for f in dataclasses.fields(Profile)}
    known = {f.name for f in dataclasses.fields(Point)}
    points = tuple(Point(**{key: value for key, value in one.items() if key in known}) for one in values["points"])
    if not isinstance(values["machine"], dict) or not isinstance(values["machine"].get("hash"), str):
        raise ValueError("its machine has no hash")
    if not points:
        raise ValueError("it has no points")
    if len({(p.threads, p.lanes, p.batch) for p in points}) < len(points):
        raise ValueError("it has a point twice")
    values |= {"points": points, "notes": tuple(values["notes"]), "providers": tuple(values["providers"])}
    made = Profile(**values)
    for threads, lanes in made.configurations():
        for which in ("median", "q90"):
            made.cost(threads, lanes, which)  # ValueError for numbers that no run can take
    return made


def check_origin(profile: Profile, name: str, *, sha256: str, machine: Mapping[str, Any]) -> None:
    """UsageError, naming both, where the profile in file `name` is not of this model or not of this machine (facts)."""
    if profile.sha256 != sha256:
        raise UsageError(
            f"{name} is the profile of {profile.model} (sha256 {profile.sha256[:12]}…), not of the model with sha256 "
            f"{sha256[:12]}…; run `onbudget profile` on this model"
        )
    there = profile.machine["hash"]
    if told := differences(profile.machine, machine):
        raise UsageError(
            f"{name} was measured on another machine ({there} there, {machine['hash']} here): "
            f"{told}; run `onbudget profile` on this one"
        )
