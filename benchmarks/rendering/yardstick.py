"""Records of the yardstick, which measures any server from outside: what each server did in each run, and medians.

Its file: `machine`; `records`, each one run of one server (`peer`) with one form of body; and perhaps `notes`, `failed`
(server → why there is no figure) and `versions` (server → what was installed).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from onbudget.core.errors import RecordError
from rendering.records import Record, count, fixed, made_on, paragraphs, percent, several, table

OURS = "onbudget"
FOREIGN, STEAL = 0.10, 0.03  # the yardstick's own bounds: a trial with more of others' work on its core was disturbed
DISTURBED = 0.2  # and a figure of which more than this share of the trials was, is marked
ENOUGH = 3  # runs that are worth a median

Run = dict[str, Any]


def middle(values: list[float | None]) -> float | None:
    """The median of those runs that have the figure."""
    there = [value for value in values if value is not None]
    return median(there) if there else None


@dataclass(frozen=True)
class Server:
    """All runs of one server with one form of body."""

    name: str
    form: str
    runs: list[Run]

    def of(self, figure: Callable[[Run], float | None]) -> float | None:
        return middle([figure(run) for run in self.runs])

    def rate(self, budget: str) -> float:
        """Goodput, requests/s."""
        return median(rate(run, budget) for run in self.runs)

    def shares(self, budget: str) -> list[float]:
        """Of each run, goodput over what the bare session did in the same record."""
        return [share(run, budget) for run in self.runs]

    def disturbed(self, budget: str) -> bool:
        trials = [t for run in self.runs for t in run["trials"] if f"{t['budget_ms']:g}" == budget]
        bad = sum(t["foreign"] >= FOREIGN or t["steal"] >= STEAL for t in trials)
        return bad > DISTURBED * len(trials)


def rate(run: Run, budget: str) -> float:
    return float(run["goodput"][budget]["rate"])


def share(run: Run, budget: str) -> float:
    return float(run["goodput"][budget]["ratio"])


def bare(run: Run) -> float:
    return float(run["physical"]["best"])


def in_budget(run: Run) -> float | None:
    """Answers a second within the first budget at twice the goodput; None where there was no goodput to double."""
    return run["overload"]["in_budget_rate"] if "overload" in run else None


def kept(run: Run) -> float | None:
    there = in_budget(run)
    return None if there is None else there / rate(run, budgets([run])[0])


def turned_away(run: Run) -> float | None:
    over = run.get("overload")
    return None if over is None else (over["errors"] + over["rejected"]) / over["n"]


def budgets(runs: list[Run]) -> list[str]:
    """In ms, the first being the one that servers are told and overload is measured with; the same in all runs."""
    every = {tuple(run["goodput"]) for run in runs}
    if len(every) != 1:
        raise RecordError(f"runs with different budgets are not comparable: {sorted(every)}")
    return list(every.pop())


def servers(record: Record) -> list[Server]:
    """By goodput at the first budget over bare, the highest first."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in record.data["records"]:
        groups.setdefault((run["peer"], run["format"]), []).append(run)
    found = [Server(name, form, runs) for (name, form), runs in groups.items()]
    first = budgets(record.data["records"])[0]
    return sorted(found, key=lambda one: (-median(one.shares(first)), one.name, one.form))


def comparable(record: Record) -> list[Server]:
    """One entry a server: the form of body that most of them take, or the one that it takes instead."""
    every = servers(record)
    forms = [one.form for one in every]
    usual = max(sorted(set(forms)), key=forms.count)
    best: dict[str, Server] = {}
    for one in every:
        if one.name not in best or one.form == usual:
            best[one.name] = one
    return [one for one in every if best[one.name] is one]


def times(record: Record, budget: str) -> tuple[float, str] | None:
    """(our goodput over the highest of the others, its name); None without both."""
    entries = comparable(record)
    ours = [one.rate(budget) for one in entries if one.name == OURS]
    others = [(one.rate(budget), one.name) for one in entries if one.name != OURS]
    if not ours or not others or max(others)[0] == 0:
        return None
    highest, name = max(others)
    return ours[0] / highest, name


def bare_rate(record: Record) -> float:
    """Median over all runs of what `session.run` alone sustained, items/s."""
    return median(bare(run) for run in record.data["records"])


