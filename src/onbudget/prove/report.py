"""A load test's record as a file, a table, JSON and words. Layout only: every figure comes from the summary."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from onbudget.core.errors import RecordError
from onbudget.core.records import SCHEMA, Header, lines, parse
from onbudget.core.summary import Percentiles, Summary
from onbudget.core.units import show_seconds
from onbudget.engine.files import write_atomically
from onbudget.prove.generator import Progress
from onbudget.prove.load import Run

Row = tuple[str, str, str]

_OLD_S = 0.5  # under way for longer than this is worth a word


def write_run(run: Run, path: Path) -> None:
    """Write the record, line by line; UsageError where the folder does not let us."""
    told = lines(run.header, run.hits, run.ending, to_json(run))
    write_atomically(path, ((line + "\n").encode() for line in told))


def read_run(path: Path, cut: list[str] | None = None) -> Run:
    """Read a record back; RecordError says what is wrong with it. `cut` as in `core.records.parse`."""
    try:
        with path.open(encoding="utf-8") as texts:
            return Run(*parse(texts, str(path), cut))
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RecordError(f"{path} is not the record of a load test: it is not text") from error


def to_json(run: Run) -> dict[str, Any]:
    """The summary for machines. Times in ms; null for what is infinite, unknown, or (unsteady) no percentile at all."""
    header, told = run.header, run.summary()
    shown = told.word != "unsteady"
    verdict, spread = told.verdict, told.p95_range if shown else None
    return {
        "schema": SCHEMA,
        "kind": "load-summary",
        "verdict": told.word,
        "words": verdict_words(header, told),
        "partial": told.partial,
        "target": header.target,
        "arrivals": header.arrivals,
        "rate": round(header.rate, 6),
        "seed": header.seed,
        "warmup_s": header.warmup_s,
        "duration_s": header.duration_s,
        "budget_ms": None if header.p95_s is None else _ms(header.p95_s),
        "offered": told.offered,
        "answered": told.answered,
        "throughput": round(told.throughput, 3),
        "in_budget": told.in_budget,
        "late_share": None
        if verdict is None
        else {
            "value": round(verdict.late / verdict.count, 6) if verdict.count else None,
            "low": round(verdict.share.low, 6),
            "high": round(verdict.share.high, 6),
            "more_requests_needed": verdict.more,
        },
        "latency_ms": {
            **_percentiles(told.latency, shown),
            "p95_low": _ms(spread.low) if spread else None,
            "p95_high": _ms(spread.high) if spread else None,
        },
        "latency_from_send_ms": _percentiles(told.from_send, shown),
        "refused": told.refused,
        "statuses": told.statuses,
        "errors": told.errors,
        "unanswered": told.unanswered,
        "late_sends": told.late_sends,
        "own_lag_ms": _percentiles(told.lag, True),
        "held": run.ending.held,
        "connections": run.ending.connections,
        "generator_cpu_s": run.ending.cpu_s,
        "generator_starved": run.ending.starved,
        "notes": list(told.notes),
        "payload": header.payload,
        "machine": header.machine.get("hash"),
        "hash": header.hash,
    }


def rows(run: Run) -> list[Row]:
    """The table: what, from the scheduled moment, from the actual send; counts stand in the first."""
    header, told = run.header, run.summary()
    out: list[Row] = [
        ("offered", f"{told.offered} ({told.offered / told.seconds:.4g}/s)" if told.seconds else str(told.offered), ""),
        ("answered", f"{told.answered}{_share(told.answered, told.offered)}", ""),
        ("throughput", f"{told.throughput:.4g}/s", ""),
    ]
    if told.in_budget is not None and header.p95_s is not None:
        out.append(
            (f"within {show_seconds(header.p95_s)}", f"{told.in_budget}{_share(told.in_budget, told.offered)}", "")
        )
    if told.word == "unsteady":
        out.append(("p50, p95, p99", "none: not steady", ""))
    elif told.offered:
        due, send = told.latency, told.from_send
        out += [(name, _time(getattr(due, name)), _time(getattr(send, name))) for name in ("p50", "p95", "p99")]
        if told.p95_range is not None:
            low, high = told.p95_range.low, told.p95_range.high
            sure = f"{_time(low)} to {_time(high)}" if math.isfinite(low) else "no bound"
            out.insert(-1, ("  95 % sure of p95", sure, ""))
        out.append(("slowest answer", _time(due.largest), _time(send.largest)))
    out += [(f"refused: {word}", f"{n}{_share(n, told.offered)}", "") for word, n in told.refused.items()]
    out += [(f"answered {word}", f"{n}{_share(n, told.offered)}", "") for word, n in told.statuses.items()]
    out += [(word, f"{n}{_share(n, told.offered)}", "") for word, n in told.errors.items()]
    out.append(("sent late by this program", str(told.late_sends), ""))
    if told.offered:
        out.append(("its own lag, p50 and p99", f"{_time(told.lag.p50)}, {_time(told.lag.p99)}", ""))
    return out


def title(header: Header) -> str:
    """The table's head."""
    way = {"poisson": "Poisson", "constant": "evenly spaced", "trace": "from a trace"}.get(
        header.arrivals, header.arrivals
    )
    seed = f", seed {header.seed}" if header.seed is not None else ""
    warm = f" after {header.warmup_s:g} s of warm-up" if header.warmup_s else ""
    return f"{header.target}: {header.rate:.4g}/s {way}{seed}, {header.duration_s:g} s{warm}"


