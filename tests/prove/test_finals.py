"""The finals: who is loaded when, with what, and what is made of it. The stand is a server in virtual time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from onbudget.core.candidates import Demand, Outlook
from onbudget.core.cost import Cost
from onbudget.core.forecast import Forecast
from onbudget.core.overheads import Overheads
from onbudget.core.pick import Loads
from onbudget.core.plan import Configuration, Trial
from onbudget.prove.finals import SETTLE_S, STEPS, Finalist, play

BUDGET = 0.02


@dataclass
class VirtualStand:
    """Servers with sharp limits by address: beyond it nobody is answered in time, below p95 is 1 ms a 100/s."""

    limits: dict[str, float]
    loads: list[tuple[str, float, float]] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)

    def replay(self, url: str, moments: Any) -> Any:
        seconds = float(moments[-1])
        return self.load(url, seconds, rate=len(moments) / seconds)

    def load(self, url: str, seconds: float, *, rate: float, seed: int = 0) -> Any:
        self.loads.append((url, rate, seconds))
        self.seeds.append(seed)
        return SimpleNamespace(url=url, rate=rate, seconds=seconds)

    def trial(self, runs: list[Any]) -> Trial:
        one, offered = runs[0], sum(round(run.rate * run.seconds) for run in runs)
        good = one.rate <= self.limits[one.url]
        p95 = 1e-5 * (one.rate + 10) if good else math.inf
        return Trial(one.rate, offered, 1.0 if good else 0.2, 0.0 if good else 0.8, p95, 0.0, math.inf, "met")


def finalists(*expected: float) -> list[Finalist]:
    made = []
    for n, rate in enumerate(expected):
        forecast = Forecast(Cost.of({1: 0.001}), Overheads(), Configuration(1, 1, n + 1), BUDGET)
        made.append(Finalist(Outlook("m.onnx", forecast, limit_rate=rate), f"http://{n}"))
    return made


def run(stand: VirtualStand, found: list[Finalist], demand: Demand, seconds: float = 30.0) -> None:
    stage: Any = stand
    play(found, stage, demand, lambda: seconds, lambda _: None)


def test_with_loads_each_is_offered_quiet_once_and_peak_twice() -> None:
    """In turns, A B then B A; what is measured is p95 of both loads."""
    stand, found = VirtualStand({"http://0": 1000.0, "http://1": 300.0}), finalists(1000, 1000)
    run(stand, found, Demand(quiet=20.0, peak=400.0))
    assert [(url[-1], rate) for url, rate, _ in stand.loads] == [
        ("0", 20), ("1", 20), ("0", 400), ("1", 400), ("1", 400), ("0", 400),
    ]  # fmt: skip
    assert stand.seeds == [0, 0, 0, 0, 1, 1]  # equal arrivals for both, others for the second round
    assert found[0].measured == Loads(pytest.approx(3e-4), pytest.approx(4.1e-3))
    assert found[1].measured == Loads(pytest.approx(3e-4), math.inf)
    assert [trial.rate for trial in found[0].trials] == [20, 400]


def test_the_time_is_kept() -> None:
    """All loads together take what is left, about; a quiet one gets enough requests to tell a p95, within reason."""
    stand = VirtualStand({"http://0": 1e9, "http://1": 1e9, "http://2": 1e9})
    run(stand, finalists(1000, 1000, 1000), Demand(quiet=20.0, peak=400.0), seconds=60.0)
    assert sum(seconds + SETTLE_S for _, _, seconds in stand.loads) == pytest.approx(60, rel=0.1)
    assert stand.loads[0][1] * stand.loads[0][2] >= 110
    stand.loads.clear()
    run(stand, finalists(1000), Demand(quiet=10.0, peak=400.0), seconds=30.0)
    assert stand.loads[0][1] * stand.loads[0][2] == 140  # more than its share of the time
    stand.loads.clear()
    run(stand, finalists(1000), Demand(quiet=2.0, peak=400.0), seconds=1.0)
    assert stand.loads[0][1] * stand.loads[0][2] == 20  # below that nothing is said of a p95, however short the time


def test_one_load_for_both_is_offered_once() -> None:
    """Quiet and peak of the same rate."""
    stand, found = VirtualStand({"http://0": 1e9}), finalists(1000)
    run(stand, found, Demand(quiet=50.0, peak=50.0))
    assert len(stand.loads) == 1
    assert len(found[0].trials) == 1
    assert found[0].measured == Loads(pytest.approx(6e-4), pytest.approx(6e-4))


def test_without_loads_each_finds_its_limit() -> None:
    """Whoever was predicted wrongly, too; the better one is seen to be better."""
    stand, found = VirtualStand({"http://0": 1050.0, "http://1": 1300.0}), finalists(1000, 1000)
    run(stand, found, Demand())
    assert [len(one.trials) for one in found] == [STEPS, STEPS]
    assert found[0].measured_limit == pytest.approx(1050, rel=0.05)
    assert found[1].measured_limit == pytest.approx(1300, rel=0.1)
    assert found[1].measured is None


def test_a_machine_that_does_a_third_of_what_was_predicted_is_told_to_the_next() -> None:
    """So the second one does not spend its load tests on rates that nobody here holds."""
    stand, found = VirtualStand({"http://0": 330.0, "http://1": 330.0}), finalists(1000, 1000)
    run(stand, found, Demand())
    assert found[1].trials[0].rate < 600
    assert found[1].measured_limit == pytest.approx(330, rel=0.25)


def test_a_limit_that_was_never_seen_is_none() -> None:
    """Where no rate held, nothing is claimed."""
    stand, found = VirtualStand({"http://0": 0.0}), finalists(1000)
    run(stand, found, Demand())
    assert found[0].measured_limit == 0.0
    assert "without bound" in found[0].words()


def test_a_trace_is_offered_once_to_each() -> None:
    """For as long as the demand's moments go; its p95 counts for both."""
    stand, found = VirtualStand({"http://0": 1e9, "http://1": 1e9}), finalists(1000, 1000)
    run(stand, found, Demand(moments=np.array([0.5, 1.0, 7.0])))
    assert [seconds for _, _, seconds in stand.loads] == [7.0, 7.0]
    assert found[0].measured is not None
    assert found[0].measured.quiet_s == found[0].measured.peak_s
