"""How cost grows along an axis (`bench_growth.py`): a table and a plot of throughput, p95 and CPU for each axis.

Rows are medians of a point under one `load`: `over` is twice what the server can do, so its `answered_rate` is the
throughput; `fixed` is a share of the limit, so its `p95_ms` is the latency.
"""

from __future__ import annotations

from typing import Any

from onbudget.core.errors import UsageError
from rendering.records import Record, count, fixed, made_on, paragraphs, percent, table
from rendering.svg import Panel, lines

AXES = {  # axis → what its values are
    "connections": "connections",
    "items": "items a request",
    "models": "models",
    "padded": "bytes of a JSON body with one item",
    "photo": "bytes of a JPEG",
}
STEEP = 3  # values that grow by more are drawn on a log axis, as x is: there what is linear is straight

Row = dict[str, Any]


def axes(record: Record) -> list[str]:
    return list(dict.fromkeys(row["axis"] for row in record.data["rows"]))


def _pairs(record: Record, axis: str) -> list[tuple[Row, Row]]:
    """(`over`, `fixed`) of each value that has both, in order of the value."""
    rows = {(row["value"], row["load"]): row for row in record.data["rows"] if row["axis"] == axis}
    values = sorted({value for value, _ in rows})
    return [
        (rows[value, "over"], rows[value, "fixed"])
        for value in values
        if (value, "over") in rows and (value, "fixed") in rows
    ]


def bytes_or_count(axis: str, value: float) -> str:
    """A value of an axis as its ticks and tables say it."""
    if axis not in ("padded", "photo"):
        return count(value)
    return f"{fixed(value / 1e6, 1)} MB" if value >= 1e6 else f"{count(value / 1e3)} KB"


def tables(record: Record, words: list[str]) -> str:
    """The axis that the one word names: its plot and its table."""
    if len(words) != 1 or words[0] not in axes(record):
        raise UsageError(f"{record.name}: name one axis, of {', '.join(axes(record))}, not {' '.join(words) or 'none'}")
    (axis,) = words
    heads = [AXES.get(axis, axis), "items/s at twice the limit", "requests/s", "refused", "offered requests/s"]
    heads += ["p50 ms", "p95 ms", "CPU µs a request", "memory MB", "void"]
    rows = []
    for over, low in _pairs(record, axis):
        row = [bytes_or_count(axis, over["value"]), count(over["answered_items_rate"]), count(over["answered_rate"])]
        row += [percent(over["refused"], 0), count(low["rate"]), fixed(low["p50_ms"], 2), fixed(low["p95_ms"], 2)]
        row += [count(low["cpu_us_per_request"]), count(over["rss_mb"]), count(over["void"] + low["void"])]
        rows.append(row)
    share = f"Columns from *offered* to *CPU* are at {record.data['share']:g} of the limit."
    picture = f"![{_alt(record, axis)}](plots/{plot_name(record, axis)})"
    return paragraphs(made_on(record), picture, share, table(heads, rows, words=0))


def plot_name(record: Record, axis: str) -> str:
    return f"{record.name}-{axis}.svg"


def _alt(record: Record, axis: str) -> str:
    first, last = _pairs(record, axis)[0], _pairs(record, axis)[-1]
    ends = [
        f"{count(over['answered_rate'])} requests a second and a p95 of {fixed(low['p95_ms'], 1)} ms at "
        f"{bytes_or_count(axis, over['value'])}"
        for over, low in (first, last)
    ]
    return f"By {AXES.get(axis, axis)}: {'; '.join(ends)}"


def plots(record: Record) -> dict[str, str]:
    """File name → SVG, one for each axis."""
    return {plot_name(record, axis): plot(record, axis) for axis in axes(record)}


def plot(record: Record, axis: str) -> str:
    """Throughput, p95 and CPU along one axis, one below the other."""
    pairs = _pairs(record, axis)

    def panel(title: str, **names: tuple[int, str]) -> Panel:
        series = {
            label.replace("_", " "): [(pair[0]["value"], pair[which][name]) for pair in pairs]
            for label, (which, name) in names.items()
        }
        known = [y for points in series.values() for _, y in points if y]
        return Panel(title, series, log=bool(known) and max(known) > STEEP * min(known))

    throughput = {"requests": (0, "answered_rate")}
    if axis == "items":
        throughput["items"] = (0, "answered_items_rate")
    return lines(
        [f"Cost by {AXES.get(axis, axis)}", f"one core ({record.cpu}), {record.data['when'][:10]}"],
        [
            panel("answered a second, at twice the limit", **throughput),
            panel(f"ms, at {record.data['share']:g} of the limit", p50=(1, "p50_ms"), p95=(1, "p95_ms")),
            panel("CPU, µs a request", CPU=(1, "cpu_us_per_request")),
        ],
        AXES.get(axis, axis),
        {pair[0]["value"]: bytes_or_count(axis, pair[0]["value"]) for pair in pairs},
    )
