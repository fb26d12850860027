"""When requests are due: an absolute schedule, made before the first one is sent, and pacing as a function of numbers.

Rules of this file. It never reads a clock: the time comes in, and what is due and how long to sleep come out. A
schedule does not depend on any answer; that is what makes the load open-loop.
"""

from __future__ import annotations

import json
import math
import random
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from onbudget.core.errors import UsageError

Kind = Literal["poisson", "constant", "trace"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """`offsets` are the moments at which requests are due, in seconds from the start, in order.

    Those before `warmup_s` are sent like the others and not judged; `total_s` is when the last second ends.
    """

    kind: Kind
    offsets: array[float]
    warmup_s: float
    total_s: float
    rate: float  # a second, over the whole
    seed: int | None = None

    @property
    def duration_s(self) -> float:
        """How long the judged part is."""
        return self.total_s - self.warmup_s

    def due(self, elapsed: float, sent: int) -> int:
        """How many requests must have been sent after `elapsed` seconds; `sent` have been (it never falls below)."""
        offsets, end = self.offsets, len(self.offsets)
        while sent < end and offsets[sent] <= elapsed:
            sent += 1
        return sent


def poisson(rate: float, duration_s: float, warmup_s: float = 0.0, seed: int = 0) -> Schedule:
    """Independent users: running sums of `random.Random(seed).expovariate(rate)`, up to warm-up plus duration.

    The same seed gives the same pattern at every rate, only faster. UsageError where nobody would come.
    """
    draw = random.Random(seed).expovariate
    total = warmup_s + duration_s
    offsets = array("d")
    at = draw(rate)
    while at < total:
        offsets.append(at)
        at += draw(rate)
    return _checked(Schedule("poisson", offsets, warmup_s, total, rate, seed))


def constant(rate: float, duration_s: float, warmup_s: float = 0.0) -> Schedule:
    """One request every 1/rate seconds, the first after one such time. UsageError where nobody would come.

    Kinder than real users, who come in bunches: a queue that holds a budget under this may not hold it under Poisson.
    """
    total = warmup_s + duration_s
    # i/rate and not a running sum, which would drift; the tolerance keeps the one that is due at the very end
    count = math.floor(total * rate * (1 + 1e-12))
    return _checked(Schedule("constant", array("d", (i / rate for i in range(1, count + 1))), warmup_s, total, rate))


def trace(lines: Iterable[str], name: str, duration_s: float | None = None, warmup_s: float = 0.0) -> Schedule:
    """Arrivals that were recorded: one offset in seconds a line, or JSON lines with "at"; or a run file of `load -o`.

    Blank lines and those that begin with # are skipped. It ends at `warmup_s` plus `duration_s` where that is given,
    else with the last arrival. UsageError names the line of an offset that is none, is negative, or goes back in time.
    """
    offsets = array("d")
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        at = _offset(text, f"{name}, line {number}")
        if at is None:
            continue
        if offsets and at < offsets[-1]:
            raise UsageError(f"{name}, line {number}: {at:g} s comes before {offsets[-1]:g} s; a trace goes forward")
        offsets.append(at)
    if not offsets:
        raise UsageError(f"{name} has no arrivals: one offset in seconds a line is wanted")
    total = offsets[-1] if duration_s is None else warmup_s + duration_s
    kept = array("d", (at for at in offsets if at <= total))
    if total <= warmup_s:
        raise UsageError(f"{name} ends after {total:g} s, within the warm-up of {warmup_s:g} s; set --warmup 0s")
    return _checked(Schedule("trace", kept, warmup_s, total, len(kept) / total))


def _offset(text: str, where: str) -> float | None:
    """One line's offset; None for the lines of a run file that are not arrivals."""
    try:
        value: Any = json.loads(text)
    except ValueError:
        raise UsageError(f"{where}: {text[:40]!r} is not an offset in seconds") from None
    if isinstance(value, dict):
        if "at" not in value and ("schema" in value or "summary" in value):
            return None
        value = value.get("at")
    elif isinstance(value, list):  # a hit of a run file: its first column is when it was due
        value = value[0] if value else None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise UsageError(f"{where}: {text[:40]!r} is not an offset in seconds, zero or more")
    return float(value)


def _checked(schedule: Schedule) -> Schedule:
    if not any(at >= schedule.warmup_s for at in reversed(schedule.offsets)):
        raise UsageError(
            f"no request would be due in {schedule.duration_s:g} s at {schedule.rate:g}/s; raise --rate or --duration"
        )
    return schedule


def pause(until_due: float, exact: float, coarse: float) -> float:
    """How long to sleep when the next request is due in `until_due` seconds; 0 means: look again at once.

    `exact` is how early to wake, `coarse` the shortest sleep that the timer keeps: nearer than both together, looking
    again and again is the only way to be on time.
    """
    return until_due - exact if until_due > exact + coarse else 0.0