# ---- tables ---------------------------------------------------------------------------------------------------------


def serve(record: Record) -> str:
    """One server's own record: a row a run, and medians where there are enough of them."""
    runs = record.data["records"]
    told = budgets(runs)
    heads = ["run", "bare items/s"]
    for budget in told:
        heads += [f"goodput {budget} ms /s", "of bare"]
    heads += ["2× overload: in budget /s", "of goodput", "quiet p50, p95 ms", "cold start s", "memory MB"]
    rows = [_row(str(number), Server(run["peer"], run["format"], [run])) for number, run in enumerate(runs, 1)]
    if len(runs) >= ENOUGH:
        bold = _row("median", Server("", "", runs))
        rows.append([bold[0], *(f"**{cell}**" for cell in bold[1:])])
    return paragraphs(made_on(record), table(heads, rows))


def _row(name: str, of: Server) -> list[str]:
    row = [name, count(of.of(bare))]
    for budget in budgets(of.runs):
        mark = "~" if of.disturbed(budget) else ""
        row += [mark + count(of.rate(budget)), percent(median(of.shares(budget)))]
    quiet = [of.of(lambda run, p=p: run["quiet"][p]) for p in ("p50", "p95")]  # type: ignore[misc]  # bound at once
    row += [count(of.of(in_budget)), percent(of.of(kept), 0), several(quiet, 2)]
    return [*row, fixed(of.of(lambda run: run["cold_s"]), 2), count(of.of(lambda run: run["rss_mb"]))]


def peers(record: Record) -> str:
    """All servers of one record side by side, under the file's name."""
    runs = record.data["records"]
    told = budgets(runs)
    heads = ["server", "body", "runs", "bare items/s"]
    for budget in told:
        heads += [f"goodput {budget} ms /s", "of bare"]
    heads += ["2× overload: in budget /s", "of goodput", "errors, refused"]
    heads += ["quiet p50, p95 ms", "cold start s", "memory MB"]
    rows = []
    for one in servers(record):
        cells = _row(one.name, one)
        away = percent(one.of(turned_away), 0)
        cells = [f"**{one.name}**" if one.name == OURS else one.name, f"`{one.form}`", str(len(one.runs)), *cells[1:]]
        rows.append([*cells[:-3], away, *cells[-3:]])
    return paragraphs(
        f"### {record.name}.json",
        f"{made_on(record)}\nMeasured in turn on {span(runs)}; rows are medians over the runs of a server. "
        "`~` marks a figure of which more than a fifth of the trials were disturbed by other programs or the host.",
        table(heads, rows, words=2),
        _ratios(record, told),
        _told(record),
    )


def span(runs: list[Run]) -> str:
    """From the first run's moment to the last one's, by the clock of the machine."""
    first, last = (one(run["when"] for run in runs) for one in (min, max))
    day = first[:10]
    return f"{day} from {first[11:16]} to {last[11:16] if last[:10] == day else last[:16].replace('T', ' ')}"


def days(runs: list[Run]) -> list[str]:
    """The first day and, where it is another one, the last."""
    every = sorted(run["when"][:10] for run in runs)
    return list(dict.fromkeys((every[0], every[-1])))


def _ratios(record: Record, told: list[str]) -> str:
    found = {budget: times(record, budget) for budget in told}
    said = [f"{fixed(one[0], 2)} times that of {one[1]} at {b} ms" for b, one in found.items() if one]
    return f"The goodput of {OURS} over the highest of the others: {', '.join(said)}." if said else ""


def _told(record: Record) -> str:
    """What else the record says of itself: versions, settings, notes, and what was not measured."""
    data = record.data
    lines = []
    for one in servers(record):
        setting = ", ".join(f"{name}={value}" for name, value in one.runs[-1]["variant"].items())
        about = [data.get("versions", {}).get(one.name, "version not recorded"), setting, one.runs[-1]["note"]]
        lines.append(f"* {one.name} (`{one.form}`): {'; '.join(part for part in about if part)}")
    lines += [f"* {note}" for note in data.get("notes", [])]
    lines += [f"* not measured: {name}: {why}" for name, why in data["failed"].items()]
    return "\n".join(lines)
