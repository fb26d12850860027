"""A load test's run as charts: data for `web/page/charts.js`, as small for a million requests as for a thousand.

Rules of this file. Percentiles are exact: order statistics of every request, of which only so many are drawn as the eye
can tell. Over time requests are put in bins, each with enough of them for its p95 to mean something. Times are in ms;
None is a request without an answer. What is drawn of one run uses line 0 to 2; of several, one line a run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from onbudget.core.records import Header, Hits
from onbudget.core.units import show_seconds
from onbudget.prove.load import Run

Floats = npt.NDArray[np.float64]
Chart = dict[str, Any]

_PER_DECADE = 40  # points of a percentile curve in each tenfold nearer to 100 %
_BINS = 120  # at most, over time
_IN_BIN = 40  # requests in a bin on average, where the run is long enough: its p95 is then not its slowest
_FEWEST_BINS = 10
_STEPS = (1.0, 2.0, 5.0)
_MARKS = (0.5, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.99999, 0.999999)
NO_ANSWER = "no answer"


@dataclass(frozen=True, slots=True)
class Named:
    """A run, the name that it is shown by, and what was wrong with its file, a sentence each."""

    name: str
    run: Run
    cut: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bin:
    """Of a stretch of a run: requests a second by what became of them, and percentiles of those that were due in it.

    `offered` and `failed` count in the moment in which they were due, `answered` and `refused` when they came. Times in
    seconds: NaN where nobody was due.
    """

    start: float
    seconds: float
    offered: float
    answered: float
    refused: float
    failed: float
    p50: float
    p95: float
    slowest: float


def bins(hits: Hits, seconds: float, most: int = _BINS) -> list[Bin]:
    """The whole run, warm-up included, in stretches of a round length; at most about `most` of them.

    Requests were sent for `seconds`. What came much later has stretches of its own, in which nobody was due.
    """
    if not len(hits):
        return []
    came = np.where(np.isfinite(hits.done), hits.due + hits.done, math.nan)
    edges = _edges(max(seconds, float(hits.due[-1]), 1e-3), np.fmax.reduce(came, initial=0.0), len(hits), most)
    ok = hits.ok()
    refused = np.array([o.refused for o in hits.outcomes], np.bool_)[hits.outcome]
    moments = (hits.due, came[ok], came[refused], hits.due[~ok & ~refused])
    finite = (np.minimum(one[np.isfinite(one)], edges[-1]) for one in moments)  # the last answers come after the end
    rates = [np.histogram(one, edges)[0] / np.diff(edges) for one in finite]
    starts = np.searchsorted(hits.due, edges)
    starts[-1] = len(hits)
    latency = hits.latency()
    found = []
    for i in range(len(edges) - 1):
        offered, answered, came_refused, failed = (float(rate[i]) for rate in rates)
        spread = _spread(latency[starts[i] : starts[i + 1]])
        start, length = float(edges[i]), float(edges[i + 1] - edges[i])
        found.append(Bin(start, length, offered, answered, came_refused, failed, *spread))
    return found


def _edges(sent_s: float, end_s: float, count: int, most: int) -> Floats:
    """Where stretches begin and end: the last before the end of sending is longer or shorter than the others."""
    wanted = max(max(sent_s, end_s) / most, min(_IN_BIN * sent_s / count, sent_s / _FEWEST_BINS))
    power = 10.0 ** math.floor(math.log10(wanted))
    width = next((step * power for step in _STEPS if step * power >= wanted * (1 - 1e-9)), 10 * power)
    whole = max(1, round(sent_s / width))
    late = math.ceil((end_s - sent_s) / width - 0.5) if end_s > sent_s + width / 2 else 0
    return np.array([*(i * width for i in range(whole)), *(sent_s + i * width for i in range(late + 1))])


def _spread(values: Floats) -> tuple[float, float, float]:
    if not len(values):
        return math.nan, math.nan, math.nan
    ordered = np.sort(values)
    return at_share(ordered, 0.5), at_share(ordered, 0.95), float(ordered[-1])


def at_share(ordered: Floats, share: float) -> float:
    """The least value that a share of these was at most: an order statistic, which may be infinite. NaN of none."""
    if not len(ordered):
        return math.nan
    return float(ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered) - 1e-9) - 1))])


def _pairs(runs: Sequence[Named]) -> list[tuple[str, Run]]:
    return [(one.name, one.run) for one in runs]


# ---- charts ----------------------------------------------------------------------------------------------------------


def distribution(runs: Sequence[Named]) -> Chart:
    """Latency by percentile from the due moment, and of a single run from the actual send too."""
    lines: list[Chart] = []
    for name, run in _pairs(runs):
        judged = run.hits.after(run.header.warmup_s)
        label = name if len(runs) > 1 else "from the due moment"
        lines.append({"label": label, **_percentiles(judged.latency())})
        if len(runs) == 1:
            lines.append({"label": "from the send", **_percentiles(judged.latency_from_send())})
    most = max((max(line["x"], default=1.0) for line in lines), default=1.0)
    return {
        "x": {
            "label": "percentile",
            "scale": "percentile",
            "ticks": [[1 / (1 - p), f"{100 * p:.6g} %"] for p in _MARKS if 1 / (1 - p) <= most * 1.01],
        },
        "y": {"label": "latency, ms", "scale": "log", "unit": "ms", "unbounded": NO_ANSWER},
        "lines": lines,
        "points": [],
        "across": budgets(one.run.header for one in runs),
        "upright": [{"at": 20, "label": "p95"}] if most >= 20 else [],
    }


def _percentiles(values: Floats) -> Chart:
    """x is 1/(1-p), so that each further nine takes as much room as the one before."""
    ordered = np.sort(values)
    count = len(ordered)
    if not count:
        return {"x": [], "y": []}
    marks = {float(f"{10 ** (i / _PER_DECADE):.6g}") for i in range(math.ceil(_PER_DECADE * math.log10(count)) + 1)}
    xs = sorted({1.0, 20.0, float(count), *marks} if count >= 20 else {1.0, float(count), *marks})
    xs = [x for x in xs if x <= count]
    return {"x": xs, "y": [_ms(at_share(ordered, 1 - 1 / x)) for x in xs]}


def over_time(runs: Sequence[Named]) -> Chart:
    """Latency by due moment: of a single run median, p95 and slowest of each bin; of several each one's p95."""
    lines: list[Chart] = []
    for name, run in _pairs(runs):
        told = [one for one in bins(run.hits, run.ending.seconds) if not math.isnan(one.p50)]
        middles = [_digits(one.start + one.seconds / 2) for one in told]
        if len(runs) > 1:
            lines.append({"label": name, "x": middles, "y": [_ms(one.p95) for one in told]})
            continue
        for label, field in (("slowest", "slowest"), ("p95", "p95"), ("median", "p50")):
            lines.append({"label": label, "x": middles, "y": [_ms(getattr(one, field)) for one in told]})
    return {
        "x": {"label": "due after, s", "scale": "linear"},
        "y": {"label": "latency, ms", "scale": "log", "unit": "ms", "unbounded": NO_ANSWER},
        "lines": lines,
        "points": [],
        "across": budgets(one.run.header for one in runs),
        "upright": _warm_up(runs),
    }


