"""Two lanes on two cores against one lane on one core, driven in this process and without sockets.

    PYTHONPATH=src python benchmarks/bench_lanes.py served.onnx -o benchmarks/results/lanes-….json

Each arm is a process of its own, pinned before it starts. Arms of a service keep a fixed number of requests in flight
and give it the next one in the event loop's turn after a reply, as a socket would; its answers a second, and the CPU
seconds of the whole process for each, are counted after a second of warm-up. `thread` is one lane in a thread of its
own: the service is started with both cores, so that it does not choose the inline lane, and then pinned to one;
`inline` is what a server on one core chooses where runs are short. `bare one` and `bare two` run full batches in one
and two threads, with no service at all: what this machine's second core is worth. Rounds alternate, and ratios are of
the same round. `two, 1 ms` and `two, 20 ms` are two lanes with another switch interval than Python's 5 ms, for a lane
that comes back from its run may wait so long for the interpreter. The aims: two lanes at 1.8 times the rate of one, and
at most 1.1 times the CPU an answer.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from live import command, keep, opening, ratios

from onbudget.engine.session import SessionOptions, example, load_runner
from onbudget.prove.payloads import Item, Shape, random_items
from onbudget.serve.exchange import Head, Request, Response
from onbudget.serve.server import tame
from onbudget.serve.service import Service
from onbudget.serve.settings import Settings

CORES = (0, 1)


class Arm(NamedTuple):
    """`switch`: the interpreter's switch interval in seconds; 5 ms is Python's own."""

    lanes: int
    starting: int  # cores while it starts
    measured: int  # cores while it is measured
    switch: float = 0.005


ARMS = {
    "two": Arm(2, 2, 2),
    "two, 1 ms": Arm(2, 2, 2, 0.001),
    "two, 20 ms": Arm(2, 2, 2, 0.02),
    "thread": Arm(1, 2, 1),
    "inline": Arm(1, 1, 1),
    "bare two": Arm(2, 2, 2),
    "bare one": Arm(1, 1, 1),
}
PAIRS = (
    ("two", "thread"),
    ("two", "inline"),
    ("bare two", "bare one"),
    ("two, 1 ms", "two"),
    ("two, 20 ms", "two"),
)
WARM_S = 1.0


class Loop:
    """A fixed number of requests in flight; a reply makes room for the next one."""

    def __init__(self, service: Service, items: list[Item], in_flight: int) -> None:
        self._service = service
        self._requests = [(Head([(b"content-type", item.kind.encode())]), item.body) for item in items]
        self._loop = asyncio.get_running_loop()
        self._room = in_flight
        self._due = self.ended = False
        self._sent = self.answered = self.failed = 0

    def fill(self) -> None:
        """Send as many as there is room for."""
        self._due = False
        while self._room and not self.ended:
            head, body = self._requests[self._sent % len(self._requests)]
            self._room -= 1
            self._sent += 1
            self._service.predict(Request(head, body, time.monotonic()), self._reply)

    def _reply(self, response: Response) -> None:
        self._room += 1
        self.answered += response.status == 200
        self.failed += response.status != 200
        if not self._due:
            self._due = True
            self._loop.call_soon(self.fill)


def pin(cores: tuple[int, ...]) -> None:
    """All threads of this process, those of the lanes too."""
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


async def _driven(bundle: Path, form: Any, lanes: int, measured: int, chosen: argparse.Namespace) -> dict[str, Any]:
    service = Service(bundle, Settings(lanes=lanes, max_batch=chosen.max_batch))
    await service.start()
    tame()
    model = service.model
    assert model is not None
    pin(CORES[:measured])
    taken = model.contract
    if taken.shape is None:
        raise SystemExit(f"{bundle}: its items have no fixed shape; this benchmark needs one")
    items = random_items(form, Shape(taken.field, taken.shape, str(taken.dtype)), 0)
    loop = Loop(service, items, chosen.in_flight)
    loop.fill()
    await asyncio.sleep(WARM_S)
    answered, cpu, began = loop.answered, time.process_time(), time.perf_counter()
    await asyncio.sleep(chosen.seconds)
    answered, cpu = loop.answered - answered, time.process_time() - cpu
    told = _told(answered, time.perf_counter() - began, cpu)
    loop.ended = True
    await service.stop()
    return {**told, "failed": loop.failed, "inline": model.inline, "lanes": len(model.lanes)}


def _bare(bundle: Path, lanes: int, chosen: argparse.Namespace) -> dict[str, Any]:
    runner, counts, ended = load_runner(bundle, SessionOptions()), [0] * lanes, threading.Event()
    feeds = {port.name: example(port, chosen.max_batch) for port in runner.inputs}

    def work(lane: int) -> None:
        while not ended.is_set():
            runner.run(feeds)
            counts[lane] += chosen.max_batch

    threads = [threading.Thread(target=work, args=(lane,)) for lane in range(lanes)]
    for thread in threads:
        thread.start()
    time.sleep(WARM_S)
    answered, cpu, began = sum(counts), time.process_time(), time.perf_counter()
    time.sleep(chosen.seconds)
    told = _told(sum(counts) - answered, time.perf_counter() - began, time.process_time() - cpu)
    ended.set()
    for thread in threads:
        thread.join()
    return told


def _told(answered: int, seconds: float, cpu: float) -> dict[str, Any]:
    return {
        "answered": answered,
        "rate": round(answered / seconds, 1),
        "cpu_us_per_answer": round(cpu / answered * 1e6, 2),
        "cores_used": round(cpu / seconds, 3),
    }


def measured(arm: str, form: str, chosen: argparse.Namespace) -> dict[str, Any]:
    """One arm in this process, which is a fresh one."""
    import uvloop

    lanes, _, cores, switch = ARMS[arm]
    sys.setswitchinterval(switch)
    if arm.startswith("bare"):
        return _bare(chosen.bundle, lanes, chosen)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_driven(chosen.bundle, form, lanes, cores, chosen))


def judged(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Each pair's ratios, round by round, and their medians."""
    told = {}
    for form in dict.fromkeys(one["form"] for one in rounds):
        mine = [one for one in rounds if one["form"] == form]
        for above, below in PAIRS:
            for name in ("rate", "cpu_us_per_answer"):
                both = [[one[name] for one in mine if one["arm"] == arm] for arm in (above, below)]
                each = ratios(*both)
                told[f"{form}: {name}, {above} / {below}"] = {"median": round(median(each), 3), "rounds": each}
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--formats", default="json,octet", type=lambda text: text.split(","))
    parser.add_argument("--seconds", type=float, default=6.0, help="of each arm")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--max-batch", type=int, default=16)
    parser.add_argument("-o", "--output", type=Path)
    chosen = parser.parse_args()
    record = opening(
        "answers a second and CPU an answer of two lanes on two cores and of one lane on one core, without sockets",
        chosen.bundle,
        in_flight=chosen.in_flight,
        max_batch=chosen.max_batch,
        seconds_an_arm=chosen.seconds,
        ratios={},
        rounds=[],
    )
    rounds = record["rounds"]
    spawn = multiprocessing.get_context("spawn")
    for number in range(chosen.rounds):
        for form in chosen.formats:
            for arm in ARMS if number % 2 == 0 else [*ARMS][::-1]:
                os.sched_setaffinity(0, CORES[: ARMS[arm].starting])  # the child inherits it
                with ProcessPoolExecutor(1, spawn) as pool:
                    found = pool.submit(measured, arm, form, chosen).result()
                rounds.append({"round": number, "form": form, "arm": arm, **found})
                print(f"{number}  {form:6} {arm:10} {found}", flush=True)
                keep(record, chosen.output)
            record["ratios"] = judged(rounds)
            keep(record, chosen.output)
    for name, told in record["ratios"].items():
        print(f"{told['median']:7.3f}  {name}  {told['rounds']}")


if __name__ == "__main__":
    command(main)
