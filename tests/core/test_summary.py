"""core.summary: counts, percentiles and the one conclusion."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt
import pytest

from onbudget.core.records import Ending, Header, Hits, Outcome
from onbudget.core.summary import NEVER_SENT, NO_PORTS, STOPPED, TIMED_OUT, Summary, allowed_lag, judge_lag, summarise

HEADER = Header(
    command="onbudget load x",
    target="http://x/predict",
    arrivals="constant",
    rate=100.0,
    seed=None,
    warmup_s=1.0,
    duration_s=10.0,
    timeout_s=10.0,
    connections=512,
    p95_s=0.02,
)
OUTCOMES = (
    Outcome(0, "pending"),
    Outcome(200),
    Outcome(429, "queue full"),
    Outcome(503, "draining"),
    Outcome(500, "the run raised"),
    Outcome(0, TIMED_OUT),
    Outcome(0, "connection reset"),
    Outcome(0, NEVER_SENT),
    Outcome(0, STOPPED),
    Outcome(0, NO_PORTS),
)


def hits(count: int = 1100, latency: float = 0.01, lag: float = 0.00005) -> Hits:
    """`count` requests at 100/s, the first 100 of them in the warm-up, all answered after `latency`."""
    due = np.arange(1, count + 1) / 100
    return Hits(
        due, np.full(count, lag), np.full(count, lag), np.full(count, latency), np.ones(count, np.int16), OUTCOMES
    )


def with_outcomes(told: Hits, codes: dict[int, npt.ArrayLike]) -> Hits:
    """The same, but those at the given places ended otherwise (code → places)."""
    outcome, done = told.outcome.copy(), told.done.copy()
    for code, places in codes.items():
        outcome[places] = code
        done[places] = math.nan if not OUTCOMES[code].status else 0.001
    return dataclasses.replace(told, outcome=outcome, done=done)


def judged(told: Hits, header: Header = HEADER, ending: Ending | None = None) -> Summary:
    return summarise(header, told, ending or Ending(seconds=11.0))


def test_a_quiet_run_is_met() -> None:
    """All in time, steady, on time: met, exit code 0, and the counts leave the warm-up out."""
    told = judged(hits())

    assert (told.word, told.exit_code, told.void, told.notes) == ("met", 0, "", ())
    assert (told.offered, told.answered, told.in_budget, told.late_sends) == (1001, 1001, 1001, 0)
    assert (told.latency.p50, told.latency.p95, told.latency.largest) == (0.01, 0.01, 0.01)
    assert told.from_send.p95 == pytest.approx(0.00995)


def test_everything_that_is_no_answer_is_counted_by_its_kind_and_late() -> None:
    """Refusals by reason, other statuses, errors, the unanswered; each infinitely late, and none lost."""
    codes = {2: [200, 201, 202], 3: [210], 4: [220, 221], 5: [230], 6: [240, 241], 7: [250], 8: [260]}
    told = judged(with_outcomes(hits(), codes))

    assert told.refused == {"429 queue full": 3, "503 draining": 1}
    assert told.statuses == {"500 the run raised": 2}
    assert told.errors == {"connection reset": 2, TIMED_OUT: 1, NEVER_SENT: 1, STOPPED: 1}
    assert told.unanswered == 3
    assert told.answered == 1001 - 11 == told.in_budget
    assert told.verdict is not None
    assert told.verdict.late == 11
    assert told.latency.p99 == math.inf
    assert told.latency.largest == 0.01


def test_a_server_that_only_refuses_misses_its_budget_however_quickly() -> None:
    """A thousand refusals in a millisecond each: missed, exit code 10."""
    told = judged(with_outcomes(hits(), {2: np.arange(1100)}))

    assert (told.word, told.exit_code, told.answered) == ("missed", 10, 0)
    assert told.latency.p50 == math.inf
    assert math.isnan(told.latency.largest)


def test_what_happened_in_the_warm_up_is_not_judged() -> None:
    """Ninety failures before the first second is over change nothing."""
    told = judged(with_outcomes(hits(), {6: np.arange(90)}))

    assert (told.word, told.errors) == ("met", {})


def test_throughput_is_what_came_within_the_judged_seconds() -> None:
    """Answers that all came after the end are no throughput, though each was answered."""
    assert judged(hits()).throughput == pytest.approx(100, abs=0.2)
    late = judged(hits(latency=10.5))

    assert late.answered == 1001
    assert late.throughput == pytest.approx(5, abs=0.2)


@pytest.mark.parametrize(("share", "void"), [(0.0, False), (0.005, False), (0.02, True), (1.0, True)])
def test_a_generator_that_was_late_makes_the_run_void(share: float, void: bool) -> None:
    """Later than 1 ms (5 % of 20 ms) for more than one request in a hundred: no verdict, exit code 11 (pain 77)."""
    told = hits()
    lag = told.lag.copy()
    lag[99 : 99 + math.ceil(share * 1001)] = 0.05
    found = judged(dataclasses.replace(told, lag=lag))

    assert (found.word, found.exit_code) == (("void", 11) if void else ("met", 0))
    assert found.late_sends == math.ceil(share * 1001)
    assert ("generator itself was late" in found.void) is void


# lags, allowed, share of time starved → what the words have in them
LAGS = [
    ([], 0.001, None, ""),
    ([0.0009] * 100, 0.001, 0.5, ""),
    ([0.0] * 995 + [5.0] * 5, 0.001, None, ""),
    (
        [0.0] * 980 + [0.005] * 20,
        0.001,
        None,
        "by 5 ms or more for one request in a hundred, where 1 ms is allowed. Give",
    ),
    ([0.005] * 100, 0.001, 0.31, "it wanted a CPU 31% of the time and got none. Give it a core of its own"),
    ([0.005] * 100, 0.01, 0.31, ""),
]


@pytest.mark.parametrize(("lags", "allowed", "starved", "expected"), LAGS)
def test_lag_is_judged_by_its_p99(lags: list[float], allowed: float, starved: float | None, expected: str) -> None:
    """A pure function of the lags; where the system tells that the CPU was taken away, the words say so (pain 77)."""
    found = judge_lag(lags, allowed, starved)

    assert expected in found
    assert bool(found) is bool(expected)


@pytest.mark.parametrize(
    ("budget", "p50", "expected"),
    [
        (0.02, 9.0, 0.001),
        (0.25, 9.0, 0.0125),
        (None, 0.1, 0.005),
        (None, 0.001, 0.001),
        (None, math.inf, 0.001),
        (None, math.nan, 0.001),
    ],
)
def test_allowed_lag_is_a_twentieth_of_the_budget_or_of_the_p50(
    budget: float | None, p50: float, expected: float
) -> None:
    """At least a millisecond, which is what a person would not see in a p95."""
    assert allowed_lag(budget, p50) == pytest.approx(expected)


def test_a_fault_of_the_generators_machine_makes_the_run_void() -> None:
    """No local port left is not the server's failure: the run is void and says what to do."""
    told = judged(with_outcomes(hits(), {9: [300, 301]}))

    assert told.word == "void"
    assert "2 requests failed on this side: no local port left here" in told.void


