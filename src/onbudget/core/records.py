"""A load test's record: one JSON line of header, one line a hit, one line of summary.

The format is a promise. `SCHEMA` grows only when an old reader would misunderstand a new file; a reader refuses a newer
schema by name, reads every older one, and ignores keys that it does not know.

    {"schema":1,"kind":"load", …, "columns":["due_s","lag_s","sent_s","done_s","status","word"]}
    [0.004812,0.000031,0.000040,0.003107,200]
    [0.009001,0.000027,0.000035,0.000410,429,"queue full"]
    [0.011240,0.000030,0.000038,null,0,"timed out"]
    {"summary":{…},"ending":{…}}

`due_s` counts from the start; the other times count from that moment, so that the fourth column *is* the latency that a
user would have seen. A null never happened; status 0 is no answer, and the word says why. Hits stand in the order in
which they were due, so that a file that was cut short still tells all of what was due before its cut.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from onbudget.core.errors import RecordError

SCHEMA = 1
KIND = "load"
COLUMNS = ("due_s", "lag_s", "sent_s", "done_s", "status", "word")

Floats = npt.NDArray[np.float64]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request ended: its HTTP status, 0 for none; and a word for what went wrong, or for why it was refused."""

    status: int
    word: str = ""

    @property
    def ok(self) -> bool:
        """Whether it was answered as asked."""
        return 200 <= self.status < 300

    @property
    def refused(self) -> bool:
        """Whether the server said no for now: 429 or 503."""
        return self.status in (429, 503)


@dataclass(frozen=True, slots=True)
class Hits:
    """Every request that was due, in that order, as columns. `lag`, `sent` and `done` are seconds after `due`.

    `due` is in seconds from the start. `lag` is how late this program turned to it, `sent` when its bytes were written,
    `done` when the last byte of its answer was read; NaN is never. `outcome` are indices into `outcomes`.
    """

    due: Floats
    lag: Floats
    sent: Floats
    done: Floats
    outcome: npt.NDArray[np.int16]
    outcomes: tuple[Outcome, ...]

    def __len__(self) -> int:
        return len(self.due)

    def ok(self) -> npt.NDArray[np.bool_]:
        """Which were answered as asked."""
        good: npt.NDArray[np.bool_] = np.array([o.ok for o in self.outcomes], np.bool_)[self.outcome]
        return good

    def latency(self) -> Floats:
        """Seconds from the due moment to the answer; infinity for a refusal, an error or no answer."""
        return np.where(self.ok(), self.done, math.inf)

    def latency_from_send(self) -> Floats:
        """Seconds from the actual send to the answer: what a test would tell that starts its clock only then."""
        return np.where(self.ok(), self.done - self.sent, math.inf)

    def after(self, moment: float) -> Hits:
        """Those that were due at `moment` (seconds from the start) or later."""
        first = int(np.searchsorted(self.due, moment))
        return Hits(
            self.due[first:],
            self.lag[first:],
            self.sent[first:],
            self.done[first:],
            self.outcome[first:],
            self.outcomes,
        )


@dataclass(frozen=True, slots=True)
class Header:
    """What was asked, of whom, with what, and where: enough to do it again. Times in seconds, `rate` a second.

    `command` is what to type for that; `model` is what the server said of its model, None where it says nothing;
    `payload` tells of the bodies that were sent (count, bytes, source, sha256); `machine` are the facts of the machine
    that generated the load; `hash` is of everything that a repetition must share. `connections` are the most that may
    be open, `clients` how many are kept open (0: only those that are needed).
    """

    command: str
    target: str
    arrivals: str
    rate: float
    seed: int | None
    warmup_s: float
    duration_s: float
    timeout_s: float
    connections: int
    p95_s: float | None = None
    payload: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] | None = None
    machine: dict[str, Any] = field(default_factory=dict)
    started: str = ""  # UTC, ISO 8601
    made_by: str = ""
    hash: str = ""
    clients: int = 0


@dataclass(frozen=True, slots=True)
class Ending:
    """What is known only afterwards.

    `partial` where somebody stopped it; `connections` were opened; `held` requests had to wait for one because all that
    were allowed were open; `resent` went out again because the server had closed an idle connection under them.
    `cpu_s` is what the generator used and `starved` the share of its time in which it wanted a CPU and got none; None
    where the system does not tell. `batches` is what the server counted meanwhile of its model's runs, warm-up included
    and whoever asked: {"runs": …, "items": …, "sizes": [[least, most, runs], …]}, a `most` of None having no end; None
    where the server does not tell.
    """

    seconds: float
    partial: bool = False
    connections: int = 0
    held: int = 0
    resent: int = 0
    cpu_s: float = 0.0
    starved: float | None = None
    batches: dict[str, Any] | None = None


def lines(header: Header, hits: Hits, ending: Ending, summary: dict[str, Any]) -> Iterator[str]:
    """The record's lines, without line ends."""
    yield _json({"schema": SCHEMA, "kind": KIND, **dataclasses.asdict(header), "columns": list(COLUMNS)})
    words = [f"{o.status},{_json(o.word)}" if o.word else str(o.status) for o in hits.outcomes]
    # up to the next microsecond: what came after a budget of whole ones must not have met it when it is read again
    done = np.ceil(hits.done * 1e6 - 1e-4) / 1e6
    columns = (hits.due.tolist(), hits.lag.tolist(), hits.sent.tolist(), done.tolist(), hits.outcome.tolist())
    for due, lag, sent, done, outcome in zip(*columns, strict=True):
        yield f"[{due:.6f},{_time(lag)},{_time(sent)},{_time(done)},{words[outcome]}]"
    yield _json({"summary": summary, "ending": dataclasses.asdict(ending)})


