"""A plan as one HTML file to look at: what was chosen, why, and how far it can be believed. It loads nothing.

The rules of `prove.tags` hold; the charts are `prove.curves`'. A measured p95 has its count beside it.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence

from onbudget.core.plan import Candidate, Plan, Trial
from onbudget.core.units import show_rate, show_seconds
from onbudget.prove.curves import charts, named, shapes
from onbudget.prove.tags import NONE, cards, document, figure, more, notes, percent, table, text, time

_CAPTIONS = {
    "capacity": "p95 by rate: predicted (lines) and measured by load tests (points; the bar is where the true p95 is, "
    "95\u00a0% sure). Hollow points conclude nothing: undecided, void or in doubt.",
    "runs": "L(b): the median time of a run by batch; the bar reaches to its 90th percentile.",
    "items": "The same for an item of the batch: where it stops to fall, larger batches do not pay.",
}


def page(plan: Plan, file: str = "plan.json") -> str:
    """The whole file. `file` is the plan's own."""
    drawn = charts(plan)
    body = [
        *_head(plan, file),
        *_notes(plan),
        *_curves(plan, list(drawn)),
        *_configurations(plan),
        *_tests(plan),
        *_costs(plan, list(drawn)),
    ]
    return document(f"{plan.model}: plan for p95 ≤ {show_seconds(plan.p95_s)}", body, drawn)


# ---- what was chosen -------------------------------------------------------------------------------------------------


def _head(plan: Plan, file: str) -> Iterator[str]:
    facts, when = plan.machine, plan.started.replace("T", " ").replace("+00:00", " UTC")
    machine = [facts.get("cpu"), f"{facts['cores']:g} cores" if "cores" in facts else ""]
    machine += [f"quota {facts['quota']:g} cores" if facts.get("quota") else "no quota"]
    machine += [f"onnxruntime {facts['onnxruntime']}" if facts.get("onnxruntime") else "", facts.get("system")]
    what = "the lowest p95" if plan.choice.predicted or plan.choice.measured else "the highest rate"
    yield f'<header><p class="kind">A plan by {text(plan.made_by)}</p><h1>{text(_headline(plan))}</h1>'
    yield f'<p class="lead">Chosen: <strong>{text(plan.chosen)}</strong>, for {what} among {len(plan.candidates)} '
    yield f"configurations.</p>{cards(_cards(plan))}"
    command = f"onbudget serve {shlex.quote(plan.model)} --plan {shlex.quote(file)}"
    yield f"<p>Next:</p><pre><code>{text(command)}</code></pre>"
    yield f'<p class="aside">{text(plan.model)}, sha256 <code>{text(plan.sha256[:12])}</code>…<br>'
    yield f"{text(', '.join(str(one) for one in machine if one))}<br>"
    yield f"{text(when)}, took {show_seconds(plan.seconds)}</p></header>"


def _headline(plan: Plan) -> str:
    one, budget = plan.choice, show_seconds(plan.p95_s)
    if one.measured is not None:
        where = f"under {plan.trace}" if plan.trace or plan.peak is None else f"at {show_rate(plan.peak)} requests/s"
        side = "within" if one.measured.within(plan.p95_s) else "not within"
        if all(test.doubt or test.word == "void" for test in one.trials):
            side = "in doubt, though measured " + side
        return f"{plan.model}: p95 {time(one.measured.peak_s)} {where}, {side} the budget of {budget}"
    held = one.measured_limit
    told = f"is predicted to hold {show_rate(one.limit_rate)}" if held is None else f"held {show_rate(held)}"
    return f"{plan.model} {told} requests/s within a p95 of {budget}"


