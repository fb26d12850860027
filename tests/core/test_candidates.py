"""Which configurations are considered, in which order, and what is said where none holds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from onbudget.core.candidates import SHARES, Demand, Outlook, batches, outlooks, ranked, wall
from onbudget.core.cost import Cost
from onbudget.core.forecast import Forecast
from onbudget.core.overheads import Overheads, usual
from onbudget.core.pick import Loads
from onbudget.core.plan import Configuration
from onbudget.core.traffic import poisson

COST = Cost.of({1: 0.003, 2: 0.004, 4: 0.006, 8: 0.010, 16: 0.018})
BUDGET = 0.06


def considered(**given: Any) -> list[Outlook]:
    told: dict[str, Any] = {
        "costs": {(1, 1): COST, (1, 2): COST.scaled(1.1), (2, 1): COST.scaled(0.6)},
        "budget_s": BUDGET,
        "cores": 2.0,
        "overheads": usual(),
        "policies": ("deadline", "greedy"),
        "most": 16,
        "requests": 4000,
    }
    return outlooks("m.onnx", **told | given)


def look(name: str = "deadline", most: int = 4, **given: Any) -> Outlook:
    forecast = Forecast(COST, Overheads(), Configuration(1, 1, most, name), BUDGET, requests=4000)
    return Outlook("m.onnx", forecast, **given)


@pytest.mark.parametrize(
    ("points", "most", "sizes"),
    [
        ((1, 2, 3, 4, 6), 32, [1, 2, 4, 6]),
        ((1, 2, 4, 8), 4, [1, 2, 4]),
        ((1,), 32, [1]),
        ((8,), 32, [8]),
        ((8,), 4, [8]),
    ],
)
def test_batches_are_powers_of_two_and_the_largest(points: tuple[int, ...], most: int, sizes: list[int]) -> None:
    """Within what was measured; a frozen batch axis has one size."""
    assert batches(Cost.of({b: 0.001 * (b + 1) for b in points}), most) == sizes


def test_every_shape_and_policy_is_considered_once() -> None:
    """Greedy with each size; a deadline with the sizes that its own rule gives, which are fewer."""
    found = considered()
    made = [one.configuration for one in found]
    assert len(set(made)) == len(made)
    assert {(c.threads, c.lanes) for c in made} == {(1, 1), (1, 2), (2, 1)}
    greedy = [c.max_batch for c in made if c.policy == "greedy" and (c.threads, c.lanes) == (1, 1)]
    careful = [c.max_batch for c in made if c.policy == "deadline" and (c.threads, c.lanes) == (1, 1)]
    assert greedy == [1, 2, 4, 8, 16]
    assert max(careful) < 16  # two runs must fit into the budget


def test_a_lone_lane_is_inline_only_without_a_second_core() -> None:
    """As the server decides it, and only where runs are short."""
    one = {(1, 1): COST}
    assert not any(o.forecast.inline for o in considered(costs=one))
    inline = {o.configuration.max_batch: o.forecast.inline for o in considered(costs=one, cores=1.0)}
    assert inline[4] is True
    assert inline[16] is False


def test_with_loads_the_lowest_peak_of_those_within_the_budget_comes_first() -> None:
    """Whoever breaks the budget at quiet is behind, however good at peak."""
    a, b = look(most=2, loads=Loads(0.01, 0.03)), look(most=4, loads=Loads(0.01, 0.02))
    c, d = look(most=8, loads=Loads(0.07, 0.01)), look(most=16, loads=Loads(0.01, math.inf))
    assert ranked([a, b, c, d], BUDGET) == [b, a, c, d]


def test_greedy_must_be_worth_what_it_lacks() -> None:
    """Five per cent better under the loads or in rate, or alone within the budget."""
    careful, greedy = look(loads=Loads(0.01, 0.020)), look("greedy", loads=Loads(0.01, 0.0195))
    better = look("greedy", most=2, loads=Loads(0.01, 0.018))
    assert ranked([greedy, careful, better], BUDGET) == [better, careful]
    broken = look(loads=Loads(0.01, 0.07))
    assert ranked([greedy, broken], BUDGET) == [greedy, broken]
    slow, fast, faster = look(limit_rate=100.0), look("greedy", limit_rate=104.0), look("greedy", 2, limit_rate=106.0)
    assert ranked([fast, slow, faster], BUDGET) == [faster, slow]


def test_nobody_is_left_out_where_none_holds() -> None:
    """Then the list says how near each comes, and a message is made of it."""
    hopeless = [look(loads=Loads(0.01, math.inf)), look("greedy", loads=Loads(0.01, math.inf))]
    assert len(ranked(hopeless, BUDGET)) == 2


def test_without_loads_the_highest_limit_rate_comes_first() -> None:
    """Those within 2 % are told apart by latency at the same rate: here a faster run by a little less capacity."""
    low, high = look(most=4, limit_rate=400.0), look(most=8, limit_rate=500.0)
    quick = replace(high.forecast, cost=COST.scaled(0.8))
    alike, less = replace(high, forecast=quick, limit_rate=492.0), replace(high, forecast=quick, limit_rate=480.0)
    assert ranked([low, high, less, alike], BUDGET) == [alike, high, less, low]


def test_loads_are_those_of_the_demand() -> None:
    """Quiet and peak by rate; a trace's p95 twice; nothing without loads."""
    forecast = look("greedy").forecast
    assert Demand().expected(forecast) is None
    told = Demand(quiet=10.0, peak=300.0).expected(forecast)
    assert told == Loads(forecast.p95(10.0), forecast.p95(300.0))
    assert told.quiet_s < told.peak_s
    replayed = Demand(moments=poisson(300.0, 20.0, 1)).expected(forecast)
    assert replayed is not None
    assert replayed.quiet_s == replayed.peak_s == pytest.approx(told.peak_s, rel=0.15)


