"""What a run costs: the measured curve, and the two factors that follow the machine."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onbudget.core.cost import Cost, Online

BENT = Cost.of({1: 0.30e-3, 2: 0.55e-3, 4: 1.05e-3, 8: 2.09e-3, 16: 4.65e-3, 32: 11.9e-3})
LINE = Cost.of({b: 2.0 + b for b in (1, 2, 4, 8, 16)})

curves = st.dictionaries(st.integers(1, 256), st.floats(1e-5, 1.0), min_size=1, max_size=10).map(Cost.of)


# ---- the curve ------------------------------------------------------------------------------------------------------


def test_it_bends_where_the_measurements_do() -> None:
    """Between measured sizes it is straight, and no line through the small ones promises anything of the large ones."""
    assert BENT.seconds(8) == 2.09e-3
    assert BENT.seconds(12) == pytest.approx((2.09e-3 + 4.65e-3) / 2)
    assert BENT.seconds(24) == pytest.approx((4.65e-3 + 11.9e-3) / 2)
    assert BENT.seconds(32) > 1.4 * 4 * BENT.seconds(8) * 0.95


@given(curves, st.integers(1, 300))
def test_it_never_falls_and_is_never_nothing(cost: Cost, batch: int) -> None:
    """A larger batch never costs less, whatever noise was measured."""
    assert 0 < cost.seconds(batch) <= cost.seconds(batch + 1)


def test_noise_is_pooled_and_not_believed() -> None:
    """Where 3 was measured cheaper than 2 both cost their mean, and their neighbours stay as they were."""
    cost = Cost.of({1: 1.0, 2: 2.2, 3: 2.0, 4: 3.0})
    assert [cost.seconds(b) for b in (1, 2, 3, 4)] == pytest.approx([1.0, 2.1, 2.1, 3.0])


@given(curves, st.integers(1, 1000))
def test_nothing_beyond_the_largest_batch_is_promised_cheaper_an_item(cost: Cost, more: int) -> None:
    """Above what was measured the seconds an item never fall, and never below the last slope."""
    last = cost.points[-1][0]
    at_last = cost.seconds(last) / last
    assert cost.seconds(last + more) / (last + more) >= at_last * (1 - 1e-9)


def test_a_bent_curve_goes_on_as_steep_as_it_ended() -> None:
    """Past 32 each item costs what the items between 16 and 32 did, not the average of the first 32."""
    assert BENT.seconds(48) - BENT.seconds(32) == pytest.approx(11.9e-3 - 4.65e-3)


def test_a_frozen_batch_axis_costs_the_same_however_few_are_in_it() -> None:
    """One point: constant below it."""
    cost = Cost.of({8: 4.0})
    assert [cost.seconds(b) for b in (1, 5, 8)] == [4.0, 4.0, 4.0]
    assert cost.seconds(16) == 8.0
    assert cost.best_batch(8) == 8


@given(curves, st.integers(1, 64), st.sampled_from([0.25, 0.5, 2.0, 3.0]))
def test_b_items_of_size_s_cost_what_their_sum_costs(cost: Cost, batch: int, size: float) -> None:
    """Two items of size 3 are six items; a smaller item never costs more than a larger one, and always something."""
    if (batch * size).is_integer():
        assert cost.seconds(batch, size) == pytest.approx(cost.seconds(int(batch * size)))
    assert 0 < cost.seconds(batch, size) <= cost.seconds(batch, size * 1.5)


def test_a_small_item_still_pays_the_fixed_part() -> None:
    """Half an item on a machine with 2 s a run and 1 s an item."""
    assert LINE.seconds(1, 0.5) == pytest.approx(2.5)


def test_the_best_batch_is_the_smallest_that_is_good_enough() -> None:
    """95 % of the best items a second; on a curve that bends that is before the bend, wherever the limit is."""
    assert LINE.best_batch(16) == 11  # 11/13 is 95.2 % of 16/18, 10/12 is 93.8 %
    assert BENT.best_batch(32) <= 4
    assert BENT.capacity(32) == pytest.approx(max(b / BENT.seconds(b) for b in range(1, 33)))


@given(curves, st.integers(1, 64))
def test_best_batch_and_capacity_agree(cost: Cost, most: int) -> None:
    """What best_batch gives is good enough, and one less is not."""
    best, top = cost.best_batch(most), cost.capacity(most)
    assert best / cost.seconds(best) >= 0.95 * top
    assert all(b / cost.seconds(b) < 0.95 * top for b in range(1, best))


@given(curves, st.floats(1e-6, 10.0), st.integers(1, 300), st.sampled_from([0.5, 1.0, 2.0]))
def test_largest_within_fits_and_one_more_does_not(cost: Cost, seconds: float, most: int, size: float) -> None:
    """0 where not even one item is in time; never above the limit."""
    found = cost.largest_within(seconds, most, size)
    assert 0 <= found <= most
    assert found == 0 or cost.seconds(found, size) <= seconds
    assert found == most or cost.seconds(found + 1, size) > seconds


@given(curves, st.floats(0.1, 10.0))
def test_a_few_fresh_runs_give_the_scale(cost: Cost, factor: float) -> None:
    """The curve of a slower machine is found from runs of a few sizes, one of them disturbed."""
    slower = cost.scaled(factor)
    measured = {1: slower.seconds(1), 2: slower.seconds(2) * 50, 3: slower.seconds(3)}
    assert cost.scale_of(measured) == pytest.approx(factor)


@given(curves)
def test_it_survives_json(cost: Cost) -> None:
    """To text and back is the same cost."""
    again = Cost.from_dict(json.loads(json.dumps(cost.to_dict())))
    assert again == cost
    assert [again.seconds(b) for b in (1, 7, 300)] == [cost.seconds(b) for b in (1, 7, 300)]


@pytest.mark.parametrize(
    "points", [{}, {0: 1.0}, {1: 0.0}, {1: -1.0}, {1: math.nan}, {1: math.inf}, {-2: 1.0}], ids=str
)
def test_what_was_not_measured_is_no_cost(points: dict[int, float]) -> None:
    """No points, batches of nobody, times of nothing."""
    with pytest.raises(ValueError):
        Cost.of(points)


@pytest.mark.parametrize("told", [{}, {"points": 3}, {"points": [[1]]}, {"points": [["1", 2]]}, {"points": [[1.5, 2]]}])
def test_damage_is_told(told: dict[str, Any]) -> None:
    """Anything that to_dict would not have written."""
    with pytest.raises(ValueError, match=r"points must be a list of \[batch, seconds\]"):
        Cost.from_dict(told)


@pytest.mark.parametrize(("batch", "size"), [(0, 1.0), (-1, 1.0), (1, 0.0), (1, -2.0), (1, math.nan)])
def test_nobody_costs_nothing_that_can_be_told(batch: int, size: float) -> None:
    """A batch of nobody or an item without a size is a mistake of the caller's."""
    with pytest.raises(ValueError, match="costs nothing that can be told"):
        LINE.seconds(batch, size)


