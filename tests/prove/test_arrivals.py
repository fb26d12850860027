"""prove.arrivals: an absolute schedule and pacing as functions of numbers."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from onbudget.core.errors import UsageError
from onbudget.prove.arrivals import constant, pause, poisson, trace


def test_poisson_arrivals_are_running_sums_of_the_seeded_exponentials() -> None:
    """Contract A9: arrival i is the sum of the first i draws of random.Random(seed).expovariate(rate)."""
    schedule = poisson(200, 1.0, seed=7)
    rng = random.Random(7)
    sums = list(itertools.accumulate(rng.expovariate(200) for _ in range(len(schedule.offsets))))

    assert list(schedule.offsets) == sums
    assert sums[-1] < 1.0 <= sums[-1] + rng.expovariate(200)


def test_the_same_seed_gives_the_same_pattern_at_another_rate() -> None:
    """Twice the rate is the same bursts, twice as fast, so that two rates can be compared."""
    slow, fast = poisson(100, 4.0, seed=3).offsets, poisson(200, 2.0, seed=3).offsets

    assert list(fast) == pytest.approx([at / 2 for at in slow])
    assert poisson(100, 4.0, seed=4).offsets != slow


def test_poisson_gaps_have_the_mean_and_the_spread_of_an_exponential() -> None:
    """Over 20,000 arrivals mean and standard deviation are both 1/rate within 3 %."""
    offsets = poisson(1000, 20.0, seed=1).offsets
    gaps = [b - a for a, b in itertools.pairwise(offsets)]
    mean = sum(gaps) / len(gaps)
    spread = math.sqrt(sum((g - mean) ** 2 for g in gaps) / len(gaps))

    assert (mean, spread) == (pytest.approx(0.001, rel=0.03), pytest.approx(0.001, rel=0.03))


def test_the_warm_up_comes_before_the_duration() -> None:
    """2 s of warm-up and 3 s of duration are 5 s of arrivals, of which 3 s are judged."""
    schedule = constant(10, 3.0, 2.0)

    assert (schedule.total_s, schedule.duration_s, len(schedule.offsets)) == (5.0, 3.0, 50)


@pytest.mark.parametrize(("rate", "seconds"), [(3, 1), (10, 0.3), (1000, 2.5), (7, 10)])
def test_constant_arrivals_do_not_drift(rate: float, seconds: float) -> None:
    """Arrival i is due at exactly i/rate, the last one included."""
    offsets = list(constant(rate, seconds).offsets)

    assert offsets == [i / rate for i in range(1, round(rate * seconds) + 1)]


# elapsed, sent already → sent afterwards, for arrivals at 0.1 0.2 … 1.0
DUE = [(0.0, 0, 0), (0.0999, 0, 0), (0.1, 0, 1), (0.35, 0, 3), (0.35, 3, 3), (0.1, 3, 3), (9.0, 2, 10), (9.0, 10, 10)]


@pytest.mark.parametrize(("elapsed", "sent", "expected"), DUE)
def test_what_is_due_depends_on_two_numbers(elapsed: float, sent: int, expected: int) -> None:
    """All whose moment has come, none that was sent before, whatever the answers do."""
    assert constant(10, 1.0).due(elapsed, sent) == expected


# due in, how early to wake, the shortest sleep → how long to sleep
PAUSES = [
    (0.050, 0.0015, 0.001, 0.0485),
    (0.0026, 0.0015, 0.001, 0.0011),
    (0.0025, 0.0015, 0.001, 0.0),
    (0.0, 0.0015, 0.001, 0.0),
    (-0.010, 0.0015, 0.001, 0.0),
    (0.002, 0.00006, 0.00005, 0.00194),
    (0.0001, 0.00006, 0.00005, 0.0),
]


@pytest.mark.parametrize(("until_due", "exact", "coarse", "expected"), PAUSES)
def test_pacing_sleeps_while_the_next_request_is_far_and_spins_when_near(
    until_due: float, exact: float, coarse: float, expected: float
) -> None:
    """It wakes early by what the timer may err; nearer than that it does not sleep."""
    assert pause(until_due, exact, coarse) == pytest.approx(expected)


def test_a_trace_is_one_offset_a_line() -> None:
    """Blank lines and comments are skipped, equal moments are allowed, the last arrival ends it."""
    schedule = trace(["# seconds\n", "0\n", "\n", "0.5\n", "0.5\n", "2\n"], "t.txt")

    assert list(schedule.offsets) == [0, 0.5, 0.5, 2]
    assert (schedule.kind, schedule.total_s, schedule.rate) == ("trace", 2.0, 2.0)


def test_a_trace_may_be_json_lines_or_a_run_file() -> None:
    """{"at": …} a line; or what `load -o` wrote: its hits begin with when they were due, the rest is passed over."""
    assert list(trace(['{"at": 0.25}', '{"at": 1}'], "t.jsonl").offsets) == [0.25, 1.0]
    run = ['{"schema":1,"kind":"load"}', "[0.125,0.00001,0.0001,0.02,200]", "[0.5,0,0,null,0]", '{"summary":{}}']
    assert list(trace(run, "run.jsonl").offsets) == [0.125, 0.5]


def test_a_trace_is_cut_where_the_duration_ends() -> None:
    """Warm-up and duration count from its beginning."""
    schedule = trace(["0.5", "1.5", "2.5", "3.5"], "t", duration_s=2.0, warmup_s=1.0)

    assert (list(schedule.offsets), schedule.total_s) == ([0.5, 1.5, 2.5], 3.0)


BAD_TRACES = [
    (["1", "0.5"], "t.txt, line 2: 0.5 s comes before 1 s"),
    (["1", "soon"], "line 2: 'soon' is not an offset"),
    (["-1"], "line 1: '-1' is not an offset in seconds, zero or more"),
    (["NaN"], "line 1: 'NaN' is not"),
    (["Infinity"], "line 1"),
    (["true"], "line 1"),
    (['{"when": 3}'], "line 1"),
    (["[]"], "line 1"),
    (["", "# nothing"], "t.txt has no arrivals"),
]


@pytest.mark.parametrize(("lines", "message"), BAD_TRACES)
def test_a_trace_that_cannot_be_meant_names_its_line(lines: list[str], message: str) -> None:
    """Going back in time, words, negative, NaN, infinite, other JSON, and nothing at all."""
    with pytest.raises(UsageError, match=message):
        trace(lines, "t.txt")


def test_a_trace_within_the_warm_up_says_what_to_do() -> None:
    """A trace of one second has nothing to judge after two of warm-up."""
    with pytest.raises(UsageError, match="--warmup 0s"):
        trace(["0.5", "1.0"], "t", warmup_s=2.0)


def test_a_test_in_which_nobody_comes_is_refused() -> None:
    """One request a minute for a second is no test; nor is one whose only arrivals are in the warm-up."""
    with pytest.raises(UsageError, match="raise --rate or --duration"):
        poisson(1 / 60, 1.0)
    with pytest.raises(UsageError, match="raise --rate or --duration"):
        trace(["0.5"], "t", duration_s=1.0, warmup_s=1.0)
