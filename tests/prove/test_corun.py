"""Runs that are timed while all lanes are busy."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from onbudget.prove import corun as module
from onbudget.prove.corun import Clocks, Taken, corun

LONG = 30.0  # seconds until a test gives up; never waited for when it passes


class Hands:
    """Clocks that only move when a run says so; CPU time is each thread's own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.lock = threading.Lock()
        self.own = threading.local()
        self.clocks = Clocks(lambda: self.now, lambda: getattr(self.own, "cpu", 0.0))

    def move(self, wall: float, cpu: float) -> None:
        with self.lock:
            self.now += wall
        self.own.cpu = getattr(self.own, "cpu", 0.0) + cpu


@pytest.mark.parametrize("warm", [False, True])
def test_one_lane_is_timed_run_by_run(warm: bool) -> None:
    """So many runs, each with its own wall and CPU seconds; a warm-up run before them is not among them."""
    hands, costs = Hands(), [9.0, 1.0, 2.0, 3.0] if warm else [1.0, 2.0, 3.0]
    left = list(costs)

    def run() -> None:
        seconds = left.pop(0)
        hands.move(seconds, seconds / 2)

    assert corun([run], 3, warm=warm, clocks=hands.clocks) == [Taken(1.0, 0.5), Taken(2.0, 1.0), Taken(3.0, 1.5)]
    assert left == []


def test_the_other_lanes_are_busy_for_as_long_as_the_first_is_timed() -> None:
    """The first lane's run ends only when each other lane has ended three since; what they ended counts."""
    seen, changed = [0, 0], threading.Condition()

    def other(lane: int) -> Callable[[], None]:
        def run() -> None:
            with changed:
                seen[lane] += 1
                changed.notify_all()

        return run

    def first() -> None:
        with changed:
            wanted = [n + 3 for n in seen]
            assert changed.wait_for(lambda: all(n >= w for n, w in zip(seen, wanted, strict=True)), LONG)

    taken = corun([first, other(0), other(1)], 2, warm=False, clocks=Clocks())
    assert 2 + 2 * 5 <= len(taken) <= 2 + sum(seen)
    assert not [t for t in threading.enumerate() if t.name.startswith("corun")]


def test_lanes_begin_together() -> None:
    """No lane's timed run begins before every lane has ended its warm-up."""
    log: list[str] = []

    def lane(name: str) -> Callable[[], None]:
        return lambda: log.append(name)

    corun([lane("a"), lane("b"), lane("c")], 1, warm=True, clocks=Clocks())
    assert sorted(log[:3]) == ["a", "b", "c"]


def test_a_run_that_outlives_the_measured_ones_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had the machine to itself at its end."""
    over = threading.Event()

    class Stop(threading.Event):
        def set(self) -> None:
            super().set()
            over.set()

    monkeypatch.setattr(module.threading, "Event", Stop)
    hands = Hands()
    taken = corun([lambda: hands.move(1.0, 1.0), lambda: over.wait(LONG)], 4, warm=False, clocks=hands.clocks)
    assert len(taken) == 4


@pytest.mark.parametrize("lanes", [1, 2, 3])
@pytest.mark.parametrize("warm", [False, True])
def test_what_any_lane_raises_is_raised(lanes: int, warm: bool) -> None:
    """Before the start or after it, from the first lane or another: its own error, and no thread is left."""
    for bad in range(lanes):
        for at in (1, 2):
            calls, raised = [0] * lanes, threading.Event()

            def lane(n: int, bad: int = bad, at: int = at, calls: list[int] = calls, raised: threading.Event = raised):  # type: ignore[no-untyped-def]
                def run() -> None:
                    calls[n] += 1
                    if n == bad and calls[n] >= at:
                        raised.set()
                        raise RuntimeError(f"lane {n}")
                    if n == 0 and bad and calls[0] > warm:
                        raised.wait(LONG)

                return run

            with pytest.raises(RuntimeError, match=f"lane {bad}"):
                corun([lane(n) for n in range(lanes)], 3, warm=warm, clocks=Clocks())
            assert not [t for t in threading.enumerate() if t.name.startswith("corun")]
