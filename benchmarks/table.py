"""Print the tables of README.md beside this from the records in results: python benchmarks/table.py [FILE…]."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent


def table(path: Path) -> str:
    """One server's records → a Markdown table: each run, and the medians."""
    data = json.loads(path.read_text())
    machine, rows = data["machine"], [_row(record) for record in data["records"]]
    names = list(rows[0])
    middle = {name: median(row[name] for row in rows) for name in names}
    lines = [
        f"### {path.name}",
        "",
        f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, Python {machine['python']}.",
        "",
        "| run | " + " | ".join(names) + " |",
        "|---|" + "---:|" * len(names),
    ]
    for number, row in enumerate(rows, 1):
        lines.append(f"| {number} | " + " | ".join(f"{value:g}" for value in row.values()) + " |")
    lines.append("| median | " + " | ".join(f"**{value:g}**" for value in middle.values()) + " |")
    return "\n".join(lines)


def _row(record: dict[str, Any]) -> dict[str, float]:
    row = {"bare items/s": record["physical"]["best"]}
    for budget, goodput in record["goodput"].items():
        row[f"goodput {budget} ms /s"] = round(goodput["rate"])
        row[f"of bare {budget} ms %"] = round(100 * goodput["ratio"], 1)
    overload = record["overload"]
    row["2× overload: in budget /s"] = round(overload["in_budget_rate"])
    row["quiet p50 ms"], row["quiet p95 ms"] = record["quiet"]["p50"], record["quiet"]["p95"]
    row["cold start s"], row["memory MB"] = record["cold_s"], record["rss_mb"]
    return row


if __name__ == "__main__":
    files = [Path(name) for name in sys.argv[1:]] or sorted((HERE / "results").glob("serve-*.json"))
    print("\n\n".join(table(path) for path in files))
