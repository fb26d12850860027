"""One function a kind of record: its table as Markdown, under a line of machine and versions where the record has them.

Kinds in parts also get the words that follow the name in the page's marker, which choose what is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from statistics import median
from textwrap import fill
from typing import Any

from onbudget.core.errors import UsageError
from rendering import goodput, growth, yardstick
from rendering.records import Record, count, fixed, made_on, paragraphs, percent, several, signed, table

Row = dict[str, Any]


def grouped(rows: list[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows with equal values under `keys`, in the order in which they first appear."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def simulated_policies(record: Record, words: list[str]) -> str:
    """Exact runs on the cost curves that `words` name, such as 2+1b; all curves without words."""
    exact = [(f"{row['a_ms']:g}+{row['k_ms']:g}b", row) for row in record.data["rows"] if row["noise"] == "none"]
    if unknown := set(words) - {curve for curve, _ in exact}:
        raise UsageError(f"{record.name} has no curve {', '.join(sorted(unknown))}: {sorted({c for c, _ in exact})}")
    heads = ["run of b items, ms", "policy", "D in L(1)", "refusals as misses", "and at most 1 % refused"]
    figures = ("limit", "limit, 1 % refused", "overload")
    rows = [
        [f"{row['a_ms']:g} + {row['k_ms']:g}·b", row["policy"], f"{row['budget_in_l1']:g}"]
        + [fixed(row[figure]["median"], 3) for figure in figures]
        for curve, row in exact
        if not words or curve in words
    ]
    how = f"{count(record.data['requests'])} requests"
    if "warm-up requests" in record.data:
        how += f" of which the first {count(record.data['warm-up requests'])} are not judged"
    how += f", medians of {len(record.data['seeds'])} seeds."
    return paragraphs(how, table([*heads, "in time at 1.5× the capacity"], rows, words=2))


def policies(record: Record) -> str:
    """The highest rates of each policy at each budget, requests/s."""
    limits = ("limit_rate", "limit_rate_1_percent_refused")
    rows = [
        [
            policy,
            f"{budget['budget_ms']:g}",
            *(count(found[limit]) for limit in limits),
            fixed(found["in_budget_at_overload"], 2),
        ]
        for budget in record.data["budgets"]
        for policy, found in budget["policies"].items()
    ]
    heads = ["policy", "D, ms", "refusals as misses /s", "and at most 1 % refused /s"]
    return paragraphs(made_on(record), table([*heads, f"in time at {record.data['overload']:g}×"], rows))


def overload(record: Record) -> str:
    """Answers in budget of each run at each rate, and p95 where it was within what could be told."""
    by_rate = grouped(
        [{"version": run["version"], **trial} for run in record.data["runs"] for trial in run["trials"]],
        "offered_per_s",
        "version",
    )
    versions = list(dict.fromkeys(run["version"] for run in record.data["runs"]))
    rows = []
    for offered in dict.fromkeys(rate for rate, _ in by_rate):
        row = [count(offered)]
        for version in versions:
            trials = by_rate[offered, version]
            row.append(several((t["in_budget_per_s"] for t in trials), 0))
            row.append(several((t["p95_ms"] for t in trials), 1))
        rows.append(row)
    heads = [head for version in versions for head in (f"{version}: in budget /s", "p95 ms")]
    return paragraphs(made_on(record), table(["offered /s", *heads], rows, words=0))


def refusals(record: Record) -> str:
    """Medians at each multiple of the limit, and what an answer and a refusal cost."""
    by_times = grouped(record.data["trials"], "times")
    once = median(trial["in_budget_rate"] for trial in by_times[(1,)])
    rows = []
    for (times,), same in sorted(by_times.items()):
        middle = median(trial["in_budget_rate"] for trial in same)
        answered = sum(trial["answered"] for trial in same)
        late = sum(trial["answered"] * (trial["late_of_answered"] or 0) for trial in same)
        told = [[trial[name] for trial in same if trial[name] is not None] for name in ("told_p50_ms", "told_p95_ms")]
        rows.append(
            [
                f"{times}× ({count(same[0]['rate'])})",
                count(middle),
                percent(middle / once, 0),
                percent(late / answered, 2),
            ]
            + [fixed(median(values), 2) if values else "–" for values in told]
            + [f"{count(sum(t['told_after_budget'] for t in same))} of {count(sum(t['refused'] for t in same))}"]
            + [f"{sum(trial['void'] for trial in same)} of {len(same)}"]
        )
    heads = ["offered /s", "in budget /s", "of 1×", "late of answered", "refused learn it, p50 ms", "p95 ms"]
    found = record.data["costs"]
    cost = (
        f"CPU of an answer {count(found['answer_us'])} µs, of a refusal {count(found['refusal_us'])} ± "
        f"{count(found['refusal_error_us'])} µs (least squares over {found['trials']} trials)."
    )
    return paragraphs(made_on(record), table([*heads, "after the budget", "void"], rows), cost)


def quiet(record: Record) -> str:
    """Medians of the sound rounds, and what the served ones add to the bare session."""
    names = {
        "bare": "the bare session's run",
        "least": "a server that does not look",
        "json": "JSON",
        "octet": "octet-stream",
    }
    figures = ("p50_ms", "p95_ms", "added_p95_ms")
    rows = [
        [names[kind], *(fixed(told.get(name), 2) for name in figures), count(told["rounds"])]
        for kind, told in record.data["medians"].items()
    ]
    heads = ["asked at the same moments", "p50 ms", "p95 ms", "p95 over the bare session's", "rounds"]
    return paragraphs(made_on(record), table(heads, rows))


def thin(record: Record) -> str:
    """Medians of each arm, and the range of its rounds' shares of the bare session."""
    names = {"bare": "the bare session", "thin": "a server that only answers (`thin.py`)", "ours": "`onbudget serve`"}
    rows = []
    for arm, told in record.data["medians"].items():
        shares = told["of_bare_rounds"]
        span = f"{percent(min(shares), 1)} to {percent(max(shares), 1)}" if arm != "bare" else "–"
        rows.append(
            [names[arm], count(told["items_rate"]), count(told["cpu_us_per_item"]), percent(told["of_bare"], 1), span]
        )
    heads = ["on one core", "items/s", "CPU µs an item", "of bare", "in the rounds"]
    return paragraphs(made_on(record), table(heads, rows))


