"""Forecasts against what is known exactly, against simulations, and in the order that they must have."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onbudget.core import chain
from onbudget.core.cost import Cost
from onbudget.core.forecast import GOODPUT, Forecast
from onbudget.core.outcome import limit_rate
from onbudget.core.overheads import Overheads
from onbudget.core.plan import Configuration
from onbudget.core.plant import Noise

COST = Cost.of({1: 0.0003, 16: 0.0024})
BUDGET = 0.025
WORK = Overheads(accept_s=0.0001, refuse_s=0.00003, batch_s=0.0001)


def forecast(policy: str = "greedy", lanes: int = 1, most: int = 8, **more: object) -> Forecast:
    told: dict[str, object] = {"cost": COST, "overheads": WORK, "budget_s": BUDGET, "inline": lanes == 1}
    return Forecast(configuration=Configuration(lanes, 1, most, policy), **{**told, **more})  # type: ignore[arg-type]


def test_without_overheads_it_is_the_chain() -> None:
    """Nothing beside the runs: p95 and limit are those of the bare curve."""
    bare = forecast(overheads=Overheads())
    assert bare.p95(1500) == chain.p95(1500, Cost.of({b: COST.seconds(b) for b in range(1, 9)}), 8)
    assert bare.limit_rate() == pytest.approx(chain.limit_rate(BUDGET, COST, 8), rel=0.002)


def test_a_run_has_its_thread_s_work_in_it() -> None:
    """Each item brings its reading and answering, each batch its own part; a loop with a core of its own takes less."""
    shared = forecast()
    assert [shared.loaded.seconds(b) - COST.seconds(b) for b in (1, 5, 8)] == pytest.approx([2e-4, 6e-4, 9e-4])
    apart = forecast(inline=False, cores=2.0)
    assert [apart.loaded.seconds(b) - COST.seconds(b) for b in (1, 8)] == pytest.approx([1e-4, 1e-4])
    crowded = forecast(lanes=2, cores=1.0)  # either lane has half a core, so the loop's work takes twice as long
    assert crowded.loaded.seconds(8) - COST.seconds(8) == pytest.approx(1e-4 + 8 * 2e-4)


def test_a_loop_reads_before_a_run_and_answers_after_it() -> None:
    """Of a request's work the share `reply` comes after its run; where runs carry it, the loop has none of its own."""
    for apart in (forecast(), forecast(inline=False, cores=2.0)):
        plant = apart.plant()
        assert (plant.accept_s, plant.reply_s) == pytest.approx((0.65e-4, 0.35e-4))
    carried = forecast(inline=False).plant()
    assert (carried.accept_s, carried.reply_s) == (0.0, 0.0)


def test_a_frozen_batch_axis_still_pays_for_each_request() -> None:
    """A run that costs the same however full is charged for the requests that it carries, not for its rows."""
    frozen = forecast(cost=Cost.of({8: 0.002}))
    assert [frozen.loaded.seconds(b) for b in (1, 8)] == pytest.approx([0.0022, 0.0029])


@pytest.mark.parametrize("load", [0.3, 0.7])
@pytest.mark.parametrize("policy", ["greedy", "deadline"])
@pytest.mark.parametrize("overheads", [Overheads(batch_s=0.0002), WORK])
def test_runs_that_carry_the_loop_s_work_are_nearly_the_loop(load: float, policy: str, overheads: Overheads) -> None:
    """Inline: exact where only batches cost; else within 10 % of a loop that reads all who came before it runs."""
    inline, folded = forecast(policy, overheads=overheads), forecast(overheads=overheads, inline=False)
    assert folded.exact
    assert inline.exact == (policy == "greedy" and not overheads.accept_s)
    rate = load * folded.limit_rate()
    assert folded.p95(rate) == pytest.approx(inline.simulated(rate).p95, rel=0.10 if overheads.accept_s else 0.03)


@pytest.mark.parametrize("budget", [0.010, 0.025, 0.100])
@pytest.mark.parametrize("most", [4, 16])
@pytest.mark.parametrize("demote", [True, False])
def test_the_quick_limit_is_about_the_simulated_one(budget: float, most: int, demote: bool) -> None:
    """For one deadline lane whose budget is 2.5 to 60 of its largest runs: within 6 % of where 1 % is refused."""
    slow = forecast("deadline", budget_s=budget, most=most, demote=demote)
    assert slow.quick_limit_rate() == pytest.approx(slow.limit_rate(), rel=0.06)


