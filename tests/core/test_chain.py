"""The computed latency against a simulation, against closed forms and against bounds that others proved."""

from __future__ import annotations

import math
from bisect import bisect_right

import numpy as np
import pytest

from onbudget.core import chain
from onbudget.core.cost import Cost


def line(fixed: float, item: float, most: int = 64) -> Cost:
    return Cost.of({b: fixed + item * b for b in (1, most)})


STEPS = Cost.of({1: 1.0, 2: 1.9, 3: 1.95, 4: 2.0, 5: 3.4, 8: 3.6, 9: 6.0, 12: 6.4})  # GEMM tiles
BENT = Cost.of({1: 0.3, 2: 0.55, 4: 1.05, 8: 2.1, 16: 4.65, 32: 11.9})  # the cache is full at 8


def simulated(rate: float, cost: Cost, most: int, count: int, seed: int) -> np.ndarray:
    """Latencies of the greedy policy: Poisson arrivals, given that `count` of them came in `count / rate` seconds."""
    arrivals = np.sort(np.random.default_rng(seed).uniform(0, count / rate, count)).tolist()
    takes = [0.0, *(cost.seconds(b) for b in range(1, most + 1))]
    latencies: list[float] = []
    now, first = 0.0, 0
    while first < count:
        now = max(now, arrivals[first])
        batch = min(most, bisect_right(arrivals, now, first) - first)
        now += takes[batch]
        latencies += [now - at for at in arrivals[first : first + batch]]
        first += batch
    return np.array(latencies[count // 50 :])


@pytest.mark.parametrize(
    ("cost", "most", "load"),
    [
        (line(2, 1), 64, 0.3),
        (line(2, 1), 8, 0.6),
        (line(2, 1), 4, 0.8),
        (line(8, 6), 16, 0.7),
        (line(0.1, 2), 1, 0.7),
        (line(0.1, 2), 4, 0.75),
        (line(4, 0.5), 16, 0.8),
        (STEPS, 12, 0.6),
        (STEPS, 5, 0.75),
        (BENT, 8, 0.5),
        (BENT, 32, 0.8),
    ],
)
def test_p95_and_mean_are_those_of_a_simulation(cost: Cost, most: int, load: float) -> None:
    """Within 3 % and 2 % over fixed costs, steep ones, steps and bends, with and without queues beyond a batch."""
    rate = load * most / cost.seconds(most)
    found = chain.latency(rate, cost, most)
    assert found is not None
    seen = simulated(rate, cost, most, 60_000, seed=1)
    assert found.quantile(0.95) == pytest.approx(float(np.quantile(seen, 0.95)), rel=0.03)
    assert found.mean() == pytest.approx(float(seen.mean()), rel=0.02)
    for x in np.quantile(seen, [0.1, 0.5, 0.9]):
        x += 1e-6  # a lone request's latency is one number, and sums of clock times are only near it
        assert found.cdf(float(x)) == pytest.approx(float((seen <= x).mean()), abs=0.015)


@pytest.mark.parametrize("load", [0.1, 0.5, 0.8, 0.95])
def test_runs_of_one_are_erlangs_single_server(load: float) -> None:
    """Batch 1 is M/D/1, whose distribution is known in closed form; the mean agrees to six digits."""
    rate, cost = load / 2, Cost.of({1: 2.0})
    found = chain.latency(rate, cost, 1)
    assert found is not None
    assert found.mean() == pytest.approx(2 + load / (2 * (1 - load)) * 2, rel=1e-6)
    for wait in (0.5, 2.0, 3.7, 9.0):
        waits = range(int(wait / 2) + 1)
        terms = [math.exp(-rate * (j * 2 - wait)) * (rate * (j * 2 - wait)) ** j / math.factorial(j) for j in waits]
        assert found.cdf(2 + wait) == pytest.approx((1 - load) * math.fsum(terms), abs=2e-3)


@pytest.mark.parametrize(("fixed", "item"), [(2.0, 1.0), (8.0, 6.0), (4.0, 0.5), (0.1, 2.0)])
@pytest.mark.parametrize("load", [0.5, 0.7, 0.85])
def test_the_mean_keeps_inoues_bounds(fixed: float, item: float, load: float) -> None:
    """Everything that waits is taken, L(b) is a line: the mean is below both bounds and near one (arXiv 1912.06322)."""
    rate = load / item
    busy, both = 1 - load, 1 + load
    first = (item + fixed) / (2 * busy) * (1 + 2 * rate * fixed + (1 - rate * fixed) / both)
    second = 1.5 * fixed / busy + item * (load + 2) / (2 * busy * both)
    found = chain.mean(rate, line(fixed, item, 512), 512)
    assert found <= min(first, second) * (1 + 1e-6)
    assert found >= 0.9 * second


def test_unlimited_batches_have_the_textbook_cdf() -> None:
    """Where everything that waits fits in one run, the sum over the stationary law is the one that theory states."""
    cost, rate, states = line(2, 1, 512), 0.6, 80
    takes = np.array([cost.seconds(n) for n in range(1, states + 1)])
    law = np.full(states, 1 / states)
    pmf = np.array(
        [[math.exp(-rate * t + m * math.log(rate * t) - math.lgamma(m + 1)) for m in range(states + 1)] for t in takes]
    )
    moves = pmf[:, 1:].copy()
    moves[:, 0] += pmf[:, 0]
    for _ in range(2000):
        law = law @ moves
        law /= law.sum()
    x, m = 9.0, np.arange(1, states + 1)
    shares = np.clip((x - takes[None, :]) / takes[:, None], 0, 1)
    busy = float((law[:, None] * pmf[:, 1:] * m * shares).sum())
    idle = float(law @ pmf[:, 0])
    norm = float((law[:, None] * pmf[:, 1:] * m).sum()) + idle
    assert chain.latency_cdf(rate, cost, 512, x) == pytest.approx((busy + idle) / norm, abs=1e-6)


def test_a_lone_request_waits_for_nobody() -> None:
    """At a rate of almost nothing, latency is L(1)."""
    found = chain.latency(1e-6, line(2, 1), 8)
    assert found is not None
    assert found.quantile(0.95) == pytest.approx(3, rel=1e-5)
    assert found.mean() == pytest.approx(3, rel=1e-5)
    assert found.cdf(2.99) < 1e-5
    assert found.cdf(3.0) > 0.9999


@pytest.mark.parametrize("load", [1.0, 1.5, 0.999])
def test_a_queue_that_grows_for_ever_has_no_percentile(load: float) -> None:
    """At saturation and next to it: infinite, and nobody is in time."""
    cost = line(2, 1)
    rate = load * 16 / cost.seconds(16)
    assert chain.latency(rate, cost, 16) is None
    assert chain.p95(rate, cost, 16) == chain.mean(rate, cost, 16) == math.inf
    assert chain.latency_cdf(rate, cost, 16, 1000.0) == 0


@pytest.mark.parametrize("load", [0.2, 0.6, 0.95])
@pytest.mark.parametrize("most", [1, 3, 16])
def test_enough_states_are_kept(monkeypatch: pytest.MonkeyPatch, load: float, most: int) -> None:
    """Keeping a hundred times less of the tail out, in four times as many cells, changes nothing that matters."""
    cost = line(2, 1)
    rate = load * most / cost.seconds(most)
    before = chain.latency(rate, cost, most)
    monkeypatch.setattr(chain, "_LOST", 1e-8)
    monkeypatch.setattr(chain, "_CELLS", 64)
    after = chain.latency(rate, cost, most)
    assert before is not None
    assert after is not None
    assert float(before.weight.sum()) == pytest.approx(1, abs=1e-9)
    assert before.quantile(0.95) == pytest.approx(after.quantile(0.95), rel=1e-3)
    assert before.mean() == pytest.approx(after.mean(), rel=1e-4)


def test_a_larger_limit_costs_no_states_where_nobody_queues() -> None:
    """At a light load the largest batch does not matter, and a limit of 1024 is no harder to compute than 64."""
    assert chain.p95(0.2, line(2, 1), 64) == pytest.approx(chain.p95(0.2, line(2, 1), 1024), rel=1e-9)


@pytest.mark.parametrize(("budget", "most"), [(9.0, 64), (30.0, 64), (30.0, 4), (60.0, 1)])
def test_the_limit_rate_is_where_p95_meets_the_budget(budget: float, most: int) -> None:
    """Within the budget at the limit, and out of it a little above."""
    cost = line(2, 1)
    limit = chain.limit_rate(budget, cost, most)
    assert chain.p95(limit, cost, most) <= budget
    assert chain.p95(limit * 1.005, cost, most) > budget


def test_limit_rates_are_those_of_the_theory() -> None:
    """Greedy's share of capacity at D = 3, 5 and 10 L(1), as simulated independently for these costs."""
    for (fixed, item), shares in {
        (2.0, 1.0): (0.339, 0.573, 0.792),
        (0.1, 2.0): (0.395, 0.583, 0.769),
        (0.3, 0.2): (0.341, 0.564, 0.784),
    }.items():
        cost = line(fixed, item)
        for times, share in zip((3, 5, 10), shares, strict=True):
            found = chain.limit_rate(times * cost.seconds(1), cost, 64) / cost.capacity(64)
            assert found == pytest.approx(share, abs=0.03), (fixed, item, times)


def test_a_budget_below_one_run_has_no_rate() -> None:
    """Not even a lone request is in time: 0, not a small number."""
    assert chain.limit_rate(2.9, line(2, 1), 8) == 0


def test_a_stricter_quantile_allows_less() -> None:
    """The same budget at p99 holds at a lower rate than at p95."""
    cost = line(2, 1)
    assert 0 < chain.limit_rate(15, cost, 8, q=0.99) < chain.limit_rate(15, cost, 8)


@pytest.mark.parametrize(("rate", "most"), [(0.0, 8), (-1.0, 8), (math.inf, 8), (1.0, 0)])
def test_what_cannot_be_meant_is_told(rate: float, most: int) -> None:
    """No rate, or no batch."""
    with pytest.raises(ValueError, match="cannot be meant"):
        chain.latency(rate, line(2, 1), most)