def test_a_growing_backlog_has_no_verdict() -> None:
    """Latency that rises all the way is unsteady, exit code 11, even where every answer was in budget so far."""
    told = hits()
    rising = dataclasses.replace(told, done=np.linspace(0.001, 0.019, len(told)))
    found = judged(rising)

    assert (found.word, found.exit_code, found.steadiness.word) == ("unsteady", 11, "rising")


def test_few_requests_are_undecided() -> None:
    """Thirty answers in time are not enough: exit code 11 and how many more."""
    told = judged(hits(130), ending=Ending(seconds=1.3))

    assert (told.word, told.exit_code) == ("undecided", 11)
    assert told.verdict is not None
    assert (told.verdict.more or 0) > 0


@pytest.mark.parametrize(("answered", "code"), [(True, 0), (False, 1)])
def test_without_a_budget_a_run_is_measured(answered: bool, code: int) -> None:
    """Exit code 0, or 1 where not one request was answered."""
    header = dataclasses.replace(HEADER, p95_s=None)
    told = judged(hits() if answered else with_outcomes(hits(), {4: np.arange(1100)}), header)

    assert (told.word, told.exit_code, told.verdict, told.in_budget) == ("measured", code, None, None)


def test_a_run_that_was_stopped_says_so_with_its_code() -> None:
    """130, as a shell has it for Ctrl-C, whatever was found so far; the rate is over the time that it had."""
    told = judged(hits(600), ending=Ending(seconds=6.0, partial=True))

    assert (told.partial, told.exit_code, told.word, told.seconds) == (True, 130, "met", 5.0)
    assert told.throughput == pytest.approx(100, abs=0.5)


def test_a_run_stopped_in_its_warm_up_has_nothing_to_tell() -> None:
    """No percentile, no throughput, no crash."""
    told = judged(hits(50), ending=Ending(seconds=0.5, partial=True))

    assert (told.offered, told.throughput, told.seconds, told.p95_range) == (0, 0.0, 0.0, None)
    assert math.isnan(told.latency.p95)
    assert told.word == "undecided"


def test_notes_tell_of_connections_and_of_a_slow_start() -> None:
    """Requests that were held or sent twice, and a beginning that a longer warm-up would leave out."""
    told = hits()
    done = told.done.copy()
    done[100:300] = 0.018
    done += np.random.default_rng(1).normal(0, 0.0002, len(done))
    found = judged(dataclasses.replace(told, done=done), ending=Ending(seconds=11.0, held=3, resent=2))

    assert [text.split(" ")[0] for text in found.notes] == ["3", "2", "the"]
    assert "all 512 were busy" in found.notes[0]
    assert "--warmup 4s" in found.notes[2]  # two seconds of a slow start after one of warm-up, rounded up