def _cards(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Name, value, what to know of it."""
    one = plan.choice
    yield "budget", f"p95 ≤ {show_seconds(plan.p95_s)}", "who gets no answer counts as late"
    for load, rate, field in _loads(plan):
        name = load if rate is None else f"{load}, {show_rate(rate)}/s"
        if one.measured is not None:
            test, expected = _test_at(one, rate), getattr(one.predicted, field, None)
            count = f"of {test.offered:,} requests: {_word(test)}" if test else "measured"
            told = f"{count} (predicted: {time(expected)})" if expected is not None else count
            yield f"p95 {name}", time(getattr(one.measured, field)), told
        elif one.predicted is not None:
            yield f"p95 {name}", time(getattr(one.predicted, field)), "predicted"
    if held := one.measured_limit:
        yield (
            "holds up to, measured",
            f"{show_rate(held)}/s",
            f"predicted: {show_rate(one.limit_rate)}/s, {_apart(plan, held)}",
        )
    else:
        yield "holds up to, predicted", f"{show_rate(one.limit_rate)}/s", "no load test looked for its limit"
    if tests := [test for each in plan.candidates for test in each.trials]:
        yield "load tests", str(len(tests)), f"{sum(test.offered for test in tests):,} requests over HTTP"


def _apart(plan: Plan, held: float) -> str:
    share = plan.limit_rate / held - 1
    return f"{abs(share) * 100:.1f} % {'more' if share > 0 else 'less'}"


def _loads(plan: Plan) -> list[tuple[str, float | None, str]]:
    """The loads that it was chosen for: a name, the rate (None of a trace), and the field of `Loads`."""
    if plan.trace:
        return [(f"under {plan.trace}", None, "peak_s")]
    rates = (("quiet", plan.quiet), ("peak", plan.peak))
    return [(name, rate, f"{name}_s") for name, rate in rates if rate is not None]


def _test_at(one: Candidate, rate: float | None) -> Trial | None:
    """The load test at a rate; of a trace the only one."""
    return next((trial for trial in one.trials if rate is None or math.isclose(trial.rate, rate)), None)


def _notes(plan: Plan) -> Iterator[str]:
    doubts: dict[str, list[str]] = {}
    for one in plan.candidates:
        for trial in one.trials:
            if trial.doubt:
                doubts.setdefault(trial.doubt, []).append(f"{named(one)} at {show_rate(trial.rate)}/s")
    told = [(note, any(why in note for why in doubts)) for note in plan.notes]
    for why, tests in doubts.items():
        if not any(why in note for note in plan.notes):
            where = f"{len(tests)} load test{'s' if len(tests) > 1 else ''}: {'; '.join(tests)}"
            told.append((f"{why} ({where})", True))
    if told:
        yield f"<h2>What to know</h2>{notes(told)}"


# ---- all that was considered -----------------------------------------------------------------------------------------


def _verdict(plan: Plan, one: Candidate) -> tuple[str, bool]:
    """In words, and whether it is within the budget. What was measured outweighs what was predicted."""
    if one.measured is not None:
        fits = one.measured.within(plan.p95_s)
        words = [_word(test) for _, rate, _ in _loads(plan) if (test := _test_at(one, rate))]
        return next((word for word in words if word != "met"), "met" if fits else "missed"), fits
    if one.measured_limit is not None:
        return ("held", True) if one.measured_limit else ("missed", False)
    fits = one.predicted.within(plan.p95_s) if one.predicted else one.limit_rate > 0
    return "predicted to fit" if fits else "predicted to miss", fits


def _ordered(plan: Plan) -> list[Candidate]:
    """The chosen one, then the best: those that fit, of these the measured, by p95 at peak, else by their limit."""

    def order(one: Candidate) -> tuple[bool, bool, bool, float, float]:
        loads = one.measured or one.predicted
        untried = one.measured is None and one.measured_limit is None
        limit = one.limit_rate if one.measured_limit is None else one.measured_limit
        return one is not plan.choice, not _verdict(plan, one)[1], untried, loads.peak_s if loads else 0.0, -limit

    return sorted(plan.candidates, key=order)


def _configurations(plan: Plan) -> Iterator[str]:
    loads, variants = _loads(plan), any(one.model for one in plan.candidates)
    columns = ["configuration", "lanes", "threads", "max batch", "policy", "model"]
    for way in ("predicted", "measured"):
        columns += [f"limit, {way}", *(f"p95 {name}, {way}" for name, _, _ in loads)]
    rows, classes = [], []
    for place, one in enumerate(_ordered(plan), start=1):
        made, (verdict, fits), chosen = one.configuration, _verdict(plan, one), one is plan.choice
        row = [f"{place} ← chosen" if chosen else f"{place}", made.lanes, made.threads, made.max_batch, made.policy]
        row += [(one.model or plan.model) if variants else NONE, _rate(one.limit_rate)]
        row += [time(getattr(one.predicted, field, None)) for _, _, field in loads] + [_rate(one.measured_limit)]
        for _, rate, field in loads:
            test = _test_at(one, rate)
            row += [time(getattr(one.measured, field, None)) + (f" of {test.offered:,}" if test else "")]
        rows.append([*row, verdict])
        classes.append("chosen" if chosen else "" if fits else "out")
    used = [index for index in range(len(columns) + 1) if any(row[index] != NONE for row in rows)]
    columns, rows = [[*columns, "verdict"][i] for i in used], [[row[i] for i in used] for row in rows]
    yield "<h2>Configurations</h2><p>The best first, and of those that fit the measured ones first. Greyed ones are "
    yield "not within the budget.</p>" + table("All configurations", columns, rows, classes)


def _curves(plan: Plan, drawn: Sequence[str]) -> Iterator[str]:
    if "capacity" in drawn:
        yield "<h2>How much it holds</h2>" + figure("capacity", _CAPTIONS["capacity"], 440)
    if rows := [[named(one), f"{show_rate(rate)}/s", time(p95)] for one in plan.candidates for rate, p95 in one.curve]:
        yield more("The predicted curves", ["configuration", "rate", "p95, predicted"], rows)


def _tests(plan: Plan) -> Iterator[str]:
    columns = ["configuration", "rate", "requests", "in budget", "no answer", "p95", "95 % sure of", "verdict"]
    rows = []
    for one in _ordered(plan):
        for test in sorted(one.trials, key=lambda test: test.rate):
            shares = percent(test.in_budget), percent(test.refused)
            seen = time(test.p95_s), _range(test), _word(test)
            rows.append((named(one), f"{show_rate(test.rate)}/s", f"{test.offered:,}", *shares, *seen))
    if rows:
        yield "<h2>Load tests</h2><p>Requests came as scheduled, however slow the answers were. Where more than 5 % "
        yield "got no answer, p95 has no bound.</p>" + table("All load tests", columns, rows)


def _costs(plan: Plan, drawn: Sequence[str]) -> Iterator[str]:
    columns = ["lanes × threads", "batch", "runs", "median", "90th percentile", "an item", "items/s, all lanes"]
    rows = []
    for name, points in shapes(plan).items():
        for p in points:
            times = time(p.median_s), time(p.q90_s), time(p.median_s / p.batch)
            rows.append((name, p.batch, f"{p.runs:,}", *times, f"{p.items_per_s:,.0f}"))
    if rows:
        yield f"<h2>What a run costs</h2><p>Runs of {text(plan.model)}, timed with all lanes busy.</p>"
        made = "".join(figure(name, _CAPTIONS[name], 300) for name in ("runs", "items") if name in drawn)
        yield f'<div class="pair">{made}</div>'
        yield more("The runs", columns, rows)
    if (found := plan.overheads) is not None:
        beside = [
            ("a request let in", time(found.accept_s), f"{percent(found.reply)} of it after its run"),
            ("a request refused", time(found.refuse_s), ""),
            ("a batch", time(found.batch_s), "what its requests share"),
        ]
        yield "<h2>What requests and batches cost beside the runs</h2>"
        yield table("Beside the runs", ["of", "CPU time", "note"], beside)


# ---- words and tags --------------------------------------------------------------------------------------------------


def _word(test: Trial) -> str:
    return f"{test.word}, in doubt" if test.doubt and test.word != "void" else test.word


def _range(test: Trial) -> str:
    unknown = test.low_s == 0 and test.high_s == math.inf
    return NONE if unknown else f"{time(test.low_s)} to {time(test.high_s)}"


def _rate(rate: float | None) -> str:
    return NONE if rate is None else f"{show_rate(rate)}/s" if rate else "none"
