"""The charts of load tests on their page, each with a table that says the same in numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from onbudget.core.units import show_rate
from onbudget.prove import series
from onbudget.prove.load import Run
from onbudget.prove.series import Chart, Named
from onbudget.prove.tags import figure, more, time

_SHARES = (0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999)
_ROWS = 20  # of the table over time, about
_ALONE = {
    "latency": "How long the slowest answers took: each further nine is as wide as the one before. From the due moment "
    "is what a user felt; from the send is what a test tells that starts its clock only when it gets round to sending.",
    "time": "Latency of those that were due in each stretch of time.",
    "traffic": "Requests a second: offered when they were due, answered and refused when the answer came.",
    "batches": "How many items ran together, as the server counted: warm-up included, and whoever asked.",
}
_TOGETHER = {
    "latency": "How long the slowest answers took, from the due moment: each further nine is as wide as the last.",
    "time": "p95 of those that were due in each stretch of time.",
    "traffic": "Answers a second.",
    "batches": "How many items ran together, as the servers counted: warm-up included, and whoever asked.",
}


def charts(runs: Sequence[Named], prefix: str, level: str, drawn: dict[str, Chart]) -> Iterator[str]:
    """The charts of these runs; their data goes to `drawn` under the same names."""
    alone = len(runs) == 1
    captions = _ALONE if alone else _TOGETHER
    made = (
        ("latency", f"<{level}>Latency</{level}>", series.distribution(runs), 380, captions["latency"]),
        ("time", f"<{level}>Over time</{level}>", series.over_time(runs), 320, captions["time"]),
        ("traffic", "", series.traffic(runs), 260, captions["traffic"]),
        ("batches", f"<{level}>Batches</{level}>", series.batch_sizes(runs), 260, captions["batches"]),
    )
    for name, head, chart, height, caption in made:
        if chart is None:
            continue
        if any(line["x"] for line in chart["lines"]):
            drawn[prefix + name] = chart
            yield head + figure(prefix + name, caption, height)
        elif head:
            yield f"{head}<p>Nothing to draw: no request was judged.</p>"
        if name == "latency":
            yield _percentiles(runs)
        elif name == "traffic" and alone:
            yield _bins(runs[0].run)
        elif name == "batches":
            yield _sizes(runs)


def _percentiles(runs: Sequence[Named]) -> str:
    alone = len(runs) == 1
    columns, values = ["percentile"], []
    for one in runs:
        judged = one.run.hits.after(one.run.header.warmup_s)
        columns += ["from the due moment", "from the send"] if alone else [one.name]
        values.append(np.sort(judged.latency()))
        if alone:
            values.append(np.sort(judged.latency_from_send()))
    most = max(len(each) for each in values)
    shares = [share for share in _SHARES if most * (1 - share) >= 1 or share == _SHARES[0]]
    told = [[f"{100 * p:.6g} %", *(time(series.at_share(each, p)) for each in values)] for p in shares]
    told.append(["slowest", *(time(series.at_share(each, 1.0)) for each in values)])
    return more("Percentiles", columns, told)


def _bins(run: Run) -> str:
    columns = ["from", "to", "offered/s", "answered/s", "refused/s", "failed/s", "median", "p95", "slowest"]
    told = [
        [f"{one.start:.4g} s", f"{one.start + one.seconds:.4g} s"]
        + [show_rate(rate) for rate in (one.offered, one.answered, one.refused, one.failed)]
        + [time(one.p50), time(one.p95), time(one.slowest)]
        for one in series.bins(run.hits, run.ending.seconds, _ROWS)
    ]
    return more("Over time", columns, told)


def _sizes(runs: Sequence[Named]) -> str:
    known = [(one.name, one.run.ending.batches) for one in runs if one.run.ending.batches]
    sizes = sorted({(low, math.inf if high is None else high) for _, told in known for low, high, _ in told["sizes"]})
    counts = [
        {(low, math.inf if high is None else high): count for low, high, count in told["sizes"]} for _, told in known
    ]
    columns = ["items", *(["runs"] if len(runs) == 1 else [name for name, _ in known])]
    told = [[series.sized(*size), *(f"{each.get(size, 0):,}" for each in counts)] for size in sizes]
    return more("Batch sizes", columns, told)
