"""What a server does beyond its limit: answers in budget, when the refused learn it, and what a refusal costs.

    PYTHONPATH=src python benchmarks/bench_refusals.py served.onnx --rate 2000/s -o benchmarks/results/refusals-….json

`--rate` is the limit; it is offered once, twice, three and four times, in turn, forwards and then backwards. When a
caller learns of its refusal counts from the moment at which its request was due, by the client's clock. A refusal's CPU
is not seen by itself: where a fifth of the requests is refused, the server is as busy as it can be, so the CPU seconds
of those trials are `answers` times one figure and `refusals` times another, and least squares find both.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from live import CLIENT_CORE, SERVER_CORE, claim_core, command, cpu_seconds, keep, offer, opening, server

from onbudget.core import units
from onbudget.core.records import Hits
from onbudget.prove.load import LoadOptions

TIMES = (1, 2, 3, 4)
SHARE = 0.2  # refused, from where on the server is as busy as it can be


def seen(hits: Hits, budget_s: float, seconds: float) -> dict[str, Any]:
    """One trial's requests: answers in budget a second, shares, and when the refused learnt it, in ms."""
    good = hits.ok()
    refused = np.array([outcome.refused for outcome in hits.outcomes], np.bool_)[hits.outcome]
    told = hits.done[refused] * 1e3
    return {
        "offered": len(hits),
        "answered": int(good.sum()),
        "refused": int(refused.sum()),
        "unanswered": int(len(hits) - good.sum() - refused.sum()),
        "in_budget_rate": round(float((hits.latency() <= budget_s).sum()) / seconds, 1),
        "late_of_answered": round(float((hits.done[good] > budget_s).mean()), 5) if good.any() else None,
        "told_p50_ms": round(float(np.median(told)), 3) if told.size else None,
        "told_p95_ms": round(float(np.percentile(told, 95)), 3) if told.size else None,
        "told_after_budget": int((told > budget_s * 1e3).sum()),
    }


def costs(trials: list[dict[str, Any]]) -> dict[str, Any] | None:
    """CPU microseconds of an answer and of a refusal, with the standard error of the latter; None for too few trials.

    Of the trials in which the server refused a real share, since only there it was as busy as it can be; counts are of
    all requests sent, the warm-up's too.
    """
    busy = [one for one in trials if one["all_refused"] >= SHARE * (one["all_answered"] + one["all_refused"])]
    if len(busy) < 4:
        return None
    counts = np.array([[one["all_answered"], one["all_refused"]] for one in busy], np.float64)
    used = np.array([one["cpu_s"] for one in busy]) * 1e6
    found, *_ = np.linalg.lstsq(counts, used, rcond=None)
    spread = ((used - counts @ found) ** 2).sum() / (len(busy) - 2) * np.linalg.inv(counts.T @ counts)
    return {
        "answer_us": round(float(found[0]), 1),
        "refusal_us": round(float(found[1]), 1),
        "refusal_error_us": round(float(np.sqrt(spread[1, 1])), 1),
        "trials": len(busy),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--rate", type=units.per_second, required=True, help="the limit")
    parser.add_argument("--p95", default="25ms", help="the budget that the server is told")
    parser.add_argument("--late", default="demote", choices=("demote", "shed"))
    parser.add_argument("--seconds", type=float, default=6.0, help="of each trial")
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("-o", "--output", type=Path)
    chosen = parser.parse_args()
    claim_core()
    budget = units.seconds(chosen.p95)
    record = opening(
        "answers within the budget at and beyond the limit, when the refused learn it, and what a refusal costs",
        chosen.bundle,
        cores={"server": SERVER_CORE, "client": CLIENT_CORE},
        **{name: getattr(chosen, name) for name in ("rate", "p95", "late", "seconds")},
        costs=None,
        trials=[],
    )
    with server(chosen.bundle, "--p95", chosen.p95, "--late", chosen.late) as served:
        for repeat in range(chosen.repeats):
            for times in TIMES if repeat % 2 == 0 else TIMES[::-1]:
                before = cpu_seconds(served.pid)
                run = offer(
                    LoadOptions(
                        url=served.url(),
                        rate=times * chosen.rate,
                        duration=chosen.seconds,
                        warmup=1.0,
                        p95=budget,
                        seed=10 * repeat + times,
                    )
                )
                used = cpu_seconds(served.pid) - before
                whole = seen(run.hits, budget, chosen.seconds)
                trial = {
                    "repeat": repeat,
                    "times": times,
                    "rate": times * chosen.rate,
                    **seen(run.hits.after(1.0), budget, chosen.seconds),
                    "all_answered": whole["answered"],
                    "all_refused": whole["refused"],
                    "cpu_s": round(used, 4),
                    "lag_p99_ms": round(run.summary().lag.p99 * 1e3, 3),
                    "void": bool(run.summary().void),
                }
                record["trials"].append(trial)
                record["costs"] = costs(record["trials"])
                keep(record, chosen.output)
                print(
                    f"{repeat}  {times}×  {trial['rate']:8.1f}/s  in budget {trial['in_budget_rate']:8.1f}/s  "
                    f"late {trial['late_of_answered']}  refused {trial['refused']} after {trial['told_p50_ms']} ms"
                    f"{'  VOID' if trial['void'] else ''}",
                    flush=True,
                )
    once = median(one["in_budget_rate"] for one in record["trials"] if one["times"] == 1)
    for times in TIMES[1:]:
        rates = [one["in_budget_rate"] for one in record["trials"] if one["times"] == times]
        print(f"{times}×: {median(rates) / once:.3f} of the limit's answers in budget")
    print(record["costs"])


if __name__ == "__main__":
    command(main)
