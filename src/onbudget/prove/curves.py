"""What a plan's charts show, as data for `web/page/charts.js`, which draws it without knowing what it is.

A chart has `lines` (x and y), `points` on them (y from low to high; hollow where nothing is concluded), marks `across`
at a y and `upright` at an x. Times are in ms, as plain numbers; None is a time without bound.
"""

from __future__ import annotations

import math
from typing import Any

from onbudget.core.plan import Candidate, Plan, Trial
from onbudget.core.profile import Point, shape
from onbudget.core.units import show_rate, show_seconds

Chart = dict[str, Any]

_LINEAR = 4  # budgets; where a time is larger, a linear scale would leave no room for those around the budget


def charts(plan: Plan) -> dict[str, Chart]:
    """The charts by name; without those that there is nothing to draw of."""
    made = {"capacity": _capacity(plan)}
    if plan.costs:
        made |= {"runs": _runs(plan), "items": _items(plan)}
    return {name: chart for name, chart in made.items() if any(line["x"] for line in chart["lines"]) or chart["points"]}


def named(one: Candidate) -> str:
    """A configuration as a person reads it, with its variant of the model."""
    return f"{one.model}: {one.configuration}" if one.model else str(one.configuration)


def shapes(plan: Plan) -> dict[str, list[Point]]:
    """The timed runs of each lanes × threads, by batch."""
    found: dict[str, list[Point]] = {}
    for point in sorted(plan.costs, key=lambda one: (one.threads, one.lanes, one.batch)):
        found.setdefault(shape(point.threads, point.lanes), []).append(point)
    return found


def _capacity(plan: Plan) -> Chart:
    finalists = [one for one in plan.candidates if one.curve or one.trials]
    limits = (("predicted limit", plan.limit_rate), ("measured limit", plan.choice.measured_limit or 0.0))
    rates = [("quiet", plan.quiet), ("peak", plan.peak), *sorted(limits, key=lambda one: -one[1])]
    times = [p95 for one in finalists for _, p95 in one.curve]
    times += [time for one in finalists for trial in one.trials for time in (trial.p95_s, trial.high_s)]
    wide = any(_LINEAR * plan.p95_s < time < math.inf for time in times)
    return {
        "x": {"label": "requests/s", "scale": "linear"},
        "y": {"label": "p95, ms", "scale": "log" if wide else "linear", "unbounded": "no answer for more than 5 %"},
        "lines": [
            {"label": named(one), "x": [rate for rate, _ in one.curve], "y": [_ms(p95) for _, p95 in one.curve]}
            for one in finalists
        ],
        "points": [
            _tested(index, trial)
            for index, one in enumerate(finalists)
            for trial in one.trials
            if not math.isnan(trial.p95_s)
        ],
        "across": [{"at": _ms(plan.p95_s), "label": f"budget {show_seconds(plan.p95_s)}"}],
        "upright": [{"at": rate, "label": f"{name} {show_rate(rate)}/s"} for name, rate in rates if rate],
    }


def _tested(line: int, trial: Trial) -> Chart:
    """A load test, without whiskers where it tells nothing of them."""
    unknown = trial.low_s == 0 and trial.high_s == math.inf
    return {
        "line": line,
        "x": trial.rate,
        "y": _ms(trial.p95_s),
        "low": _ms(trial.p95_s if unknown else trial.low_s),
        "high": _ms(trial.high_s),
        "hollow": trial.word not in ("met", "missed") or bool(trial.doubt),
    }


def _runs(plan: Plan) -> Chart:
    chart = _by_batch(plan, "a run, ms", "log", lambda point: point.median_s)
    chart["points"] = [
        {"line": index, "x": p.batch, "y": _ms(p.median_s), "low": _ms(p.median_s), "high": _ms(p.q90_s)}
        for index, points in enumerate(shapes(plan).values())
        for p in points
    ]
    return chart


def _items(plan: Plan) -> Chart:
    return _by_batch(plan, "an item, ms", "linear", lambda point: point.median_s / point.batch)


def _by_batch(plan: Plan, label: str, scale: str, seconds: Any) -> Chart:
    return {
        "x": {"label": "batch", "scale": "log2"},
        "y": {"label": label, "scale": scale},
        "lines": [
            {"label": name, "x": [p.batch for p in points], "y": [_ms(seconds(p)) for p in points]}
            for name, points in shapes(plan).items()
        ],
        "points": [],
        "across": [],
        "upright": [],
    }


def _ms(seconds: float) -> float | None:
    return float(f"{seconds * 1e3:.6g}") if math.isfinite(seconds) else None
