"""What a server adds to one request when little is asked of it: its p95 at 20 requests/s against the bare session's.

    PYTHONPATH=src python benchmarks/bench_quiet.py served.onnx -o benchmarks/results/quiet-….json

All are asked at the moments of one Poisson schedule, on the same core, and sleep between them, so that all are cold.
`bare` is `session.run` of one item, with the server's session options, timed around the call. `json` and `octet` are
served, and timed by the load test from the moment at which a request was due to its last byte. `least` is timed like
those, and is a server that answers without looking (of `bench_load.py`): what two wake-ups and a socket cost by
themselves, whoever serves. Rounds go through the four forwards, then backwards. What is judged is the difference of the
medians of the rounds' p95, served less bare: at most 1 ms is the aim. A round in which whoever asked was itself late is
kept and does not count, by the load test's own rule, which is the bare session's too.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import bench_load
from bodies import contract
from live import CLIENT_CORE, SERVER_CORE, claim_core, command, keep, opening, server, trial

from onbudget.core import units
from onbudget.core.histogram import percentile
from onbudget.core.summary import allowed_lag, judge_lag
from onbudget.core.tasks import task_of
from onbudget.engine.children import on_cores
from onbudget.engine.session import SessionOptions, example, load_runner
from onbudget.prove.arrivals import poisson

KINDS = ("bare", "least", "json", "octet")


class Bare:
    """The session by itself, with items like those that the load test sends."""

    def __init__(self, bundle: Path, threads: int) -> None:
        self._runner = load_runner(bundle, SessionOptions(threads=threads))
        self._outputs = task_of(self._runner.metadata, {port.name: port.shape for port in self._runner.outputs}).outputs
        self._feeds = [{port.name: example(port, 1, seed) for port in self._runner.inputs} for seed in range(64)]

    def round(self, rate: float, seconds: float, seed: int, budget_s: float) -> dict[str, Any]:
        """One run at each moment of the schedule, on the server's core; the first second is not judged."""
        schedule, took, lags = poisson(rate, seconds, 1.0, seed), [], []
        with on_cores({SERVER_CORE}):
            start = time.perf_counter()
            for number, due in enumerate(schedule.offsets):
                time.sleep(max(0.0, start + due - time.perf_counter()))
                began = time.perf_counter()
                self._runner.run(self._feeds[number % len(self._feeds)], self._outputs)
                if due >= schedule.warmup_s:
                    took.append(time.perf_counter() - began)
                    lags.append(began - start - due)
        p50, p95 = (round(percentile(took, q) * 1e3, 4) for q in (50, 95))
        lag, late = percentile(lags, 99), judge_lag(lags, allowed_lag(budget_s, p50))
        return {
            "p50_ms": p50,
            "p95_ms": p95,
            "offered": len(took),
            "lag_p99_ms": round(lag * 1e3, 3),
            "void": bool(late),
        }


@contextmanager
def least() -> Iterator[str]:
    """The server that answers without looking, on the server's core → its address."""
    command = [sys.executable, bench_load.__file__, "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/"
        finally:
            process.kill()


def judged(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of the sound rounds of each kind, and what the served ones add to bare, in ms."""
    told: dict[str, Any] = {}
    for kind in KINDS:
        mine = [one for one in rounds if one["kind"] == kind and not one["void"]]
        if mine:
            told[kind] = {name: round(median(one[name] for one in mine), 4) for name in ("p50_ms", "p95_ms")}
            told[kind]["rounds"] = len(mine)
    for kind in ("json", "octet"):
        if kind in told and "bare" in told:
            told[kind]["added_p50_ms"] = round(told[kind]["p50_ms"] - told["bare"]["p50_ms"], 4)
            told[kind]["added_p95_ms"] = round(told[kind]["p95_ms"] - told["bare"]["p95_ms"], 4)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--rate", type=units.per_second, default="20/s")
    parser.add_argument("--seconds", type=float, default=12.0, help="of each round")
    parser.add_argument("--rounds", type=int, default=6, help="of each kind")
    parser.add_argument("--p95", default="25ms", help="the budget that the server is told")
    parser.add_argument("--threads", type=int, default=1, help="of both sessions")
    parser.add_argument("-o", "--output", type=Path)
    chosen = parser.parse_args()
    claim_core()
    record = opening(
        "p50 and p95 at few requests a second, ms: the bare session's run of one item, and a server's answer",
        chosen.bundle,
        cores={"server and bare session": SERVER_CORE, "client": CLIENT_CORE},
        rate=chosen.rate,
        seconds_a_round=chosen.seconds,
        p95=chosen.p95,
        threads=chosen.threads,
        medians={},
        rounds=[],
    )
    bare, rounds, budget = Bare(chosen.bundle, chosen.threads), record["rounds"], units.seconds(chosen.p95)
    with ExitStack() as stack:
        body = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "body.bin"
        body.write_bytes(bytes(contract(chosen.bundle).row_bytes))
        served = stack.enter_context(server(chosen.bundle, "--p95", chosen.p95, "--threads", str(chosen.threads)))
        url, nothing = served.url(), stack.enter_context(least())
        for number in range(chosen.rounds):
            for kind in KINDS if number % 2 == 0 else KINDS[::-1]:
                if kind == "bare":
                    found = bare.round(chosen.rate, chosen.seconds, number, budget)
                elif kind == "least":
                    found = trial(nothing, chosen.rate, chosen.seconds, budget, seed=number, body=str(body)).told()
                else:
                    found = trial(url, chosen.rate, chosen.seconds, budget, form=kind, seed=number).told()
                rounds.append({"kind": kind, "round": number, **found})
                print(
                    f"{number}  {kind:6}  p50 {found['p50_ms']} ms  p95 {found['p95_ms']} ms  "
                    f"lag {found['lag_p99_ms']} ms{'  VOID' if found['void'] else ''}",
                    flush=True,
                )
                record["medians"] = judged(rounds)
                keep(record, chosen.output)
    for kind, told in record["medians"].items():
        print(f"{kind:6}  {told}")


if __name__ == "__main__":
    command(main)
