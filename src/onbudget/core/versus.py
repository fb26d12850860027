"""Two runs of a load test beside each other: better, no worse, worse, or undecided. Pure.

Rules of this file. What is compared are the intervals that each run has of itself (`core.confidence`), which know that
latencies come in crowds. *Worse* and *better* are said only where the whole interval of the change says so; *no worse*
where the whole of it is within a margin; everything else is undecided, since not to see a change is not to know that
there is none. A run that cannot be believed, or has no percentile, is compared with nothing. What two intervals cannot
know is a machine that drifts between the runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from onbudget.core.confidence import Interval, difference
from onbudget.core.records import Header
from onbudget.core.summary import Summary

Word = Literal["better", "no worse", "worse", "undecided"]

MARGIN = 0.10  # how much higher a p95 may be that counts as no worse
POINT = 0.01  # and how much smaller the share in budget: what is called goodput here allows 1 % to be refused
_HOPELESS = 50  # "so many times as long" is not said where it is more than this

_EXIT = {"better": 0, "no worse": 0, "worse": 10, "undecided": 11}


@dataclass(frozen=True, slots=True)
class Change:
    """One figure of both runs. `change` holds the true after / before of a p95, or after - before of a share.

    `longer` is how many times as long both runs would have to be to settle what is undecided; None where it is settled
    or hopeless.
    """

    before: float
    after: float
    change: Interval
    word: Word
    longer: float | None = None


@dataclass(frozen=True, slots=True)
class Versus:
    """What two runs say of each other.

    `why` tells why they cannot be compared, "" where they can; then `p95` is there, and `in_budget` where both were
    judged by the same budget. `differs` names what was not the same in both, with both values.
    """

    p95: Change | None
    in_budget: Change | None
    why: str
    differs: tuple[str, ...]

    @property
    def word(self) -> Word:
        """Of both figures: worse where one is; undecided where one is; better where one is."""
        words = {one.word for one in (self.p95, self.in_budget) if one is not None}
        if self.why or not words:
            return "undecided"
        order: tuple[Word, ...] = ("worse", "undecided", "better", "no worse")
        return next(word for word in order if word in words)

    @property
    def exit_code(self) -> int:
        """0 better or no worse, 10 worse, 11 undecided or not to be compared."""
        return _EXIT[self.word]


def versus(before: tuple[Header, Summary], after: tuple[Header, Summary], margin: float = MARGIN) -> Versus:
    """Compare two runs. ValueError for a margin below 0."""
    if not 0 <= margin < math.inf:
        raise ValueError(f"a margin is a share of 0 or more, not {margin}")
    differs = tuple(_differs(before[0], after[0]))
    for name, (_, told) in (("the first run", before), ("the second run", after)):
        if told.word in ("void", "unsteady"):
            return Versus(None, None, f"{name} is {'void' if told.void else 'not steady'}", differs)
        if told.p95_range is None:
            return Versus(None, None, f"{name} has only {told.offered} requests to judge", differs)
    return Versus(_p95(before[1], after[1], margin), _share(before, after), "", differs)


def _p95(before: Summary, after: Summary, margin: float) -> Change | None:
    if before.p95_range is None or after.p95_range is None:
        return None
    a, b = before.latency.p95, after.latency.p95
    where, there = _log(before.p95_range), _log(after.p95_range)
    if math.isfinite(a) and math.isfinite(b):
        logs = difference(_ln(a), where, _ln(b), there)
    else:  # more than 5 % got no answer: there is no point to start from, only what the intervals leave
        logs = Interval(there.low - where.high, there.high - where.low if math.isfinite(b) else math.inf)
    low = -math.inf if math.isnan(logs.low) else logs.low
    high = math.inf if math.isnan(logs.high) else logs.high
    allowed = math.log1p(margin)
    word: Word = "undecided"
    if high <= allowed:
        word = "better" if high < 0 else "no worse"
    elif low > 0:
        word = "worse"
    found = _ln(b) - _ln(a) if math.isfinite(a) and math.isfinite(b) else math.nan
    longer = _longer(found, low, high, allowed) if word == "undecided" else None
    return Change(a, b, Interval(_exp(low), _exp(high)), word, longer)


def _share(before: tuple[Header, Summary], after: tuple[Header, Summary]) -> Change | None:
    """The share that was answered within the budget, from the intervals of the late share."""
    one, other = before[1].verdict, after[1].verdict
    if one is None or other is None or before[0].p95_s != after[0].p95_s:
        return None
    late, later = one.late / one.count, other.late / other.count
    grown = difference(late, one.share, later, other.share)
    word: Word = "undecided"
    if grown.high <= POINT:
        word = "better" if grown.high < 0 else "no worse"
    elif grown.low > 0:
        word = "worse"
    longer = _longer(later - late, grown.low, grown.high, POINT) if word == "undecided" else None
    return Change(1 - late, 1 - later, Interval(-grown.high, -grown.low), word, longer)


def _longer(found: float, low: float, high: float, allowed: float) -> float | None:
    """An interval shrinks with the root of the length: until it no longer holds the bound that is nearer to miss."""
    half, room = (high - found, allowed - found) if found < allowed else (found - low, found)
    if not math.isfinite(half) or room <= 0:
        return None
    times = (half / room) ** 2
    return times if times <= _HOPELESS else None


def _differs(before: Header, after: Header) -> Iterator[str]:
    def sha(told: dict[str, Any] | None) -> str:
        return str((told or {}).get("sha256") or "unknown")[:8]

    def machine(header: Header) -> str:
        return f"{header.machine.get('cpu', 'unknown')} ({str(header.machine.get('hash', 'unknown'))[:8]})"

    def rate(header: Header) -> str:
        return f"{header.rate:.4g}/s"

    def shape(header: Header) -> str:
        return f"{header.warmup_s:g} + {header.duration_s:g} s"

    def budget(header: Header) -> str:
        return "none" if header.p95_s is None else f"{header.p95_s * 1e3:g} ms"

    pairs = [
        ("rate", rate(before), rate(after)),
        ("arrivals", before.arrivals, after.arrivals),
        ("seed", before.seed, after.seed),
        ("warm-up and duration", shape(before), shape(after)),
        ("budget", budget(before), budget(after)),
        ("bodies", sha(before.payload), sha(after.payload)),
        ("timeout", f"{before.timeout_s:g} s", f"{after.timeout_s:g} s"),
        ("connections", before.connections, after.connections),
        ("clients", before.clients, after.clients),
        ("model", sha(before.model), sha(after.model)),
        ("machine of the load test", machine(before), machine(after)),
        ("version", before.made_by, after.made_by),
    ]
    for name, one, other in pairs:
        if one != other:
            yield f"{name} {one} and {other}"


def _log(interval: Interval) -> Interval:
    return Interval(_ln(interval.low), _ln(interval.high))


def _ln(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
