"""Timing runs while every lane is busy, because lanes share the memory's bandwidth and the last cache.

A lane alone on the machine is faster than it will ever be in service. So the others run the same batch for as long as
the measured lane does; what they finished in that time counts too, their last run, which outlived it, does not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Clocks:
    """Seconds by the wall, and seconds of CPU that the calling thread used."""

    wall: Callable[[], float] = time.perf_counter
    cpu: Callable[[], float] = time.thread_time


@dataclass(frozen=True, slots=True)
class Taken:
    """What one run took, in seconds."""

    wall: float
    cpu: float


def corun(lanes: Sequence[Callable[[], Any]], count: int, *, warm: bool, clocks: Clocks) -> list[Taken]:
    """`count` runs of the first lane on this thread, with the other lanes on theirs → all runs that overlapped them.

    `warm` runs each lane once, untimed, before all begin together. What a lane raises is raised here.
    """
    first, *others = lanes
    if not others:
        if warm:
            first()
        return [_timed(first, clocks) for _ in range(count)]
    gate, stop = threading.Barrier(len(lanes)), threading.Event()

    def other(run: Callable[[], Any]) -> list[Taken]:
        taken: list[Taken] = []
        _through(gate, run if warm else None)
        while True:
            one = _timed(run, clocks)
            if stop.is_set():
                return taken
            taken.append(one)

    mine: list[Taken] = []
    with ThreadPoolExecutor(len(others), thread_name_prefix="corun") as pool:
        busy = [pool.submit(other, run) for run in others]
        try:
            _through(gate, first if warm else None)
            mine = [_timed(first, clocks) for _ in range(count)]
        except threading.BrokenBarrierError:
            pass  # another lane raised before the start: its error is raised below
        finally:
            stop.set()
    errors = [error for lane in busy if (error := lane.exception())]
    if errors:  # the others' is only that the start never came
        raise next((e for e in errors if not isinstance(e, threading.BrokenBarrierError)), errors[0])
    return mine + [one for lane in busy for one in lane.result()]


def _through(gate: threading.Barrier, run: Callable[[], Any] | None) -> None:
    """Run once, where there is something to run, and start with the others; an error lets nobody wait."""
    try:
        if run is not None:
            run()
    except BaseException:
        gate.abort()
        raise
    gate.wait()


def _timed(run: Callable[[], Any], clocks: Clocks) -> Taken:
    wall, cpu = clocks.wall(), clocks.cpu()
    run()
    cpu = clocks.cpu() - cpu
    return Taken(clocks.wall() - wall, cpu)