def test_a_curve_is_around_the_limit_rate() -> None:
    """p95 rises with the rate; without a limit there is no curve."""
    one = look().limited()
    assert one.limit_rate
    curve = one.curve()
    assert [rate / one.limit_rate for rate, _ in curve] == pytest.approx(SHARES)
    times = [p95 for _, p95 in curve]
    assert times[0] < times[3] < times[-1]
    assert look().curve() == look(limit_rate=0.0).curve() == ()


def test_the_wall_is_the_run_where_one_alone_is_too_slow() -> None:
    """It names the part, a budget that would do, and what would help; a costly loop is named as such."""
    said = wall([replace(look(), forecast=replace(look().forecast, budget_s=0.002))], 0.002, Demand())
    assert "one item alone takes 3 ms (1 lane × 1 thread)" in said
    assert "the model's run is the wall. The nearest budget is 3.8 ms" in said
    heavy = replace(look().forecast, overheads=Overheads(accept_s=0.004))
    assert "answering is the wall" in wall([replace(look(), forecast=heavy)], 0.002, Demand())


def test_the_wall_is_throughput_where_the_peak_is_above_it() -> None:
    """With the rate that would be held."""
    found = [look(most=8).limited(), look(most=2).limited()]
    said = wall(found, BUDGET, Demand(quiet=10.0, peak=2000.0))
    assert f"at most {found[0].forecast.capacity:,.0f} requests/s whatever the budget" in said
    assert "is predicted to run at most" in said
    assert f"throughput is the wall. The nearest rate: within 60 ms at most {found[0].limit_rate:,.0f}" in said


def test_the_wall_is_waiting_in_between() -> None:
    """The nearest budget is one that greedy holds at the peak, rounded up to two digits."""
    one = look(most=4).limited()
    one = replace(one, forecast=replace(one.forecast, budget_s=0.005), limit_rate=None).limited()
    peak = 0.9 * one.forecast.capacity
    said = wall([one], 0.005, Demand(quiet=10.0, peak=peak))
    needed = replace(one.forecast, configuration=Configuration(1, 1, 4, "greedy")).p95(peak)
    assert "at 90% of the capacity waiting is the wall" in said
    nearest = float(said.split("nearest budget is ")[1].split(" ms")[0]) / 1e3
    assert needed <= nearest <= needed * 1.1


def test_a_trace_is_replayed_as_it_is() -> None:
    """The same requests, all of them but the first twentieth of the time."""
    forecast = look("greedy").forecast
    moments = np.arange(1, 101) * 0.1
    assert forecast.replayed(moments).offered == 95