def soak(record: Record) -> str:
    """The windows by thirds of the time, and what memory and p95 did."""
    told, windows = record.data["told"], record.data["windows"]
    third = max(1, len(windows) // 3)
    parts = {"first third": windows[:third], "last third": windows[-third:], "all": windows}
    heads = ["part", "windows", "sent", "p50 ms", "p95 ms", "refused", "errors"]
    rows = [[name, *_windows(part)] for name, part in parts.items()]
    mb, hourly = told["memory_mb"], told["memory_mb_per_hour"]
    said = (
        f"Memory was {fixed(mb['after a quarter'], 1)} MB after a quarter of the time and {fixed(mb['last'], 1)} MB at "
        f"the end: {hourly:+.2f} ± {fixed(told['memory_mb_per_hour_error'], 2)} MB an hour (least squares). p95 of the "
        f"last third over that of the first: {fixed(told['p95_drift'], 2)}. "
        f"Left in flight: {count(sum(told['left_in_flight'].values()))}."
    )
    return paragraphs(made_on(record), table(heads, rows), said)


def _windows(part: list[dict[str, Any]]) -> list[str]:
    sent, refused = (sum(one[key] for one in part) for key in ("sent", "refused"))
    middle = [median(inf if one[key] is None else one[key] for one in part) for key in ("p50_ms", "p95_ms")]
    errors = sum(sum(one["errors"].values()) for one in part)
    shown = [fixed(value if value < inf else None, 2) for value in middle]
    return [count(len(part)), count(sent), *shown, percent(refused / sent, 2), count(errors)]


def lanes(record: Record) -> str:
    """Medians of the rounds' ratios, by body."""
    ratios = record.data["ratios"].items()
    rows = [[name, fixed(told["median"], 2), several(told["rounds"], 2)] for name, told in ratios]
    return paragraphs(made_on(record), table(["ratio", "median", "rounds"], rows))


def prediction(record: Record, words: list[str]) -> str:
    """`errors` in a sentence; `p95`: each point that was predicted and measured; `limit`: each limit rate."""
    configured = [(row["policy"], count(row["max_batch"]), row) for row in record.data["rows"]]
    if words == ["p95"]:
        heads = ["policy", "largest batch", "requests/s", "predicted p95 ms", "client's p95 ms", "error"]
        rows = [
            [policy, batch, count(point["rate"])]
            + [fixed(point[name], 2) for name in ("predicted_ms", "client_ms")]
            + [signed(point["predicted_ms"] / point["client_ms"] - 1, 0), fixed(point["server_ms"], 2)]
            for policy, batch, row in configured
            for point in row["points"]
        ]
        return table([*heads, "server's p95 ms"], rows)
    if words == ["limit"]:
        rows = [
            [policy, batch, count(limit["predicted"]), count(limit["measured"]), _error(limit)]
            for policy, batch, limit in ((policy, batch, row["limit"]) for policy, batch, row in configured)
        ]
        return table(["policy", "largest batch", "predicted limit /s", "measured /s", "error"], rows)
    if words == ["errors"]:
        return _errors(record)
    raise UsageError(
        f"{record.name}: its parts are errors, p95 and limit, not {' '.join(words) or 'one without a name'}"
    )


def _error(limit: Row) -> str:
    return signed(limit["predicted"] / limit["measured"] - 1, 1)


def _errors(record: Record) -> str:
    rows = record.data["rows"]
    sides = []
    for side in ("client", "server"):
        found = record.data["errors"][f"{side}_ms"]
        told = f"{percent(found['median'])} at the median and {percent(found['worst'])} at worst"
        sides.append(f"{told} against what the {side} saw")
    limits = ", ".join(_error(row["limit"]) for row in rows)
    points = sum(len(row["points"]) for row in rows)
    return fill(f"{points} points: p95 is off by {', '.join(sides)}; limits by {limits}.", 120)


def tune(record: Record) -> str:
    """The three best of the grid, what was chosen, and the worst, by the median of the rounds."""
    data = record.data
    middles = {name: median(rates) for name, rates in data["limit_rates"].items()}
    grid = sorted((name for name in middles if name != data["chosen"]), key=lambda name: -middles[name])
    named = {**dict.fromkeys(grid[:3], "grid"), data["chosen"]: "chosen", grid[-1]: "grid, the worst"}
    named[grid[0]] = "grid, the best"
    rows = [
        [name, named[name], several(data["limit_rates"][name], 0), percent(middles[name] / middles[grid[0]])]
        for name in sorted(named, key=lambda name: -middles[name])
    ]
    heads = ["configuration", "", "limit rates of the rounds /s", "of the best"]
    load_tests = [trial for one in data["trials"] for trials in one.values() for trial in trials]
    void = f"{sum(trial['void'] for trial in load_tests)} of the {len(load_tests)} load tests were void."
    return paragraphs(made_on(record), table(heads, rows, words=2), void)


def foresee(record: Record) -> str:
    """Rounds of the loop beside each kind of work: a figure for each repeat."""
    rows = [
        [beside] + [several((row[name] for row in same), 0) for name in ("p50_ms", "p95_ms", "max_ms")]
        for (beside,), same in grouped(record.data["rows"], "beside").items()
    ]
    heads = ["beside the loop", "p50 of its rounds, ms", "p95 ms", "longest ms"]
    return paragraphs(made_on(record), table(heads, rows))


def margins(record: Record) -> str:
    """Medians of each kind of margin at each rate."""
    rows = [
        [kind, count(rate), count(len(same))]
        + [percent(median(trial[name] for trial in same)) for name in ("in_budget", "late_of_answered")]
        + [fixed(median(trial["p50_ms"] for trial in same), 2), count(sum(trial["void"] for trial in same))]
        for (rate, kind), same in grouped(record.data["trials"], "rate", "margins").items()
    ]
    heads = ["margins", "offered /s", "trials", "in budget", "of the answers late", "p50 ms", "void"]
    return table(heads, rows)


def load_generator(record: Record) -> str:
    """What the load test itself does at each rate."""
    rows = [
        [
            *(count(row[name]) for name in ("rate", "throughput", "p50_us", "p95_us", "own_lag_p99_us")),
            percent(row["generator_core_share"], 0),
            "yes" if row["carried"] else "no",
        ]
        for row in record.data["rates"]
    ]
    heads = ["offered /s", "answered /s", "p50 µs", "p95 µs", "own lag p99 µs", "of the core", "carried"]
    return paragraphs(made_on(record), table(heads, rows, words=0))


WHOLE: dict[str, Callable[[Record], str]] = {
    "foresee": foresee,
    "lanes": lanes,
    "load-generator": load_generator,
    "margins": margins,
    "overload": overload,
    "policies": policies,
    "quiet": quiet,
    "refusals": refusals,
    "serve": yardstick.serve,
    "soak": soak,
    "thin": thin,
    "tune": tune,
}
IN_PARTS: dict[str, Callable[[Record, list[str]], str]] = {
    "growth": growth.tables,
    "peers": goodput.peers,
    "prediction": prediction,
    "simulated-policies": simulated_policies,
}


def render(record: Record, words: list[str]) -> str:
    """By the longest kind that the record's name begins with. UsageError where there is none, or no such part."""
    found = [kind for kind in (*WHOLE, *IN_PARTS) if record.name.startswith(f"{kind}-")]
    if not found:
        raise UsageError(f"{record.name} is of no known kind: {', '.join(sorted((*WHOLE, *IN_PARTS)))}")
    kind = max(found, key=len)
    if kind in IN_PARTS:
        return IN_PARTS[kind](record, words)
    if words:
        raise UsageError(f"{record.name} is rendered whole, and has no part {' '.join(words)}")
    return WHOLE[kind](record)