# ---- the two factors ------------------------------------------------------------------------------------------------


def run(online: Online, cpu: float, wait: float, runs: int, now: float, every: float = 0.01, batch: int = 4) -> float:
    """Runs on a machine that takes `cpu` times the prior's CPU time and waits `wait` times as much; → when it ends."""
    for _ in range(runs):
        now += every
        cpu_s = online.cpu_prior.seconds(batch) * cpu
        online.observe(batch, cpu_s, online.prior.seconds(batch) * cpu * wait, now)
    return now


@given(st.floats(1 / 15, 15.0), st.floats(1 / 15, 15.0))
@settings(max_examples=60)
def test_a_true_scale_is_known_after_sixty_runs(cpu: float, wait: float) -> None:
    """Each factor to 5 %, at a size that never ran too."""
    online = Online(BENT)
    now = run(online, cpu, wait, 60, 0.0)
    assert online.factors(now) == pytest.approx((cpu, wait), rel=0.05)
    assert online.estimate(32, now) == pytest.approx(BENT.seconds(32) * cpu * wait, rel=0.1)


@pytest.mark.parametrize(("cpu", "wait", "bound"), [(1, 100, 0.1), (100, 1, 0.1), (100, 100, 0.2), (1, 1e9, 0.1)])
def test_one_outlier_moves_it_by_no_more_than_is_stated(cpu: float, wait: float, bound: float) -> None:
    """A run 100 times too long moves each factor by 2 ** 0.1 at most, however long it was."""
    online = Online(BENT)
    now = run(online, 1.0, 1.0, 10, 0.0)
    before = online.scale(now)
    online.observe(4, BENT.seconds(4) * cpu, BENT.seconds(4) * cpu * wait, now)
    assert 1 < online.scale(now) / before <= 2**bound * (1 + 1e-9)
    assert max(online.factors(now)) <= 2**0.1 * (1 + 1e-9)


def test_waiting_is_not_taken_for_work() -> None:
    """A neighbour that takes half of the core doubles the waiting and leaves the CPU factor alone."""
    online = Online(BENT)
    now = run(online, 1.0, 2.0, 100, 0.0)
    cpu, wait = online.factors(now)
    assert cpu == pytest.approx(1.0, abs=0.01)
    assert wait == pytest.approx(2.0, rel=0.01)


@given(st.lists(st.tuples(st.integers(1, 64), st.floats(0, 1e6), st.floats(1e-9, 1e6), st.floats(0, 100)), max_size=50))
def test_it_is_bounded_whatever_is_observed(runs: list[tuple[int, float, float, float]]) -> None:
    """Each factor stays within 1/16 and 16, so that every estimate is a number."""
    online, now = Online(BENT), 0.0
    for batch, cpu, wall, pause in runs:
        now += pause
        online.observe(batch, cpu, wall, now)
        assert all(1 / 16.01 <= factor <= 16.01 for factor in online.factors(now))


