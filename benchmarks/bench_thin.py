"""How much of a core the model gets: the bare session, a server that does nothing else (`thin.py`), and ours.

    PYTHONPATH=src python benchmarks/bench_thin.py served.onnx -o benchmarks/results/thin-….json

All have one core, batches of the same size and the same items, in turn, forwards and then backwards. Both servers get
JSON with one item from a few connections that are always busy: so each batch is full, and nobody has to be refused.
What is judged is items a second as a share of the bare session's in the same round, and the CPU of an answer. `thin` is
about the most that a server in Python can have; what ours has less is what its checks, policy, limits and metrics cost.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import thin
from bodies import contract, several, shape
from live import CLIENT_CORE, SERVER_CORE, claim_core, command, cpu_seconds, keep, opening, ratios, server, trial

from onbudget.core import units
from onbudget.core.errors import TargetError
from onbudget.engine.children import on_cores
from onbudget.engine.session import SessionOptions, example, load_runner

ARMS = ("bare", "thin", "ours")
WARM_S = 0.3


def bare(bundle: Path, batch: int, seconds: float) -> dict[str, Any]:
    """Full batches in one thread of this process, on the server's core."""
    runner = load_runner(bundle, SessionOptions())
    outputs = [runner.metadata.output] if runner.metadata else None
    feeds = [{port.name: example(port, batch, seed) for port in runner.inputs} for seed in range(64)]
    with on_cores({SERVER_CORE}):
        for length in (WARM_S, seconds):
            count, cpu, began = 0, time.thread_time(), time.perf_counter()
            while (took := time.perf_counter() - began) < length:
                runner.run(feeds[count % len(feeds)], outputs)
                count += 1
        cpu = time.thread_time() - cpu
    return _told(count * batch / took, cpu / (count * batch))


def served(url: str, pid: int, body: Path, chosen: argparse.Namespace, seed: int) -> dict[str, Any]:
    """More than a core can do, over connections that carry one request at a time."""
    used = cpu_seconds(pid)
    found = trial(
        url,
        chosen.rate,
        chosen.seconds,
        units.seconds(chosen.p95),
        seed=seed,
        body=str(body),
        content_type="application/json",
        connections=chosen.connections,
        timeout=2.0,
    )
    used = cpu_seconds(pid) - used
    return _told(found.answered_rate, used / found.sent)  # nearly all that were sent are answered


def _told(rate: float, cpu: float) -> dict[str, Any]:
    return {"items_rate": round(rate, 1), "cpu_us_per_item": round(cpu * 1e6, 1)}


@contextmanager
def thin_server(bundle: Path, batch: int) -> Iterator[tuple[str, int]]:
    """`thin.py` on the server's core → its address and process id."""
    line = [sys.executable, thin.__file__, str(bundle), "--max-batch", str(batch)]
    with on_cores({SERVER_CORE}):  # it inherits that
        process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    with process:
        try:
            assert process.stdout is not None
            if not (url := process.stdout.readline().strip()):
                raise TargetError("the thin server ended before it listened; its words are above")
            yield url, process.pid
        finally:
            process.kill()


def judged(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of each arm, and of its share of the bare session's items in the same round."""
    told = {}
    for arm in ARMS:
        mine, bares = ([one for one in rounds if one["arm"] == name] for name in (arm, "bare"))
        shares = ratios([one["items_rate"] for one in mine], [one["items_rate"] for one in bares])
        told[arm] = {name: median(one[name] for one in mine) for name in ("items_rate", "cpu_us_per_item")}
        told[arm] |= {"of_bare": round(median(shares), 4), "of_bare_rounds": shares}
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--rate", type=units.per_second, default="8000/s", help="more than a core can do")
    parser.add_argument("--connections", type=int, default=16, help="that are always busy")
    parser.add_argument("--max-batch", type=int, default=4)
    parser.add_argument("--p95", default="25ms", help="the budget that ours is told")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each arm")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("-o", "--output", type=Path)
    chosen = parser.parse_args()
    claim_core()
    record = opening(
        "items a second and CPU an item of the bare session, of a thin server and of ours, on one core",
        chosen.bundle,
        cores={"server": SERVER_CORE, "client": CLIENT_CORE},
        **{name: getattr(chosen, name) for name in ("connections", "max_batch", "p95", "seconds")},
        medians={},
        rounds=[],
    )
    rounds = record["rounds"]
    with ExitStack() as stack:
        body = Path(stack.enter_context(TemporaryDirectory())) / "body.json"
        body.write_bytes(several(shape(contract(chosen.bundle)), 1).body)
        flags = ("--p95", chosen.p95, "--max-batch", str(chosen.max_batch))
        ours = stack.enter_context(server(chosen.bundle, *flags))
        where = {"ours": (ours.url(), ours.pid)}
        where["thin"] = stack.enter_context(thin_server(chosen.bundle, chosen.max_batch))
        for number in range(chosen.rounds):
            for arm in ARMS if number % 2 == 0 else ARMS[::-1]:
                if arm == "bare":
                    found = bare(chosen.bundle, chosen.max_batch, chosen.seconds)
                else:
                    found = served(*where[arm], body, chosen, number)
                rounds.append({"round": number, "arm": arm, **found})
                print(f"{number}  {arm:5} {found}", flush=True)
            record["medians"] = judged(rounds)
            keep(record, chosen.output)
    for arm, told in record["medians"].items():
        print(f"{arm:5} {told}")


if __name__ == "__main__":
    command(main)
