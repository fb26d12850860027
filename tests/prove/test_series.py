"""prove.series: what charts are drawn from; exact, whole, and small however many requests there were."""

from __future__ import annotations

import dataclasses
import json
import math
from itertools import pairwise

import numpy as np
import pytest

from onbudget.core.records import Ending
from onbudget.prove.series import Named, at_share, batch_sizes, bins, distribution, over_time, sized, traffic
from tests.support.runs import made


def test_every_request_is_in_one_stretch() -> None:
    """Offered is answered, refused and failed together, each as many as the run has; stretches meet."""
    run = made(refused=50, silent=7)
    found = bins(run.hits, 11.0)

    def total(name: str) -> int:
        return round(sum(getattr(one, name) * one.seconds for one in found))

    assert [total(name) for name in ("offered", "answered", "refused", "failed")] == [1100, 1043, 50, 7]
    assert all(math.isclose(a.start + a.seconds, b.start) for a, b in pairwise(found))
    assert (found[0].start, found[-1].start + found[-1].seconds) == (0.0, pytest.approx(11.0))


def test_answers_long_after_the_end_have_stretches_of_their_own() -> None:
    """Nobody is due there; and what came just after the end makes no stretch."""
    run = made()
    late = dataclasses.replace(run, hits=dataclasses.replace(run.hits, done=np.full(1100, 3.0)))
    found = bins(late.hits, 11.0)
    tail = [one for one in found if one.start >= 11.0]
    assert tail
    assert {one.offered for one in tail} == {0.0}
    assert all(math.isnan(one.p95) for one in tail)
    assert sum(one.answered * one.seconds for one in tail) == pytest.approx(300)
    assert found[0].answered == 0.0
    assert bins(run.hits, 11.0)[-1].start < 11.0


@pytest.mark.parametrize(
    ("count", "most", "length"), [(1100, 120, 0.5), (1100, 20, 1.0), (110_000, 120, 0.1), (30, 120, 2.0)]
)
def test_stretches_are_round_and_hold_enough(count: int, most: int, length: float) -> None:
    """Some forty requests in each where the run has them, ten stretches at least where it has not, and not too many."""
    assert bins(made(count=count).hits, 11.0, most)[0].seconds == pytest.approx(length)


def test_a_stretch_has_the_percentiles_of_those_who_were_due_in_it() -> None:
    """Half, 95 % and all of them were at most so late; who got no answer is infinitely late."""
    run = made(silent=1)
    found = bins(run.hits, 11.0)
    values = np.sort(run.hits.latency()[run.hits.due < found[0].seconds])
    assert found[0].p50 == values[math.ceil(len(values) / 2) - 1]
    assert found[0].slowest == values[-1]
    assert sum(one.slowest == math.inf for one in found) == 1


def test_the_percentile_curve_is_exact() -> None:
    """Each point is an order statistic of all requests: of a hundred thousand, too, and of those without an answer."""
    run = made(count=110_000, refused=2000)
    (line, send) = distribution([Named("a", run)])["lines"]
    ordered = np.sort(run.hits.after(1.0).latency())
    assert line["x"][0] == 1.0
    assert line["x"][-1] == len(ordered) == 100_000
    assert 20.0 in line["x"]
    for x, y in zip(line["x"], line["y"], strict=True):
        wanted = ordered[max(0, math.ceil(len(ordered) * (1 - 1 / x) - 1e-6) - 1)]
        assert (math.inf if y is None else y / 1e3) == pytest.approx(wanted, rel=1e-4)
    assert line["y"][-1] is None
    assert send["label"] == "from the send"


def test_a_share_of_few_values() -> None:
    """The least value that so many were at most; NaN of none."""
    values = np.array([1.0, 2.0, 3.0, math.inf])
    assert [at_share(values, share) for share in (0.0, 0.25, 0.26, 0.75, 1.0)] == [1.0, 1.0, 2.0, 3.0, math.inf]
    assert math.isnan(at_share(np.array([]), 0.5))


def test_a_million_requests_are_drawn_with_few_points() -> None:
    """All four charts of them together are under 60 kB."""
    run = made(count=1_100_000, refused=1000)
    drawn = [make([Named("a", run)]) for make in (distribution, over_time, traffic, batch_sizes)]
    assert len(json.dumps(drawn, allow_nan=False)) < 60_000


def test_several_runs_have_a_line_each() -> None:
    """By their names, with every budget and warm-up marked once."""
    runs = [Named("one", made()), Named("two", made(p95_s=0.03)), Named("three", made(p95_s=None))]
    for make in (distribution, over_time, traffic):
        assert [line["label"] for line in make(runs)["lines"]] == ["one", "two", "three"]
    assert [mark["label"] for mark in distribution(runs)["across"]] == ["budget 20 ms", "budget 30 ms"]
    assert [mark["at"] for mark in over_time(runs)["upright"]] == [1.0]


def test_batch_sizes_are_shares_of_each_servers_runs() -> None:
    """Kinds of all runs side by side; a server that tells nothing has no bars, and none at all no chart."""
    other = made(ending=Ending(seconds=11.0, batches={"runs": 4, "items": 9999, "sizes": [[1, 1, 3], [1025, None, 1]]}))
    silent = made(ending=Ending(seconds=11.0))
    chart = batch_sizes([Named("a", made()), Named("b", other), Named("c", silent)])
    assert chart is not None
    assert chart["x"]["ticks"] == [[1, "1"], [2, "3–4"], [3, "over 1024"]]
    assert [(line["label"], line["y"]) for line in chart["lines"]] == [("a", [25, 75, 0]), ("b", [75, 0, 25])]
    assert batch_sizes([Named("c", silent)]) is None
    assert [sized(2, 2), sized(5, 6)] == ["2", "5–6"]


def test_a_run_without_requests_draws_nothing() -> None:
    """No line has a point, and nothing fails."""
    run = made()
    empty = dataclasses.replace(run, hits=run.hits.after(99.0))
    for make in (distribution, over_time, traffic):
        assert not any(line["x"] for line in make([Named("a", empty)])["lines"])
