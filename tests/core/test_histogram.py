"""core.histogram: nothing is lost, a given edge is exact, percentiles are numpy's."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onbudget.core.histogram import Histogram, Quantile, Tally, log_edges, percentile

durations = st.floats(0, 1e6) | st.just(math.inf)


def test_a_budget_that_was_given_is_an_edge_and_its_count_is_exact() -> None:
    """A value of exactly the budget is within it, the next float above is not."""
    histogram = Histogram(0.02)
    histogram.record_many([0.02, math.nextafter(0.02, 1), 0.019, 0.5])

    assert histogram.within(0.02) == 2


def test_what_is_not_an_edge_cannot_be_counted_exactly() -> None:
    """Asking for an exact count at another value than an edge is an error, not an estimate."""
    with pytest.raises(ValueError, match="not a bucket edge"):
        Histogram().within(0.0213)


def test_usual_edges_are_log_spaced() -> None:
    """From 10 µs to 1000 s in equal factors of 7.5 %."""
    edges = log_edges()
    factors = {round(b / a, 9) for a, b in itertools.pairwise(edges)}

    assert (round(edges[0], 12), round(edges[-1], 6)) == (1e-5, 1000)
    assert factors == {round(10 ** (1 / 32), 9)}


@given(st.lists(durations, max_size=60))
def test_every_value_is_counted_somewhere(values: list[float]) -> None:
    """Values below the first edge, above the last and infinite ones are all in the counts."""
    histogram = Histogram(edges=[0.001, 1.0])
    histogram.record_many(values)

    assert sum(histogram.counts) == histogram.count == len(values)
    assert histogram.endless == sum(v == math.inf for v in values)
    assert histogram.total == pytest.approx(sum(v for v in values if v < math.inf))
    assert [n for _, n in histogram.cumulative()][-1] == len(values)


@pytest.mark.parametrize("bad", [math.nan, -0.001, -math.inf])
def test_what_is_no_duration_is_refused(bad: float) -> None:
    """NaN and negative values are errors; nothing is counted."""
    histogram = Histogram()
    with pytest.raises(ValueError, match="not a duration"):
        histogram.record(bad)

    assert (histogram.count, sum(histogram.counts)) == (0, 0)


@pytest.mark.parametrize("bad", [[], [0.0], [math.inf], [-1.0, 1.0]])
def test_edges_that_cannot_be_are_refused(bad: list[float]) -> None:
    """Edges are finite and above zero, and there is at least one."""
    with pytest.raises(ValueError, match="bucket edges"):
        Histogram(edges=bad)


@given(st.lists(durations, max_size=40), st.lists(durations, max_size=40))
def test_merging_is_recording_everything_in_one(ours: list[float], theirs: list[float]) -> None:
    """Counts, sums and the largest value of a merged histogram are those of one that saw all values."""
    left, right, both = Histogram(0.02), Histogram(0.02), Histogram(0.02)
    left.record_many(ours)
    right.record_many(theirs)
    both.record_many(ours + theirs)
    left.merge(right)

    assert (left.counts, left.count, left.endless) == (both.counts, both.count, both.endless)
    assert (left.largest, left.total) == (both.largest, pytest.approx(both.total))


def test_a_window_is_what_came_since() -> None:
    """Subtracting an earlier copy leaves the values between."""
    histogram = Histogram(0.02)
    histogram.record_many([0.001, math.inf])
    earlier = histogram.copy()
    histogram.record_many([0.01, 0.03])
    window = histogram.since(earlier)

    assert (window.count, window.within(0.02), window.endless) == (2, 1, 0)
    with pytest.raises(ValueError, match="has not"):
        earlier.since(histogram)


def test_histograms_of_other_edges_cannot_be_combined() -> None:
    """Merging different edges is an error: it would put counts into wrong buckets."""
    with pytest.raises(ValueError, match="different edges"):
        Histogram(0.02).merge(Histogram(0.025))


def test_a_quantile_below_its_count_is_none() -> None:
    """Nineteen values have no p95 when twenty are asked for; the twentieth brings it, with its count."""
    histogram = Histogram(edges=[0.001, 0.01, 0.1])
    histogram.record_many([0.01] * 19)
    assert histogram.quantile(0.95, at_least=20) is None
    histogram.record(0.01)

    assert histogram.quantile(0.95, at_least=20) == Quantile(pytest.approx(0.00955), 20)
    assert Histogram().quantile(0.5) is None


def test_a_quantile_among_answers_that_never_came_is_infinite() -> None:
    """With six of a hundred infinite, p94 is finite and p95 is not."""
    histogram = Histogram()
    histogram.record_many([0.01] * 94 + [math.inf] * 6)

    assert histogram.quantile(0.94) == Quantile(pytest.approx(0.01, rel=0.08), 100)
    assert histogram.quantile(0.95) == Quantile(math.inf, 100)


@given(st.lists(st.floats(1.1e-5, 900), min_size=1, max_size=200), st.sampled_from([0.01, 0.5, 0.9, 0.95, 0.99, 1.0]))
def test_a_quantile_is_in_the_bucket_of_the_true_one(values: list[float], q: float) -> None:
    """It errs by at most one bucket of 7.5 %, and never across the given edge."""
    histogram = Histogram(0.02)
    histogram.record_many(values)
    true = sorted(values)[max(1, math.ceil(q * len(values) - 1e-9)) - 1]
    told = histogram.quantile(q)

    assert told is not None
    assert true / 1.0751 <= told.value <= true * 1.0751
    assert (told.value <= 0.02) == (true <= 0.02)


def test_values_over_the_last_edge_have_a_quantile_up_to_the_largest() -> None:
    """The open bucket is bounded by the largest value that was seen."""
    histogram = Histogram(edges=[0.001])
    histogram.record_many([5.0, 7.0])

    assert histogram.quantile(1.0) == Quantile(7.0, 2)


@pytest.mark.parametrize("bad", [0.0, -0.1, 1.01])
def test_a_quantile_is_a_share(bad: float) -> None:
    """0.95 is meant, not 95."""
    with pytest.raises(ValueError, match="a share"):
        Histogram().quantile(bad)


def test_percentile_equals_numpys_linear_interpolation_bit_for_bit() -> None:
    """Contract A8: on lists of every length from 1 to 60 and many percentiles."""
    rng = random.Random(8)
    for size in range(1, 61):
        values = [rng.expovariate(100) for _ in range(size)]
        for q in (0, 1, 5, 12.5, 25, 50, 75, 90, 95, 99, 99.9, 100):
            assert percentile(values, q) == float(np.percentile(values, q)), (size, q)


def test_percentile_with_infinities_is_never_nan() -> None:
    """A refused request is infinitely late: p50 of mostly answered ones is finite, p95 infinite."""
    values = [0.01] * 9 + [math.inf]

    assert percentile(values, 50) == 0.01
    assert percentile(values, 95) == math.inf
    assert percentile([math.inf, math.inf], 50) == math.inf


@pytest.mark.parametrize(("values", "q"), [([], 50), ([0.1, math.nan], 50), ([0.1], -1), ([0.1], 101)])
def test_percentile_refuses_what_has_none(values: list[float], q: float) -> None:
    """No values, NaN, or a percentile outside 0 to 100."""
    with pytest.raises(ValueError, match="percentile"):
        percentile(values, q)


@given(st.lists(st.one_of(st.floats(0, 2000), st.sampled_from([0.0, 0.02, 0.5, math.inf]))))
def test_counting_many_at_once_is_counting_each(values: list[float]) -> None:
    """Edges, values beyond the last one and infinity included; a tally folds to the same, in any number of steps."""
    each, many, tally = Histogram(0.02), Histogram(0.02), Tally(0.02)
    many.record_many(values)
    for number, value in enumerate(values):
        each.record(value)
        tally.record(value)
        if number % 3 == 0:
            tally.fold()
    tally.fold()
    for other in (many, tally.histogram):
        assert (other.counts, other.count, other.endless) == (each.counts, each.count, each.endless)
        assert (other.largest, other.total) == (each.largest, pytest.approx(each.total))


@pytest.mark.parametrize("value", [-1e-9, math.nan, -math.inf])
def test_what_is_no_duration_among_many_spoils_only_them(value: float) -> None:
    """None of them is counted, the error says which it was, and the next ones are counted."""
    tally = Tally()
    tally.record(0.1)
    tally.record(value)
    with pytest.raises(ValueError, match="is not a duration"):
        tally.fold()
    tally.record(0.2)
    assert tally.fold().count == 1
