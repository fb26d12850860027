"""What a load test's hits say, once: counts, percentiles with their trust, and the verdict. Pure; any record can be
judged again.

Three things can forbid a conclusion, and the first that holds is told: the *generator* slipped (void), the *system*
never settled (unsteady), or there were too few requests (undecided).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from onbudget.core.budget import Budget, Steadiness, Verdict, p95_interval, settling, steadiness
from onbudget.core.confidence import Interval
from onbudget.core.histogram import percentile
from onbudget.core.records import Ending, Header, Hits
from onbudget.core.units import show_seconds

Floats = npt.NDArray[np.float64]
Word = Literal["met", "missed", "undecided", "unsteady", "void", "measured"]

LATE_SEND_S = 0.001  # a request that this program turned to later than this is counted as sent late
TIMED_OUT, NEVER_SENT, STOPPED = "timed out", "never sent", "still open when stopped"
UNANSWERED = (TIMED_OUT, NEVER_SENT, STOPPED)
NO_FILES, NO_PORTS = "no file descriptor left here", "no local port left here"
OWN_FAULTS = (NO_FILES, NO_PORTS)  # the generator's machine, not the server

_EXIT = {"met": 0, "measured": 0, "missed": 10, "undecided": 11, "unsteady": 11, "void": 11}


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Seconds; infinite where so many never came. `largest` is of the finite ones. NaN where there were none."""

    p50: float
    p95: float
    p99: float
    largest: float

    @classmethod
    def of(cls, values: Floats) -> Percentiles:
        """Of any values that are not NaN."""
        finite = values[np.isfinite(values)]
        largest = float(finite.max()) if len(finite) else math.nan
        if not len(values):
            return cls(math.nan, math.nan, math.nan, math.nan)
        return cls(percentile(values, 50), percentile(values, 95), percentile(values, 99), largest)


@dataclass(frozen=True, slots=True)
class Summary:
    """Of the requests that were due after the warm-up.

    `answered` got a 2xx; `throughput` is 2xx answers a second that came within the judged seconds, whenever they were
    due. `latency` runs from the due moment, `from_send` from the actual send; in both a refusal, an error and no answer
    are infinite. `refused` are 429 and 503 by reason, `statuses` the other answers, `errors` what was no answer by
    kind, of which `unanswered` are those that were waited for in vain. `lag` is how late this program itself was.
    """

    offered: int
    answered: int
    seconds: float
    throughput: float
    in_budget: int | None
    latency: Percentiles
    from_send: Percentiles
    p95_range: Interval | None
    refused: dict[str, int]
    statuses: dict[str, int]
    errors: dict[str, int]
    unanswered: int
    late_sends: int
    lag: Percentiles
    verdict: Verdict | None
    steadiness: Steadiness
    void: str = ""  # why the test cannot be believed
    partial: bool = False
    notes: tuple[str, ...] = field(default=())

    @property
    def word(self) -> Word:
        """The conclusion in one word; "measured" where there was no budget to judge."""
        if self.void:
            return "void"
        if self.steadiness.word in ("rising", "falling"):
            return "unsteady"
        return self.verdict.word if self.verdict else "measured"

    @property
    def exit_code(self) -> int:
        """As every verb has it: 0 ok, 10 missed, 11 cannot be concluded, 1 nothing was answered, 130 stopped."""
        if self.partial:
            return 130
        if self.word == "measured" and not self.answered:
            return 1
        return _EXIT[self.word]