def parse(texts: Iterable[str], name: str, cut: list[str] | None = None) -> tuple[Header, Hits, Ending]:
    """Read a record back; RecordError names the line for damage, and a newer schema by its number.

    A record whose end is missing is damaged, except where `cut` is given: a sentence is added to it, and what the file
    still tells comes back as a partial run.
    """
    header: Header | None = None
    ending: Ending | None = None
    outcomes: dict[Outcome, int] = {}
    rows: list[tuple[float, float, float, float]] = []
    codes: list[int] = []
    numbered = enumerate(texts, 1)
    for number, text in numbered:
        where = f"{name}, line {number}"
        if header is None:
            header = _header(text, name)
            continue
        if ending is not None:
            raise RecordError(f"{where}: something follows the summary, which is the last line")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            if cut is not None and next(numbered, None) is None:
                break  # the last line is half a line
            raise RecordError(f"{where}: not JSON: {error}") from error
        if isinstance(value, dict):
            ending = _ending(value, where)
            continue
        row, outcome = _hit(value, where)
        if rows and row[0] < rows[-1][0]:
            raise RecordError(f"{where}: a hit that was due before the one above it")
        rows.append(row)
        codes.append(outcomes.setdefault(outcome, len(outcomes)))
    if header is None:
        raise RecordError(f"{name} is empty: a record begins with its header")
    if ending is None:
        if cut is None or not rows:
            raise RecordError(f"{name} is cut short: its summary is missing")
        ending = Ending(seconds=rows[-1][0], partial=True)
        cut.append(f"{name} is cut short: {len(rows)} requests, due in {ending.seconds:.3g} s, are left of it")
    due, lag, sent, done = np.array(rows, np.float64).reshape(-1, 4).T
    return header, Hits(due, lag, sent, done, np.array(codes, np.int16), tuple(outcomes)), ending


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _time(value: float) -> str:
    return f"{value:.6f}" if math.isfinite(value) else "null"


def _header(text: str, name: str) -> Header:
    where = f"{name}, line 1"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{where}: not JSON, so it is no record of `onbudget load -o`: {error}") from error
    if not isinstance(value, dict) or value.get("kind") != KIND:
        raise RecordError(f'{name} is not the record of a load test (its first line has no "kind": "{KIND}")')
    schema = value.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise RecordError(f"{where}: schema must be a whole number, not {schema!r}")
    if schema > SCHEMA:
        maker = value.get("made_by") or "a newer onbudget"
        raise RecordError(
            f"{name} has record schema {schema}, written by {maker}; this onbudget reads schemas up to {SCHEMA}. "
            "Install a newer onbudget to read it"
        )
    return _fill(Header, value, where)


_NUMBERS = (
    *("rate", "warmup_s", "duration_s", "timeout_s", "connections", "clients"),
    *("seconds", "held", "resent", "cpu_s"),
)


def _fill(kind: type[T], value: Any, where: str) -> T:
    if not isinstance(value, dict):
        raise RecordError(f"{where}: damaged: an object is wanted")
    known = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]  # both are dataclasses
    for key in known.intersection(value, _NUMBERS):
        if not _is_number(value[key]):
            raise RecordError(f"{where}: damaged: {key} must be a number, not {str(value[key])[:40]!r}")
    try:
        return kind(**{key: told for key, told in value.items() if key in known})
    except TypeError as error:
        raise RecordError(f"{where}: damaged: {str(error).rpartition('() ')[2]}") from error


def _ending(value: dict[str, Any], where: str) -> Ending:
    ending = _fill(Ending, value.get("ending"), where)
    told: Any = ending.batches
    if told is not None and not (isinstance(told, dict) and _are_batches(told)):
        raise RecordError(f"{where}: damaged: batches must be runs, items and sizes, not {str(told)[:60]}")
    return ending


def _are_batches(told: dict[str, Any]) -> bool:
    sizes = told.get("sizes")
    return (
        all(_is_number(told.get(name)) for name in ("runs", "items"))
        and isinstance(sizes, list)
        and all(isinstance(one, list) and len(one) == 3 and all(map(_is_number, (one[0], one[2]))) for one in sizes)
        and all(most is None or _is_number(most) for _, most, _ in sizes)
    )


def _hit(value: Any, where: str) -> tuple[tuple[float, float, float, float], Outcome]:
    if not isinstance(value, list) or not 5 <= len(value) <= 6:
        raise RecordError(f"{where}: damaged: a hit has five or six columns")
    times = [math.nan if v is None else v for v in value[:4]]
    status, word = value[4], value[5] if len(value) == 6 else ""
    if not all(map(_is_number, times)) or not isinstance(word, str):
        raise RecordError(f"{where}: damaged: four times, a status and a word are wanted, not {str(value)[:60]}")
    outcome = Outcome(status, word) if isinstance(status, int) else None
    if outcome is None or None in value[:2] or (outcome.ok and None in value[:4]):
        raise RecordError(f"{where}: damaged: a time or a status is missing in {str(value)[:60]}")
    return (times[0], times[1], times[2], times[3]), outcome


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