COLUMNS = ("", "from the due moment", "from the send")


def verdict_words(header: Header, told: Summary) -> str:
    """The conclusion as a sentence, with its reason and what to do next."""
    begun = "stopped early; so far " if told.partial else ""
    if not told.offered:
        return f"{begun}nothing was sent after the warm-up of {header.warmup_s:g} s"
    if told.void:
        return f"{begun}void: {told.void}"
    late = ""
    if told.verdict is not None:
        count, of = told.verdict.late, told.verdict.count
        late = f"{count} of {of} late or unanswered ({_percent(count, of)})"
    if told.word == "unsteady":
        why = f"it does not keep up with {header.rate:.4g}/s"
        if told.steadiness.word == "falling":
            why = "it was still warming up; set a longer --warmup"
        return f"{begun}not steady: {_moved(told)}: {why}. No percentile{'; ' if late else ''}{late}"
    if told.verdict is None or header.p95_s is None:
        return f"{begun}measured; with --p95 20ms, say, it is judged"
    verdict, budget = told.verdict, show_seconds(header.p95_s)
    sure = f"95 % sure of {verdict.share.low:.2%} to {verdict.share.high:.2%}"
    if verdict.word == "met":
        return f"{begun}met: p95 is within {budget}. {late}, {sure}; 5 % are allowed"
    if verdict.word == "missed":
        return f"{begun}missed: p95 is over {budget}. {late}, {sure}; 5 % are allowed"
    if verdict.more is None:
        return f"{begun}undecided: {late}, {sure}: too near to 5 % to be settled by a longer run"
    more = _rounded_up(verdict.more)
    longer = math.ceil(header.duration_s + more / header.rate)
    return f"{begun}undecided: {late}, {sure}. About {more} more requests would settle it: --duration {longer}s"


def progress_words(now: Progress, budget_s: float | None) -> str:
    """One line of what is going on."""
    told = [f"{now.elapsed_s:.0f} of {now.total_s:.0f} s", f"{now.sent} sent", f"{now.answered} answered"]
    if now.refused:
        told.append(f"{now.refused} refused")
    if now.failed:
        told.append(f"{now.failed} failed")
    oldest = f" (the oldest for {_time(now.oldest_s)})" if now.oldest_s >= _OLD_S else ""
    told.append(f"{now.in_flight} under way{oldest}")
    if now.latency is not None:
        of = f" (budget {show_seconds(budget_s)})" if budget_s else ""
        told.append(f"p95 {_time(now.latency.value)} of {now.latency.count}{of}")
    return ", ".join(told)


def _moved(told: Summary) -> str:
    first, last = told.steadiness.first, told.steadiness.last
    end = _time(last) if math.isfinite(last) else "no answer at all"
    verb = "rose" if told.steadiness.word == "rising" else "fell"
    return f"the median latency {verb} from {_time(first)} in the first quarter to {end} in the last"


def _percentiles(values: Percentiles, shown: bool) -> dict[str, float | None]:
    told = {"p50": values.p50, "p95": values.p95, "p99": values.p99, "max": values.largest}
    return {name: _ms(value) if shown else None for name, value in told.items()}


def _ms(seconds: float) -> float | None:
    return round(seconds * 1000, 4) if math.isfinite(seconds) else None


def _time(seconds: float) -> str:
    if math.isnan(seconds):
        return "–"
    return show_seconds(seconds) if math.isfinite(seconds) else "∞"


def _share(part: int, whole: int) -> str:
    return f" ({_percent(part, whole)})" if whole else ""


def _percent(part: int, whole: int) -> str:
    """Rounded so that only all is 100 % and only none is 0 %."""
    if part in (0, whole):
        return "0 %" if not part else "100 %"
    return f"{min(99.9, max(0.1, 100 * part / whole)):.1f} %"


def _rounded_up(n: int) -> int:
    """To two digits: the number is an estimate."""
    step = int(10 ** max(0, len(str(n)) - 2))
    return -(-n // step) * step
