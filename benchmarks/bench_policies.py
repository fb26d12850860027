"""The policies on a real server, side by side: how high a rate each holds a budget at.

    python benchmarks/bench_policies.py BUNDLE --l1 15ms --budgets 5,10,20 --capacity 66/s -o FILE.json

One server a policy on core 0, all up at once and only one of them loaded at a time, from core 1. At each rate the
policies take turns, in an order that rotates, with the same arrivals; so drift of the machine hits all alike. The limit
of a policy is where its share in budget falls to 95 %, a refusal being a miss (`core.bracket`), told for each repeat
and compared in pairs, repeat by repeat. `--budgets` are in multiples of `--l1`, or durations.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from live import Trial, claim_core, command, server, trial

from onbudget.core import units
from onbudget.core.bracket import limit_of
from onbudget.engine.machine import facts

POLICIES = {
    "deadline, shed": ("--policy", "deadline", "--late", "shed"),
    "deadline, demote": ("--policy", "deadline", "--late", "demote"),
    "greedy": ("--policy", "greedy"),
    "timer": ("--policy", "timer"),
}
LADDER = (0.3, 0.45, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1)  # of the capacity
OVERLOAD = 1.5


def flags_of(policy: str, budget_s: float) -> tuple[str, ...]:
    """A policy's server; the timer waits a quarter of the budget, as in the simulation."""
    told = (*POLICIES[policy], "--p95", f"{budget_s}s")
    return (*told, "--max-wait", f"{budget_s / 4}s") if policy == "timer" else told


def one_budget(bundle: Path, budget_s: float, chosen: argparse.Namespace, repeat: int) -> dict[str, list[Trial]]:
    """Every policy up the ladder once, and at overload; a policy stops climbing after two rates that it failed."""
    trials: dict[str, list[Trial]] = {policy: [] for policy in chosen.policies}
    with contextlib.ExitStack() as stack:
        urls = {}
        for policy in trials:
            urls[policy] = stack.enter_context(server(bundle, *flags_of(policy, budget_s))).url()
        for step, part in enumerate((*chosen.ladder, OVERLOAD)):
            order = list(trials)
            turn = (step + repeat) % len(order)
            for policy in order[turn:] + order[:turn]:
                lost = [one.in_budget < 0.95 for one in trials[policy][-2:]]
                if part != OVERLOAD and lost == [True, True]:
                    continue
                rate = part * chosen.capacity
                found = trial(urls[policy], rate, chosen.seconds, budget_s, form=chosen.format, seed=97 * repeat + step)
                trials[policy].append(found)
                print(
                    f"{budget_s * 1e3:6.1f} ms  {policy:17} {rate:8.1f}/s  in budget {found.in_budget:.3f}  "
                    f"late {found.late:.3f}  refused {found.refused:.3f}{'  VOID' if found.void else ''}",
                    flush=True,
                )
    return trials


def judged(repeats: list[dict[str, list[Trial]]]) -> dict[str, Any]:
    """Limits of each policy in each repeat, their medians, and the share in budget at overload."""
    told = {}
    for policy in repeats[0]:
        climbs = [repeat[policy][:-1] for repeat in repeats]
        limits, strict = [limit_of(c, most_refused=1.0) for c in climbs], [limit_of(c) for c in climbs]
        told[policy] = {
            "limit_rate": round(median(limits), 1),
            "limit_rates": [round(rate, 1) for rate in limits],
            "limit_rate_1_percent_refused": round(median(strict), 1),
            "limit_rates_1_percent_refused": [round(rate, 1) for rate in strict],
            "in_budget_at_overload": round(median(repeat[policy][-1].in_budget for repeat in repeats), 4),
        }
    return told


def main() -> None:
    """Measure; with -o keep the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--l1", type=units.seconds, required=True, help="a run of one item on this machine, e.g. 15ms")
    parser.add_argument("--capacity", type=units.per_second, required=True, help="requests a second on one core")
    parser.add_argument("--budgets", default="5,10,20", help="multiples of --l1, or durations such as 25ms")
    parser.add_argument("--policies", default=";".join(POLICIES), type=lambda text: text.split(";"))
    parser.add_argument("--ladder", default=LADDER, type=lambda text: tuple(map(float, text.split(","))))
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--format", default="octet")
    parser.add_argument("-o", "--output", type=Path)
    chosen = parser.parse_args()
    claim_core()
    budgets = [
        units.seconds(text) if text.endswith("s") else float(text) * chosen.l1 for text in chosen.budgets.split(",")
    ]
    record: dict[str, Any] = {
        "what": "the highest rate (requests/s) at which each policy holds a budget, on a live server on one core",
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "bundle": chosen.bundle.name,
        "machine": facts(),
        "l1_ms": chosen.l1 * 1e3,
        "capacity": chosen.capacity,
        "seconds_a_trial": chosen.seconds,
        "overload": OVERLOAD,
        "budgets": [],
    }
    for budget_s in budgets:
        repeats = [one_budget(chosen.bundle, budget_s, chosen, repeat) for repeat in range(chosen.repeats)]
        told = judged(repeats)
        print(json.dumps(told, indent=1))
        record["budgets"].append(
            {
                "budget_ms": budget_s * 1e3,
                "policies": told,
                "trials": [{p: [one.told() for one in climbs] for p, climbs in repeat.items()} for repeat in repeats],
            }
        )
        if chosen.output:
            part = chosen.output.with_suffix(".part")
            part.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
            part.replace(chosen.output)


if __name__ == "__main__":
    command(main)
