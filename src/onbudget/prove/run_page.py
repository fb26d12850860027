"""Load tests as one HTML file: what each says of its server and of itself, and what several say of each other.

The rules of `prove.tags` hold; the charts are `prove.series`'. Every table is of all requests, however many there are.
Whatever a record holds may be somebody else's text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from onbudget.core.records import Header
from onbudget.core.units import show_rate, show_seconds
from onbudget.core.versus import MARGIN
from onbudget.prove import versus
from onbudget.prove.cautions import cautions
from onbudget.prove.load import Run
from onbudget.prove.report import COLUMNS, rows, title, verdict_words
from onbudget.prove.run_charts import charts
from onbudget.prove.series import Chart, Named
from onbudget.prove.tags import NONE, between, cards, document, notes, percent, table, text, time

_SURE = "95\u00a0% sure"


def page(runs: Sequence[Named], margin: float = MARGIN) -> str:
    """The whole file; of several runs the first is what the others are compared with. ValueError for no run."""
    if not runs:
        raise ValueError("a page of no runs")
    drawn: dict[str, Chart] = {}
    if len(runs) == 1:
        body = [*_head_of_one(runs[0]), *_cautions(runs[0], "h2"), *charts(runs, "", "h2", drawn)]
        body += [*_figures(runs[0], "h2"), *_made_on(runs, "h2")]
    else:
        body = [*_head_of_many(runs, margin), *_compared(runs, margin), *charts(runs, "all-", "h2", drawn)]
        for place, one in enumerate(runs, 1):
            body += [*_section(one, place), *_cautions(one, "h3"), *charts([one], f"run{place}-", "h3", drawn)]
            body += [*_figures(one, "h3"), "</section>"]
        body += _made_on(runs, "h2")
    told = _headline(runs[0]) if len(runs) == 1 else f"{len(runs)} load tests"
    return document(f"{told} – onbudget", body, drawn)


# ---- what it says ----------------------------------------------------------------------------------------------------


def _headline(one: Named) -> str:
    header, told = one.run.header, one.run.summary()
    rate = f"at {show_rate(header.rate)} requests/s"
    budget = "" if header.p95_s is None else show_seconds(header.p95_s)
    words = {
        "met": f"Met: p95 within {budget} {rate}",
        "missed": f"Missed: p95 over {budget} {rate}",
        "undecided": f"Undecided: whether p95 is within {budget} {rate}",
        "unsteady": f"Not steady {rate}: there is no percentile",
        "void": "Void: this load test cannot be believed",
        "measured": f"p95 {time(told.latency.p95)} {rate}",
    }
    return f"{'Stopped early. ' if told.partial and not one.cut else ''}{words[told.word]}"


def _head_of_one(one: Named) -> Iterator[str]:
    header, told = one.run.header, one.run.summary()
    yield f'<header><p class="kind">A load test by {text(header.made_by)}</p><h1>{text(_headline(one))}</h1>'
    yield f'<p class="lead">{text(_reason(verdict_words(header, told)))}</p>{cards(_cards(one.run))}'
    yield f'<p class="aside">{text(title(header))}<br>{text(_when(header))}</p></header>'


def _cards(run: Run) -> Iterator[tuple[str, str, str]]:
    """Name, value, what to know of it."""
    header, told = run.header, run.summary()
    shown = told.word != "unsteady"
    if not shown:
        sure = "there is none: not steady"
    elif told.p95_range is None:
        sure = f"of {told.offered:,} requests"
    else:
        endless = not math.isfinite(told.p95_range.low)
        sure = "over 5 % got no answer" if endless else f"{_SURE} of {between(told.p95_range)}"
    yield "p95, from the due moment", time(told.latency.p95 if shown else math.nan), sure
    yield "p95, from the send", time(told.from_send.p95 if shown else math.nan), "what other tools tell"
    if told.in_budget is not None and header.p95_s is not None and told.offered:
        late = told.verdict.share if told.verdict is not None else None
        sure = f"{_SURE} of {percent(1 - late.high)} to {percent(1 - late.low)}" if late is not None else ""
        yield f"within {show_seconds(header.p95_s)}", percent(told.in_budget / told.offered), sure
        yield "in budget, a second", _a_second(told.in_budget, told.seconds), f"of {_rate(run)} offered"
    if told.offered:
        refused = sum(told.refused.values())
        yield "answered", percent(told.answered / told.offered), f"{refused:,} of {told.offered:,} refused"
    if (told_sizes := run.ending.batches) is not None and told_sizes["runs"]:
        mean = told_sizes["items"] / told_sizes["runs"]
        yield "items in a run", f"{mean:.3g}", f"on average, of {told_sizes['runs']:,} runs of the model"


def _head_of_many(runs: Sequence[Named], margin: float) -> Iterator[str]:
    yield f'<header><p class="kind">Load tests by {text(runs[0].run.header.made_by)}</p>'
    yield f"<h1>{len(runs)} load tests compared</h1>"
    for one in runs[1:]:
        told = versus.compare(runs[0].run, one.run, margin)
        yield f'<p class="lead"><strong>{text(one.name)}</strong> beside {text(runs[0].name)}: '
        yield f"{text(versus.words(told, margin))}.</p>"
    links = "".join(f'<li><a href="#run{place}">{text(one.name)}</a></li>' for place, one in enumerate(runs, 1))
    yield f'<nav aria-label="Runs"><ul>{links}<li><a href="#made-on">Machine and commands</a></li></ul></nav></header>'


def _compared(runs: Sequence[Named], margin: float) -> Iterator[str]:
    columns = ["run", "offered", "answered", "in budget", "in budget, a second", "p50", "p95", "95 % sure of", "p99"]
    told = [[*_row(one), _word(one)] for one in runs]
    yield "<h2>Side by side</h2>" + table("The runs", [*columns, "verdict"], told)
    columns = ["run", "p95", "95 % sure of", "in budget", "95 % sure of", "verdict"]
    changes, differ = [], []
    for one in runs[1:]:
        found = versus.compare(runs[0].run, one.run, margin)
        seen = {name: (change, sure) for name, _, _, change, sure, _ in versus.rows(runs[0].run, one.run, found)}
        blank = (NONE, NONE)
        pair = [cell or NONE for name in ("p95", "in budget") for cell in seen.get(name, blank)]
        changes.append([one.name, *pair, "not to be compared" if found.why else found.word])
        differ += [(f"{one.name}: {words}", False) for words in versus.warnings(runs[0].run, one.run, found)]
    yield f"<h2>Beside {text(runs[0].name)}</h2>" + table("Changes", columns, changes)
    yield f"<p>Up to {100 * margin:.4g} % more p95, or one in a hundred fewer in budget, counts as no worse. "
    yield "Intervals know what happened within each run, not of a machine that drifts between them.</p>"
    if differ:
        yield notes(differ)


def _row(one: Named) -> list[str]:
    told = one.run.summary()
    shown = told.word != "unsteady"
    sure = told.p95_range if shown else None
    return [
        one.name,
        f"{_rate(one.run)}",
        percent(told.answered / told.offered) if told.offered else NONE,
        NONE if told.in_budget is None or not told.offered else percent(told.in_budget / told.offered),
        NONE if told.in_budget is None else _a_second(told.in_budget, told.seconds),
        time(told.latency.p50 if shown else math.nan),
        time(told.latency.p95 if shown else math.nan),
        between(sure),
        time(told.latency.p99 if shown else math.nan),
    ]


def _section(one: Named, place: int) -> Iterator[str]:
    words = _sentence(verdict_words(one.run.header, one.run.summary()))
    yield f'<section class="run" id="run{place}"><h2>{text(one.name)}</h2><p class="verdict">{text(words)}</p>'
    yield f'<p class="aside">{text(title(one.run.header))}<br>{text(_when(one.run.header))}</p>'


def _cautions(one: Named, level: str) -> Iterator[str]:
    told = [*((words, True) for words in one.cut), *cautions(one.run)]
    if told:
        yield f"<{level}>What to know</{level}>{notes(told)}"


# ---- figures, machine, commands --------------------------------------------------------------------------------------


def _figures(one: Named, level: str) -> Iterator[str]:
    told = one.run.summary()
    yield f"<{level}>Figures</{level}>" + table("Figures", ["of", *COLUMNS[1:]], rows(one.run))
    kinds = [(f"refused: {why}", n) for why, n in told.refused.items()]
    kinds += [(f"answered {status}", n) for status, n in told.statuses.items()]
    kinds += list(told.errors.items())
    yield f"<{level}>Not answered as asked</{level}>"
    if kinds:
        lost = [(why, f"{n:,}", percent(n / told.offered)) for why, n in kinds]
        yield table("Not answered as asked", ["reason", "requests", "share"], lost)
    else:
        yield f"<p>None of {told.offered:,} requests was refused, failed or unanswered.</p>"


def _made_on(runs: Sequence[Named], level: str) -> Iterator[str]:
    """The machine, what was asked of whom, and the exact commands."""
    yield f'<{level} id="made-on">Machine and commands</{level}>'
    yield "<p>The machine is the one that sent the requests; the server's is not asked.</p>"
    facts = [dict(_facts(one.run)) for one in runs]
    names = list(dict.fromkeys(name for each in facts for name in each))
    told = [[name, *(each.get(name, NONE) for each in facts)] for name in names]
    columns = ["fact", *(["value"] if len(runs) == 1 else [one.name for one in runs])]
    yield f'<div class="wide">{table("Machine", columns, told)}</div>'
    for one in runs:
        name = "" if len(runs) == 1 else f"<p>{text(one.name)}:</p>"
        yield f'{name}<pre tabindex="0"><code>{text(one.run.header.command)}</code></pre>'


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    header = run.header
    for name in ("cpu", "cores", "quota", "governor", "virtual", "system", "python", "onnxruntime"):
        value = header.machine.get(name)
        if value is not None:
            yield name, f"{value:g}" if isinstance(value, float) else str(value)
    yield "target", header.target
    model = header.model or {}
    for name, value in (("model", model.get("name")), ("model sha256", model.get("sha256"))):
        if value:
            yield name, str(value)
    bodies = [f"{value} {name}" for name in ("count", "format", "source") if (value := header.payload.get(name))]
    yield "bodies", ", ".join(bodies) or NONE
    yield "sha256 of the bodies", str(header.payload.get("sha256") or NONE)
    yield "seed", NONE if header.seed is None else str(header.seed)
    yield "timeout", f"{header.timeout_s:g} s"
    yield "connections", f"{run.ending.connections} opened, at most {header.connections} at once"
    yield "made by", header.made_by
    yield "hash of the test", header.hash


# ---- words -----------------------------------------------------------------------------------------------------------


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _reason(words: str) -> str:
    """What a verdict rests on, without what the headline has said."""
    verdict, _, reason = words.partition(": ")
    if verdict.endswith(("met", "missed")):
        reason = reason.partition(". ")[2]
    return _sentence(reason or words)


def _word(one: Named) -> str:
    word = one.run.summary().word
    return {"unsteady": "not steady"}.get(word, word)


def _when(header: Header) -> str:
    return f"started {header.started.replace('T', ' ').replace('+00:00', ' UTC')}" if header.started else ""


def _rate(run: Run) -> str:
    told = run.summary()
    return _a_second(told.offered, told.seconds)


def _a_second(count: int, seconds: float) -> str:
    return f"{show_rate(count / seconds)}/s" if seconds else NONE