def traffic(runs: Sequence[Named]) -> Chart:
    """Requests a second over time: of a single run offered, answered, refused and failed; of several each's answers."""
    lines: list[Chart] = []
    for name, run in _pairs(runs):
        told = bins(run.hits, run.ending.seconds)
        for field in ("offered", "answered", "refused", "failed") if len(runs) == 1 else ("answered",):
            shown = [one for one in told if one.start < run.ending.seconds] if field == "offered" else told
            rates = [_digits(getattr(one, field)) for one in shown]
            if any(rates) or field in ("offered", "answered"):
                middles = [_digits(one.start + one.seconds / 2) for one in shown]
                lines.append({"label": field if len(runs) == 1 else name, "x": middles, "y": rates})
    return {
        "x": {"label": "after, s", "scale": "linear"},
        "y": {"label": "requests/s", "scale": "linear", "unit": "/s"},
        "lines": lines,
        "points": [],
        "across": [],
        "upright": _warm_up(runs),
    }


def batch_sizes(runs: Sequence[Named]) -> Chart | None:
    """Which share of the server's runs had how many items, as bars; None where no server told."""
    told = [
        (name, run.ending.batches) for name, run in _pairs(runs) if run.ending.batches and run.ending.batches["runs"]
    ]
    sizes = sorted({(low, math.inf if high is None else high) for _, one in told for low, high, _ in one["sizes"]})
    if not sizes:
        return None
    places = {size: place for place, size in enumerate(sizes, 1)}
    lines = []
    for name, one in told:
        counts = {(low, math.inf if high is None else high): runs for low, high, runs in one["sizes"]}
        shares = [_digits(100 * counts.get(size, 0) / one["runs"]) for size in sizes]
        lines.append({"label": name if len(runs) > 1 else "runs", "x": list(places.values()), "y": shares})
    return {
        "x": {
            "label": "items in a run",
            "scale": "places",
            "ticks": [[place, sized(*size)] for size, place in places.items()],
        },
        "y": {"label": "share of runs, %", "scale": "linear", "unit": "%"},
        "bars": True,
        "lines": lines,
        "points": [],
        "across": [],
        "upright": [],
    }


def sized(low: float, high: float) -> str:
    """A kind of batch sizes: `4`, `5–6`, `over 1024`."""
    if not math.isfinite(high):
        return f"over {low - 1:.0f}"
    return f"{low:.0f}" if low == high else f"{low:.0f}–{high:.0f}"


def budgets(headers: Iterable[Header]) -> list[Chart]:
    """A mark at each budget."""
    found = sorted({header.p95_s for header in headers if header.p95_s is not None})
    return [{"at": _ms(budget), "label": f"budget {show_seconds(budget)}"} for budget in found]


def _warm_up(runs: Sequence[Named]) -> list[Chart]:
    found = sorted({one.run.header.warmup_s for one in runs} - {0.0})
    return [{"at": end, "label": f"judged from {end:g} s on"} for end in found]


def _ms(seconds: float) -> float | None:
    return _digits(seconds * 1e3) if math.isfinite(seconds) else None


def _digits(value: float) -> float:
    return float(f"{value:.5g}")
