"""The chart that matters: goodput at the budgets as a share of the bare session, ours against other servers'."""

from __future__ import annotations

from statistics import median

from onbudget.core.errors import UsageError
from rendering import yardstick
from rendering.records import Record, count, fixed, percent
from rendering.svg import Bar, bars
from rendering.yardstick import OURS, Server, bare_rate, budgets, comparable, days, times

PICTURE = "docs/images/goodput.svg"
SERIES = 2  # budgets in the chart: a third shade could not be told from the second


def chart(record: Record) -> str:
    """Servers by their share at the first budget, the highest first."""
    told = budgets(record.data["records"])[:SERIES]
    servers = comparable(record)
    runs = sorted({len(one.runs) for one in servers})
    many = "–".join(str(number) for number in dict.fromkeys((runs[0], runs[-1])))
    shown = "one run each" if runs == [1] else f"medians of {many} runs"
    return bars(
        [
            f"Goodput on one core ({record.cpu})",
            "highest rate with p95 in the budget; refusals are misses",
            f"{shown}, {' to '.join(days(record.data['records']))}",
        ],
        f"bare session = 100 % ({count(bare_rate(record))}/s)",
        [f"p95 ≤ {budget} ms" for budget in told],
        [(one.name, one.name == OURS, [_bar(one, budget) for budget in told]) for one in servers],
    )


def _bar(server: Server, budget: str) -> Bar:
    shares = server.shares(budget)
    middle = median(shares)
    mark = "~" if server.disturbed(budget) else ""
    label = f"{mark}{count(server.rate(budget))}/s · {percent(middle, 0)}"
    return Bar(middle, min(shares), max(shares), label)


def peers(record: Record, words: list[str]) -> str:
    """The table of all servers; or with the word `chart` the picture, as README shows it."""
    if words not in ([], ["chart"]):
        raise UsageError(f"{record.name}: the only word after it is chart, not {' '.join(words)}")
    return _readme(record) if words else yardstick.peers(record)


def _readme(record: Record) -> str:
    """What README shows: the picture with its words, what it is, and the command that draws it."""
    told = budgets(record.data["records"])[:SERIES]
    entries = comparable(record)
    said = [
        f"{one.name} " + " and ".join(f"{percent(median(one.shares(b)), 0)} at {b} ms" for b in told) for one in entries
    ]
    best = {budget: times(record, budget) for budget in told}
    ahead = [f"{fixed(one[0], 1)} times the best other ({one[1]}) at {b} ms" for b, one in best.items() if one]
    alt = f"Goodput as a share of the bare session on one core ({record.cpu}): {'; '.join(said)}"
    return (
        f"![{alt}]({PICTURE})\n\n"
        f"The highest rate with p95 in the budget and under 1 % refused, beside `session.run` alone on the same core"
        f"{': ' + ', '.join(ahead) if ahead else ''}.\n"
        f"`make figures` draws it from [{record.name}.json](benchmarks/results/{record.name}.json); "
        "[how, and why to distrust it](benchmarks/README.md#how-servers-were-measured)."
    )
