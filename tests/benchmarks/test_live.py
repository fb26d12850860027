"""benchmarks/live: sums and records of the measuring scripts."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import live
import numpy as np
import pytest
from live import cpu_seconds, keep, ratios, resident_mb, slope

from onbudget.prove.load import LoadOptions


def test_a_straight_line_has_its_slope_and_no_error() -> None:
    """2 MB more every 1,800 s are 4 MB an hour."""
    change, error = slope([0, 1800, 3600, 5400, 7200], [10, 12, 14, 16, 18])

    assert change == pytest.approx(4)
    assert error == pytest.approx(0, abs=1e-9)


def test_noise_around_nothing_is_within_its_error() -> None:
    """Of a hundred level series with noise the slope is within two standard errors of zero in some 95."""
    rng, seconds = np.random.default_rng(3), [5.0 * i for i in range(40)]
    told = [slope(seconds, list(100 + rng.normal(0, 1, 40))) for _ in range(100)]
    near = sum(abs(change) <= 2 * error for change, error in told)

    assert 88 <= near <= 99


def test_too_few_points_tell_no_slope() -> None:
    """Three leave nothing to judge the error by."""
    with pytest.raises(ValueError, match="3 points"):
        slope([0, 1, 2], [1, 1, 1])


def test_ratios_are_of_pairs_and_not_of_medians() -> None:
    """A drift that hits both sides of a round alike leaves each round's ratio; a lost partner is an error."""
    assert ratios([10.0, 40.0], [5.0, 20.0]) == [2.0, 2.0]
    with pytest.raises(ValueError, match="zip"):
        ratios([1.0], [1.0, 2.0])


def test_a_record_is_whole_or_the_one_before(tmp_path: Path) -> None:
    """What can't be written as JSON leaves the last record as it was; without a path nothing is written."""
    path = tmp_path / "record.json"
    keep({"rows": [1]}, path)
    with pytest.raises(ValueError, match="JSON"):
        keep({"rows": [float("inf")]}, path)
    keep({"rows": [2]}, None)

    assert json.loads(path.read_text()) == {"rows": [1]}
    assert [p.name for p in tmp_path.iterdir()] == ["record.json"]


def test_what_the_system_tells_of_a_process_is_ours() -> None:
    """The CPU seconds of our own process lie between two readings of them; its memory is tens of megabytes at least."""
    before, told, after = time.process_time(), cpu_seconds(os.getpid()), time.process_time()

    assert before <= told <= after
    assert 10 < resident_mb(os.getpid()) < 100_000


@pytest.mark.parametrize("partial", [True, False])
def test_half_a_trial_is_none(monkeypatch: pytest.MonkeyPatch, partial: bool) -> None:
    """Ctrl-C ends a load test early and whole; a script stops there instead of keeping it and going on."""
    run = SimpleNamespace(ending=SimpleNamespace(partial=partial))
    monkeypatch.setattr(live, "run_load", lambda _: run)
    options = LoadOptions(url="http://127.0.0.1:1", rate=1.0)
    if partial:
        with pytest.raises(KeyboardInterrupt):
            live.offer(options)
    else:
        assert live.offer(options) is run