@given(st.floats(1.0, 1e6), st.integers(1, 2000), st.floats(1.001, 4.0))
@settings(max_examples=50)
def test_refusing_everything_never_lasts(stall: float, runs: int, room: float) -> None:
    """However bad the runs were: unobserved, the estimate comes back, and what the prior allowed is allowed again."""
    online = Online(BENT)
    now = run(online, stall, stall, runs, 0.0)
    deadline = BENT.seconds(1) * room
    patience = 5 + 10 * max(1.0, math.log2(2 * math.log(16) / math.log(room)))
    assert online.estimate(1, now + patience + 1e-6) <= deadline * (1 + 1e-9)
    assert online.largest_within(deadline * (1 + 1e-9), 32, now + patience + 1e-6) >= 1


def test_a_quiet_server_keeps_what_it_learned() -> None:
    """A run every four seconds is within the grace: nothing decays, and the truth is not biased towards the prior."""
    online = Online(BENT)
    now = run(online, 1.5, 1.0, 100, 0.0, every=4.0)
    assert online.scale(now) == pytest.approx(1.5, rel=0.01)
    assert online.scale(now + 5.0) == online.scale(now)
    assert online.scale(now + 15.0) == pytest.approx(math.sqrt(1.5), rel=0.01)


def test_asking_does_not_teach() -> None:
    """Estimates and factors are read without changing anything; only a run that ran is learned from."""
    online = Online(BENT)
    now = run(online, 2.0, 1.0, 30, 0.0)
    before = online.to_dict(now)
    for later in (1.0, 100.0, 1000.0):
        online.estimate(8, now + later)
        online.factors(now + later)
        online.largest_within(1.0, 8, now + later)
    assert online.to_dict(now) == before


def test_a_clock_that_tells_no_cpu_time_still_teaches_the_whole() -> None:
    """A coarse thread clock says 0: everything is waiting, and the estimate is right."""
    online = Online(BENT)
    for i in range(60):
        online.observe(4, 0.0, BENT.seconds(4) * 3, i * 0.01)
    assert online.factors(0.6)[0] == 1.0
    assert online.estimate(8, 0.6) == pytest.approx(BENT.seconds(8) * 3, rel=0.05)


def test_a_cpu_prior_of_its_own() -> None:
    """With several threads inside a run its caller works for a part of the time; the factors are 1 all the same."""
    online = Online(BENT, BENT.scaled(0.6))
    online.observe(4, BENT.seconds(4) * 0.6, BENT.seconds(4), 1.0)
    assert online.factors(1.0) == pytest.approx((1.0, 1.0))


def test_late_news_does_not_turn_time_back() -> None:
    """Lanes report out of order by a little; the last observation stays the last."""
    online = Online(BENT)
    online.observe(4, BENT.seconds(4), BENT.seconds(4) * 2, 100.0)
    online.observe(4, BENT.seconds(4), BENT.seconds(4) * 2, 99.9)
    assert online.scale(105.0) == online.scale(100.0) > 1.1


def test_online_survives_json() -> None:
    """The factors as of now, the priors and the constants; unlearning goes on from the moment of reading."""
    online = Online(BENT, BENT.scaled(0.9), weight=0.2, half_life_s=3.0, grace_s=1.0)
    now = run(online, 2.0, 1.5, 20, 0.0)
    told = json.loads(json.dumps(online.to_dict(now)))
    again = Online.from_dict(told, 5000.0)
    assert again.factors(5000.0) == pytest.approx(online.factors(now))
    assert again.to_dict(5000.0)["prior"] == told["prior"]
    assert again.scale(5004.0) == pytest.approx(math.sqrt(online.scale(now)))


@pytest.mark.parametrize("damage", [{"prior": None}, {"cpu_factor": "x"}, {"weight": None}, {"cpu_factor": -1.0}])
def test_damaged_online_json_is_told(damage: dict[str, Any]) -> None:
    """ValueError, not a cost that cannot be."""
    with pytest.raises(ValueError):
        Online.from_dict(Online(BENT).to_dict(0.0) | damage, 0.0)


@pytest.mark.parametrize(("cpu", "wall"), [(1.0, 0.0), (1.0, -1.0), (1.0, math.inf), (1.0, math.nan), (-1.0, 1.0)])
def test_a_run_that_did_not_run_teaches_nothing(cpu: float, wall: float) -> None:
    """It is refused, so that shedding cannot teach by mistake."""
    online = Online(BENT)
    with pytest.raises(ValueError, match="did not run"):
        online.observe(1, cpu, wall, 0.0)
    assert online.factors(0.0) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("weight", "half", "grace"), [(0.0, 1.0, 1.0), (1.1, 1.0, 1.0), (0.1, 0.0, 1.0), (0.1, 1.0, -1.0)]
)
def test_constants_that_cannot_be_meant(weight: float, half: float, grace: float) -> None:
    """A weight of nothing would never learn, a half-life of nothing would never remember."""
    with pytest.raises(ValueError, match="cannot be meant"):
        Online(BENT, weight=weight, half_life_s=half, grace_s=grace)