def summarise(header: Header, hits: Hits, ending: Ending) -> Summary:
    """Judge a run. A pure function of its record."""
    judged = hits.after(header.warmup_s)
    latency, ok = judged.latency(), judged.ok()
    seconds = max(ending.seconds - header.warmup_s, 0.0)
    refused, statuses, errors = _sorted_out(judged)
    spread = Percentiles.of(latency)
    steady = steadiness(latency)
    return Summary(
        offered=len(judged),
        answered=int(ok.sum()),
        seconds=seconds,
        throughput=_throughput(hits, header.warmup_s, ending.seconds),
        in_budget=None if header.p95_s is None else int((latency <= header.p95_s).sum()),
        latency=spread,
        from_send=Percentiles.of(judged.latency_from_send()),
        p95_range=p95_interval(latency),
        refused=refused,
        statuses=statuses,
        errors=errors,
        unanswered=sum(errors.get(word, 0) for word in UNANSWERED),
        late_sends=int((judged.lag > LATE_SEND_S).sum()),
        lag=Percentiles.of(judged.lag),
        verdict=None if header.p95_s is None else Budget(header.p95_s).judge(latency),
        steadiness=steady,
        void=_void(judged, header, spread, errors, ending),
        partial=ending.partial,
        notes=tuple(_notes(header, ending, latency, steady)),
    )


def judge_lag(lags: npt.ArrayLike, allowed_s: float, starved: float | None = None) -> str:
    """Why a generator that turned to its requests so late (seconds) cannot be believed; "" where it can.

    Its p99 must be within `allowed_s`. `starved` is the share of time in which it wanted a CPU and got none, if known.
    """
    values = np.asarray(lags, np.float64)
    if not len(values):
        return ""
    p99 = percentile(values, 99)
    if p99 <= allowed_s:
        return ""
    why = f": it wanted a CPU {starved:.0%} of the time and got none" if starved is not None and starved > 0.02 else ""
    return (
        f"the generator itself was late: by {show_seconds(p99)} or more for one request in a hundred, where "
        f"{show_seconds(allowed_s)} is allowed{why}. Give it a core of its own, or lower the rate"
    )


def allowed_lag(budget_s: float | None, p50_s: float) -> float:
    """How late the generator may be, in seconds: 5 % of the budget (of the p50 without one), and at least 1 ms."""
    measure = budget_s if budget_s is not None else p50_s
    return max(LATE_SEND_S, 0.05 * measure) if math.isfinite(measure) else LATE_SEND_S


def _throughput(hits: Hits, start: float, end: float) -> float:
    came = (hits.due + hits.done)[hits.ok()]
    return float(((came >= start) & (came <= end)).sum()) / (end - start) if end > start else 0.0


def _sorted_out(hits: Hits) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Refusals by reason, other statuses, and what was no answer by kind; each with the most frequent first."""
    refused: Counter[str] = Counter()
    statuses: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for outcome, count in zip(hits.outcomes, np.bincount(hits.outcome, minlength=len(hits.outcomes)), strict=True):
        if not count or outcome.ok:
            continue
        if not outcome.status:
            errors[outcome.word] += int(count)
        else:
            name = f"{outcome.status} {outcome.word}".rstrip()
            (refused if outcome.refused else statuses)[name] += int(count)
    return dict(refused.most_common()), dict(statuses.most_common()), dict(errors.most_common())


def _void(hits: Hits, header: Header, spread: Percentiles, errors: dict[str, int], ending: Ending) -> str:
    own = {word: errors[word] for word in OWN_FAULTS if word in errors}
    if own:
        word, count = next(iter(own.items()))
        return f"{count} requests failed on this side: {word}. Lower --connections, or raise the limit of this machine"
    return judge_lag(hits.lag, allowed_lag(header.p95_s, spread.p50), ending.starved)


def _notes(header: Header, ending: Ending, latency: Floats, steady: Steadiness) -> Iterable[str]:
    if ending.held:
        yield (
            f"{ending.held} requests waited for a connection because all {header.connections} were busy; their clocks "
            "ran. More are allowed with --connections"
        )
    if ending.resent:
        yield (
            f"{ending.resent} requests were sent twice: the server closed the idle connection under them; "
            "their clocks ran"
        )
    if steady.word == "steady":
        cut = settling(latency)
        if cut and cut > len(latency) // 20 and np.mean(latency[:cut]) > 1.5 * np.mean(latency[cut:]):
            longer = math.ceil(header.warmup_s + header.duration_s * cut / len(latency))
            yield f"the first answers were slower; a longer warm-up (--warmup {longer}s) would leave them out"