@pytest.mark.parametrize("times", [5, 10])
def test_a_tight_budgets_quick_limit_is_cautious(times: int) -> None:
    """At 5 and 10 runs of one item: at most 12 % below what a deadline that demotes carries, and not above it."""
    cost = Cost.of({1: 0.003, 16: 0.018})
    one = forecast("deadline", cost=cost, budget_s=times * 0.003, most=5, overheads=Overheads(), inline=False)
    assert 0.88 * one.limit_rate() < one.quick_limit_rate() <= one.limit_rate()


def test_who_demotes_carries_more_where_few_may_be_refused() -> None:
    """The forecast is of the server that is asked about: answered late is not refused."""
    demote, shed = (forecast("deadline", budget_s=0.004, most=4, demote=late) for late in (True, False))
    assert demote.limit_rate() > 1.05 * shed.limit_rate()
    assert demote.quick_limit_rate() > shed.quick_limit_rate()


def test_several_lanes_are_guessed_with_caution() -> None:
    """Each lane with a queue of its own: below what the shared queue carries, and not far."""
    pair = forecast("greedy", lanes=2, cores=2.0)
    assert not pair.exact
    assert 0.93 * pair.limit_rate() < pair.quick_limit_rate() < 1.01 * pair.limit_rate()


def test_the_two_limits() -> None:
    """Where refusals only count as late, a deadline carries more than where hardly any are allowed."""
    tight = forecast("deadline", budget_s=0.004, most=4, demote=False)
    strict, lax = tight.limit_rate(), tight.limit_rate(most_unanswered=1.0)
    assert strict < lax < tight.capacity
    assert tight.simulated(strict).unanswered_share <= GOODPUT
    assert GOODPUT < tight.simulated(lax).unanswered_share <= 0.05


def test_a_greedy_limit_is_the_same_by_both_ways() -> None:
    """Computed for one thread, and found by simulating the very same."""
    one = forecast(inline=False)
    assert one.exact
    assert limit_rate(one.simulated, one.capacity) == pytest.approx(one.limit_rate(), rel=0.03)


def test_a_loop_of_its_own_may_be_the_wall() -> None:
    """Four fast lanes and a loop that takes 1 ms a request: no rate above a thousand a second."""
    loop = forecast(lanes=4, cores=8.0, overheads=Overheads(accept_s=0.001))
    assert loop.capacity == pytest.approx(1000)
    assert 0.8 * 1000 < loop.limit_rate() <= 1000
    assert loop.quick_limit_rate() <= 1000


def test_noise_lengthens_the_tail() -> None:
    """Runs that sometimes take five times as long can't be computed, and are simulated."""
    noisy = forecast(inline=False, noise=Noise(jitter=0.1, rare=0.05, longer=5.0))
    assert not noisy.exact
    assert noisy.p95(1500) > 1.1 * forecast(inline=False).p95(1500)


@settings(max_examples=10, deadline=None)
@given(
    rates=st.tuples(st.floats(0.05, 0.95), st.floats(0.05, 0.95)),
    more=st.floats(1.0, 3.0),
    most=st.integers(1, 16),
)
def test_more_is_never_faster(rates: tuple[float, float], more: float, most: int) -> None:
    """A higher rate, or dearer requests, and no p95 falls and no limit rises."""
    one = forecast(most=most, inline=False)
    low, high = (share * one.capacity for share in sorted(rates))
    assert one.p95(low) <= one.p95(high) * (1 + 1e-6)
    dear = forecast(
        most=most, inline=False, overheads=Overheads(WORK.accept_s * more, WORK.refuse_s, WORK.batch_s * more)
    )
    assert dear.p95(low) >= one.p95(low) * (1 - 1e-6)
    assert dear.limit_rate() <= one.limit_rate() * 1.001


def test_a_budget_below_one_run_has_no_rate() -> None:
    """Not for greedy, whose lone request is late already, nor for the quick look."""
    hopeless = forecast(budget_s=0.0002)
    assert (hopeless.limit_rate(), hopeless.quick_limit_rate()) == (0.0, 0.0)
    assert hopeless.p95(10 * hopeless.capacity) == math.inf


@pytest.mark.parametrize(
    "wrong",
    [{"budget_s": 0.0}, {"cores": 0.0}, {"inline": True, "configuration": Configuration(2, 1, 8)}],
)
def test_what_cannot_be_meant(wrong: dict[str, object]) -> None:
    """No budget, no core, an inline lane with a second one."""
    told: dict[str, object] = {
        "cost": COST,
        "overheads": WORK,
        "budget_s": 1.0,
        "configuration": Configuration(1, 1, 8),
    }
    with pytest.raises(ValueError):
        Forecast(**{**told, **wrong})  # type: ignore[arg-type]  # parametrised
