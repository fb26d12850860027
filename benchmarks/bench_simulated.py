"""The highest rate that each policy carries within a budget, simulated: virtual time, the server's own policy objects.

    python benchmarks/bench_simulated.py [--requests 30000] [--curve A,K] [--noise NAME] [--policy NAME]...
                                         [-o benchmarks/results/NAME.json]

A run of b items takes a + k·b ms, exactly and with noise; arrivals are Poisson, the same for every policy, five seeds,
medians; the first 2,000 requests are not judged. The budget D is 5, 10 and 20 times L(1), and the largest batch is the
largest whose run takes no more than D. The curve 0,40 is a model of 40 ms that no batch makes cheaper, at 250 ms.
Two limits: with every refusal counted as a miss, and that with at most 1 % refused as well (what is called goodput in
this repository). The timer is this repository's: a free lane waits up to D/4 for its batch to fill.
"""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from onbudget.core.cost import Cost, Online
from onbudget.core.deadline import Deadline
from onbudget.core.outcome import Outcome, limit_rate
from onbudget.core.plant import Noise, Plant
from onbudget.core.policy import Greedy, Policy, Timer
from onbudget.core.simulate import simulate
from onbudget.core.traffic import poisson

BUDGETS = (5.0, 10.0, 20.0)
CURVES = {(0.3, 0.2): BUDGETS, (2.0, 1.0): BUDGETS, (8.0, 6.0): BUDGETS, (0.1, 2.0): BUDGETS, (0.0, 40.0): (6.25,)}
POLICIES = ("deadline, demote", "deadline, shed", "greedy", "timer")
NOISES = {"none": Noise(), "10 % + 1 % triple": Noise(jitter=0.1, rare=0.01, longer=3.0)}
SEEDS = (1, 2, 3, 4, 5)
WARM = 2000
MOST = 64


def made(name: str, most: int, budget: float, cost: Cost) -> Policy:
    if name.startswith("deadline"):
        return Deadline(most, budget, Online(cost), demote=name == "deadline, demote")
    return Greedy(most) if name == "greedy" else Timer(most, budget / 4)


def shares(name: str, plant: Plant, budget: float, requests: int) -> dict[str, Any]:
    """The two limits and what is answered in time at 1.5 times the capacity, as shares of the capacity."""
    cost = plant.cost
    most = cost.best_batch(MOST) if cost.best_batch(MOST) == 1 else cost.largest_within(budget, MOST)
    capacity = cost.capacity(most)
    found: dict[str, list[float]] = {"limit": [], "limit, 1 % refused": [], "overload": []}
    late = []
    for seed in SEEDS:

        def run(rate: float, seed: int = seed) -> Outcome:
            arrivals = poisson(rate, requests / rate, seed)
            policy = made(name, most, budget, cost)
            return simulate(policy, plant, arrivals, budget, warmup_s=WARM / rate, seed=seed)

        found["limit"].append(limit_rate(run, 1.1 * capacity) / capacity)
        found["limit, 1 % refused"].append(limit_rate(run, 1.1 * capacity, most_unanswered=0.01) / capacity)
        over = run(1.5 * capacity)
        found["overload"].append(over.rate / capacity)
        late.append(over.late_share)
    row: dict[str, Any] = {"max_batch": most, "capacity_per_s": round(capacity, 2)}
    row |= {key: {"median": round(median(v), 3), "each": [round(x, 3) for x in v]} for key, v in found.items()}
    return row | {"overload, late of answered": round(median(late), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=30_000)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--curve", help="only this one, such as 2,1")
    parser.add_argument("--noise", choices=NOISES)
    parser.add_argument("--policy", choices=POLICIES, action="append")
    options = parser.parse_args()
    rows = []
    for (a, k), budgets in CURVES.items():
        if options.curve and tuple(map(float, options.curve.split(","))) != (a, k):
            continue
        cost = Cost.of({b: (a + k * b) / 1e3 for b in (1, MOST)})
        for times in budgets:
            budget = times * cost.seconds(1)
            for noise, law in NOISES.items():
                if options.noise not in (None, noise):
                    continue
                for name in options.policy or POLICIES:
                    row = shares(name, Plant(cost, noise=law), budget, options.requests)
                    rows.append({"a_ms": a, "k_ms": k, "budget_in_l1": times, "noise": noise, "policy": name} | row)
                    limits = f"{row['limit']['median']:.3f} {row['limit, 1 % refused']['median']:.3f}"
                    print(a, k, times, noise, name, limits, f"{row['overload']['median']:.3f}", flush=True)
    record = {
        "what": "shares of the capacity at the largest batch; medians over seeds",
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "requests": options.requests,
        "warm-up requests": WARM,
        "seeds": list(SEEDS),
        "rows": rows,
    }
    if options.output:
        partial = options.output.with_suffix(".partial")
        partial.write_text(json.dumps(record, indent=1) + "\n")
        partial.replace(options.output)


if __name__ == "__main__":
    main()
