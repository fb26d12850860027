"""core.confidence: intervals that know that latencies come in crowds."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from onbudget.core.confidence import (
    Interval,
    crowding,
    quantile_interval,
    share_interval,
    student_t,
    trend,
    values_needed,
)


def autoregressive(rng: np.random.Generator, n: int, correlation: float) -> npt.NDArray[np.float64]:
    """n values of mean 0 and variance 1, each `correlation` of the one before it."""
    noise = rng.standard_normal(n) * math.sqrt(1 - correlation**2)
    out = np.empty(n)
    last = rng.standard_normal()
    for i in range(n):
        last = out[i] = correlation * last + noise[i]
    return out


# From the printed tables of Student's t.
@pytest.mark.parametrize(
    ("p", "df", "printed"),
    [
        (0.975, 4, 2.776),
        (0.975, 9, 2.262),
        (0.975, 19, 2.093),
        (0.975, 30, 2.042),
        (0.975, 120, 1.980),
        (0.95, 9, 1.833),
        (0.95, 19, 1.729),
        (0.99, 19, 2.539),
        (0.995, 9, 3.250),
        (0.995, 19, 2.861),
    ],
)
def test_t_quantiles_are_those_of_the_tables(p: float, df: int, printed: float) -> None:
    """Within a hundredth of the value at 4 degrees of freedom and to the printed digits from 9."""
    assert student_t(p, df) == pytest.approx(printed, rel=0.01 if df < 9 else 0.0004)
    assert student_t(1 - p, df) == pytest.approx(-student_t(p, df))


def test_t_refuses_where_it_would_be_coarse() -> None:
    """Three degrees of freedom have heavier tails than the expansion knows."""
    with pytest.raises(ValueError, match="3 degrees"):
        student_t(0.975, 3)


def test_independent_values_have_no_crowd() -> None:
    """The mean crowding of independent flags is near 1 (it is cut at 1 from below)."""
    rng = np.random.default_rng(1)
    found = [crowding(rng.random(1600) < 0.05) for _ in range(60)]

    assert 1.0 <= float(np.mean(found)) < 1.5


def test_a_crowd_is_seen() -> None:
    """Flags that come in runs of forty tell a fortieth; flags that are all equal tell nothing of it."""
    rng = np.random.default_rng(2)
    found = [crowding(np.repeat(rng.random(200) < 0.1, 40)) for _ in range(40)]

    assert 25 < float(np.median(found)) < 60
    assert crowding(np.zeros(100, bool)) == crowding(np.ones(100, bool)) == 1.0
    with pytest.raises(ValueError, match="19 values"):
        crowding(np.zeros(19, bool))


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_intervals_of_a_share_cover_nearly_as_often_as_they_say(correlation: float) -> None:
    """Over 300 seeded AR(1) sequences, the 95 % interval holds the true share at least 91 times in 100."""
    rng = np.random.default_rng(3)
    limit, truth, n, rounds = 1.6448536269514722, 0.05, 2000, 300
    held = textbook = 0
    for _ in range(rounds):
        flags = autoregressive(rng, n, correlation) > limit
        share = float(flags.mean())
        found = share_interval(share, n / crowding(flags), student_t(0.975, 19))
        plain = share_interval(share, n, 1.96)
        held += found.low <= truth <= found.high
        textbook += plain.low <= truth <= plain.high

    assert 0.91 <= held / rounds <= 0.995
    if correlation:
        assert textbook / rounds < 0.75  # which is why it is not used


@pytest.mark.parametrize(("n", "passes"), [(72, False), (74, True)])
def test_no_late_answer_in_73_is_the_least_proof(n: int, passes: bool) -> None:
    """Wilson's upper bound of 0 in n, at 1.96 deviations, crosses 5 % at 19·1.96² = 73."""
    assert (share_interval(0.0, n, 1.96).high <= 0.05) is passes
    assert values_needed(0.0, 0.05, 1.96) == pytest.approx(72.99, abs=0.01)


@pytest.mark.parametrize("share", [0.01, 0.03, 0.045, 0.06, 0.2])
def test_values_needed_is_where_the_interval_leaves_the_target(share: float) -> None:
    """A hundredth more values than needed exclude the target, a hundredth fewer do not."""
    needed = values_needed(share, 0.05, 2.093)
    enough, short = share_interval(share, needed * 1.01, 2.093), share_interval(share, needed * 0.99, 2.093)

    assert not enough.low <= 0.05 <= enough.high
    assert short.low <= 0.05 <= short.high


def test_a_share_on_the_target_needs_endless_values() -> None:
    """Exactly 5 % late can never be settled."""
    assert values_needed(0.05, 0.05, 2.0) == math.inf


def test_a_quantiles_interval_is_its_neighbours_in_order() -> None:
    """For 1..1000 and independent values: 950 ± 1.96·sqrt(1000·0.0475), rounded outwards."""
    assert quantile_interval(np.arange(1.0, 1001), 0.95, 1000, 1.96) == Interval(936, 964)


def test_too_few_values_leave_a_quantile_open_above() -> None:
    """From thirty values the p95 has no upper bound; from none there is no interval at all."""
    assert quantile_interval(np.arange(1.0, 31), 0.95, 30, 2.26).high == math.inf
    with pytest.raises(ValueError, match="no values"):
        quantile_interval(np.array([]), 0.95, 1, 2.0)


def test_trend_is_a_rank_test() -> None:
    """Twenty values in order are 6.2 deviations, reversed ones minus that, equal ones none, and sizes do not matter."""
    rising = np.arange(20.0)

    assert trend(rising) == trend(np.exp(rising)) == pytest.approx(6.164, abs=0.001)
    assert trend(-rising) == -trend(rising)
    assert trend(np.ones(20)) == 0.0
    assert abs(trend(np.random.default_rng(4).random(20))) < 3


def test_intervals_overlap_where_they_share_a_value() -> None:
    """Touching counts."""
    assert Interval(1, 2).overlaps(Interval(2, 3))
    assert not Interval(1, 2).overlaps(Interval(2.1, 3))
