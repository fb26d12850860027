"""Whether `onbudget tune` finds what a grid of load tests finds, and how long it takes.

    python benchmarks/bench_tune.py served.onnx --p95 25ms -o results/tune-….json

The server has one core and the load the other. `tune` runs first. Then every configuration of the grid is served, all
at once, and looks for its limit rate by load tests in turns; so do the one that was chosen, and in the same minutes.
What is compared are medians over the repeats, each a search of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from live import CLIENT_CORE, SERVER_CORE, Trial, claim_core, command, server, trial

from onbudget.core import units
from onbudget.core.bracket import limit_of, next_rate
from onbudget.core.plan import Configuration, parse
from onbudget.engine.machine import facts

BATCHES = (1, 2, 4, 8, 16, 32)
GRID = tuple(
    Configuration(lanes, 1, most, how)
    for lanes, how, most in itertools.product((1, 2), ("deadline", "greedy"), BATCHES)
)


def tuned(bundle: Path, chosen: argparse.Namespace) -> tuple[dict[str, Any], float]:
    """The plan of one whole run of the command, and what it took."""
    flags = ("--p95", chosen.p95, "--cores", "1", "--format", chosen.format, "--json")
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "onbudget", "tune", str(bundle), *flags], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout), time.monotonic() - began


def searched(
    bundle: Path, configurations: list[Configuration], chosen: argparse.Namespace, guess: float, seed: int
) -> dict[Configuration, list[Trial]]:
    """The load tests of one search for each configuration, in turns."""
    budget = units.seconds(chosen.p95)
    found: dict[Configuration, list[Trial]] = {one: [] for one in configurations}
    with contextlib.ExitStack() as stack:
        urls = {}
        for one in configurations:
            flags = [f"--{name.replace('_', '-')}={getattr(one, name)}" for name in one.__slots__]
            urls[one] = stack.enter_context(server(bundle, "--p95", chosen.p95, *flags)).url()
        for step in range(chosen.steps):
            for one in configurations if (step + seed) % 2 else configurations[::-1]:
                rate = next_rate(found[one], guess)
                last = trial(urls[one], rate, chosen.seconds, budget, form=chosen.format, seed=seed * 10 + step)
                found[one].append(last)
                print(
                    f"{one!s:48} {rate:8.0f}/s  in budget {last.in_budget:.3f}  refused {last.refused:.3f}", flush=True
                )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--p95", default="25ms")
    parser.add_argument("--format", default="json")
    parser.add_argument("--seconds", type=float, default=2.5, help="of each load test")
    parser.add_argument("--steps", type=int, default=4, help="load tests in a search")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path)
    chosen = parser.parse_args()
    plan, took = tuned(chosen.bundle, chosen)
    picked = parse(json.dumps(plan), "plan")
    print(f"tune took {took:.1f} s and chose {picked.chosen}: {picked.choice.measured_limit:.0f}/s", flush=True)
    claim_core()
    every = list(dict.fromkeys([picked.chosen, *GRID]))
    rounds = [
        searched(chosen.bundle, every, chosen, picked.choice.measured_limit or picked.limit_rate, seed)
        for seed in range(1, chosen.repeats + 1)
    ]
    limits = {one: [limit_of(found[one]) for found in rounds] for one in every}
    best = max(GRID, key=lambda one: median(limits[one]))
    share = median(limits[picked.chosen]) / median(limits[best])
    record = {
        "what": "the configuration that tune chose against a grid, by limit rates measured live in the same minutes",
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": facts(),
        "cores": {"server": SERVER_CORE, "client": CLIENT_CORE},
        "p95": chosen.p95,
        "format": chosen.format,
        "tune_s": round(took, 1),
        "chosen": str(picked.chosen),
        "best_of_grid": str(best),
        "chosen_over_best": round(share, 4),
        "limit_rates": {str(one): [round(rate, 1) for rate in rates] for one, rates in limits.items()},
        "trials": [{str(one): [t.told() for t in found[one]] for one in every} for found in rounds],
        "plan": plan,
    }
    print(f"best of the grid: {best}, {median(limits[best]):.0f}/s; chosen: {share:.1%} of it")
    if chosen.output:
        partial = chosen.output.with_suffix(".partial")
        partial.write_text(json.dumps(record, indent=1) + "\n")
        partial.replace(chosen.output)


if __name__ == "__main__":
    command(main)
