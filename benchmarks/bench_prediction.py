"""How far predictions are from load tests: p95 at shares of the limit, and the limit itself, by configuration.

Each configuration is served on one core and loaded from the other, open loop, Poisson, JSON bodies. It is calibrated by
a few seconds of load at one rate, whose overheads and costs `/status` tells; then p95 at 0.3, 0.5 and 0.7 of the
predicted limit, and the limit, are measured at once, in the same minutes. No figure of these is fitted.

    PYTHONPATH=src:benchmarks python benchmarks/bench_prediction.py served.onnx -o results/prediction-….json
"""

from __future__ import annotations

import argparse
import json
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from live import Trial, claim_core, command, server, trial

from onbudget.core.bracket import limit_of
from onbudget.core.cost import Cost
from onbudget.core.forecast import GOODPUT, Forecast
from onbudget.core.overheads import Overheads
from onbudget.core.plan import Configuration

CONFIGURATIONS = (("greedy", 8), ("deadline", 16), ("greedy", 16), ("greedy", 4))
SHARES = (0.3, 0.5, 0.7)
AROUND = (0.84, 0.92, 1.0, 1.08, 1.16, 1.24)
WINDOW = 10  # seconds: the shortest of /status


def steady(url: str, rate: float, seconds: float, budget: float, seed: int) -> Trial:
    """A trial that the generator could drive: a void one is repeated, twice at most."""
    for _ in range(3):
        seen = trial(url, rate, seconds, budget, seed=seed)
        if not seen.void:
            break
    return seen


def typical(url: str, rate: float, seconds: float, budget: float) -> Trial:
    """A trial; where it fails, the median of three by the share in budget, because one stall of the host fails one."""
    tried = [steady(url, rate, seconds, budget, 7)]
    if tried[0].in_budget < 0.95 or tried[0].refused > GOODPUT:
        tried += [steady(url, rate, seconds, budget, seed) for seed in (8, 9)]
    return sorted(tried, key=lambda one: one.in_budget)[len(tried) // 2]


def status(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/status", timeout=10) as answer:  # noqa: S310 - our own server
        told: dict[str, Any] = json.load(answer)
    return told


def calibrated(url: str, rate: float, seconds: float, budget: float) -> tuple[Forecast, dict[str, Any]]:
    """The forecast of a running server after one short load."""
    trial(url, rate, seconds, budget)
    status(url)  # has the limit predicted
    time.sleep(1.5)
    told = status(url)
    costs, over, limits = told["cost"], told["overheads"], told["limits"]
    scale = costs["cpu_factor"] * costs["wait_factor"]
    runs = {int(batch): ms / 1e3 / scale for batch, ms in costs["run_ms"].items()}
    made = Forecast(
        cost=Cost.of(runs).scaled(over["run_factor"]),
        overheads=Overheads(*(over[f"{name}_ms"] / 1e3 for name in ("accept", "refuse", "batch"))),
        configuration=Configuration(limits["lanes"], limits["threads"], limits["max_batch"], told["policy"]),
        budget_s=budget,
        inline=limits["inline"],
    )
    return made, told


def measured(bundle: Path, policy: str, most: int, options: argparse.Namespace) -> dict[str, Any]:
    """One configuration: its calibration, points and limit."""
    budget = options.p95 / 1e3
    flags = ("--p95", f"{options.p95}ms", "--policy", policy, "--max-batch", str(most))
    with server(bundle, *flags) as running:
        url = running.url()
        time.sleep(1.0)
        made, told = calibrated(url, options.rate, options.seconds, budget)
        predicted = told["predicted_limit_rate"]
        points = []
        for share in SHARES:
            rate = round(share * predicted, 1)
            seen = steady(url, rate, WINDOW, budget, len(points) + 1)
            inside = status(url)["windows"][0]
            assert inside["window_s"] == WINDOW
            points.append(
                {
                    "rate": rate,
                    "share": share,
                    "predicted_ms": round(made.p95(rate) * 1e3, 4),
                    "server_ms": inside["latency"]["p95_ms"],
                    "client_ms": seen.p95_ms,
                    "trial": seen.told(),
                }
            )
            print(policy, most, {k: v for k, v in points[-1].items() if k != "trial"}, flush=True)
        trials = []
        for share in AROUND:
            trials.append(typical(url, share * predicted, options.seconds, budget))
            if trials[-1].in_budget < 0.9 or trials[-1].refused > 0.05:
                break
        found = limit_of(trials)
    print(policy, most, "limit", predicted, found, told["overheads"], flush=True)
    return {
        "policy": policy,
        "max_batch": told["limits"]["max_batch"],
        "inline": told["limits"]["inline"],
        "calibration": {name: told[name] for name in ("overheads", "cost", "windows")},
        "points": points,
        "limit": {"predicted": predicted, "measured": found, "trials": [one.told() for one in trials]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--p95", type=float, default=25, help="ms")
    parser.add_argument("--rate", type=float, default=1500, help="of the calibration, requests a second")
    parser.add_argument("--seconds", type=float, default=4, help="of the calibration, and of each trial at the limit")
    parser.add_argument("--configurations", type=int, default=len(CONFIGURATIONS))
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    claim_core()
    rows = [measured(options.bundle, *one, options) for one in CONFIGURATIONS[: options.configurations]]
    points = [point for row in rows for point in row["points"]]
    errors = {side: [p["predicted_ms"] / p[side] - 1 for p in points] for side in ("server_ms", "client_ms")}
    limits = [row["limit"]["predicted"] / row["limit"]["measured"] - 1 for row in rows]
    record = {
        "what": "predicted against measured p95 and limit rate; errors are shares of what was measured",
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "p95_ms": options.p95,
        "calibration_rate": options.rate,
        "errors": {
            side: {"median": round(median(map(abs, e)), 4), "worst": round(max(map(abs, e)), 4)}
            for side, e in errors.items()
        }
        | {"limit_rate": [round(e, 4) for e in limits]},
        "rows": rows,
    }
    print(json.dumps(record["errors"]))
    if options.output:
        partial = options.output.with_suffix(".partial")
        partial.write_text(json.dumps(record, indent=1) + "\n")
        partial.replace(options.output)


if __name__ == "__main__":
    command(main)
