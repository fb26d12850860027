"""What runs cost at a start: known curves are scaled by a few runs, never believed, and kept for the next start."""

from __future__ import annotations

import gc
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from onbudget.core.cost import Cost
from onbudget.core.errors import BundleError
from onbudget.serve.costs import Cache, Learnt, learn
from onbudget.serve.models import Model
from onbudget.serve.settings import Settings
from onbudget.serve.warm import quick
from tests.support.tiles import Tiles

SHAPE = Cost.of({1: 0.001, 2: 0.0015, 4: 0.0025, 8: 0.0045, 16: 0.009})


class Acted:
    """A job whose runs take what it is told, the first of a size half as long again; nobody's clock is read."""

    def __init__(self, cost: Cost, max_batch: int = 16, fails_above: int = 10**6) -> None:
        self.cost, self.max_batch, self.run_rows, self.fails_above = cost, max_batch, 0, fails_above
        self.ran: list[int] = []
        self.contract: Any = type("Contract", (), {"shapes": ((2,),), "inputs": ()})

    def rehearse(self, size: int) -> float:
        if size > self.fails_above:
            raise RuntimeError("a reshape to 8 rows")
        self.ran.append(size)
        return self.cost.seconds(size) * (1 if size in self.ran[:-1] else 1.5)


def learnt(job: Any, cached: Cost | None, carried: Cost | None) -> Learnt:
    return learn(job, 0.1, cached, carried)


@pytest.mark.parametrize("factor", [0.3, 1.0, 4.0])
def test_the_bundles_shape_is_scaled_by_runs_of_two_sizes(factor: float) -> None:
    """On a machine that is faster or slower, all sizes are known from batch 1 and the largest, within the budget."""
    job = Acted(SHAPE.scaled(factor))
    found = learnt(job, None, SHAPE)
    assert found.source == "bundle"
    assert found.warmed == tuple(sorted(set(job.ran)))
    assert len(found.warmed) == 2
    assert found.cost is not None
    assert found.cost.seconds(4) == pytest.approx(SHAPE.seconds(4) * factor)
    assert sum(job.cost.seconds(size) for size in job.ran) <= 0.1


@pytest.mark.parametrize(("l1", "largest"), [(0.0001, 16), (0.005, 5), (0.01, 1), (0.3, 1)])
def test_a_size_that_takes_too_long_is_not_run(l1: float, largest: int) -> None:
    """The larger size is the largest that the budget pays for; a model slower than the budget is run once."""
    job = Acted(SHAPE.scaled(l1 / 0.001))
    quick(job, SHAPE, 0.1)  # type: ignore[arg-type]  # what it asks of a job is there
    assert max(job.ran) == largest
    assert l1 < 0.1 or job.ran == [1]


def test_a_shape_that_does_not_fit_this_machine_is_measured_anew() -> None:
    """Where batching pays differently here, the factors of the two sizes disagree."""
    steep = Acted(Cost.of({1: 0.0001, 16: 0.0060}))
    anew = learnt(steep, None, SHAPE)
    assert anew.source == "measured"
    assert anew.cost is not None
    assert anew.cost.seconds(16) == pytest.approx(0.0060)
    assert len(anew.warmed) > 2


@pytest.mark.parametrize(
    ("factor", "source"), [(0.76, "bundle"), (0.78, "cache"), (1.0, "cache"), (1.29, "cache"), (1.31, "bundle")]
)
def test_the_cache_is_not_believed_beyond_thirty_per_cent(factor: float, source: str) -> None:
    """Outside of 0.77 to 1.3 it is thrown away; either way the result is what the fresh runs say."""
    found = learnt(Acted(SHAPE.scaled(factor)), SHAPE, SHAPE.scaled(7.0))
    assert found.source == source
    assert found.cost is not None
    assert found.cost.seconds(8) == pytest.approx(SHAPE.seconds(8) * factor)


def test_without_a_known_curve_all_sizes_are_run() -> None:
    """As for a plain .onnx at its first start."""
    found = learnt(Acted(SHAPE), None, None)
    assert (found.source, found.warmed[:4], found.warmed[-1]) == ("measured", (1, 2, 3, 4), 16)


def test_a_size_that_fails_is_named_in_the_quick_way_too() -> None:
    """A known curve is no proof that the model runs."""
    with pytest.raises(BundleError, match=r"runs with \[1\] items but not with 16: a reshape"):
        learnt(Acted(SHAPE, fails_above=8), None, SHAPE)


# ---- the file -------------------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """A cache in a folder that is not there yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Cache.of("ab" * 32, "m1", {"threads": 1})


def test_costs_are_kept_by_model_and_machine(cache: Cache, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Read back as written, with a date; a file that is not there yet is nothing to warn of."""
    assert cache.read() is None
    cache.write(SHAPE)
    assert cache.path == tmp_path / "cache" / "onbudget" / "costs" / f"{'ab' * 32}-m1.json"
    assert cache.read() == SHAPE
    assert json.loads(cache.path.read_text())["measured"].endswith("+00:00")
    assert [p.name for p in cache.path.parent.iterdir()] == [cache.path.name]
    assert not caplog.records


def test_costs_of_other_threads_are_not_these(cache: Cache) -> None:
    """The curve of two threads has another shape."""
    cache.write(SHAPE)
    assert Cache.of("ab" * 32, "m1", {"threads": 2}).read() is None


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"{}", b'{"machine": "m1", "points": [[1, -1]]}'])
def test_a_damaged_cache_is_told_and_no_more(cache: Cache, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A start goes on; the log has the path."""
    cache.write(SHAPE)
    assert cache.path is not None
    cache.path.write_bytes(content)
    assert cache.read() is None
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert str(cache.path) in record.getMessage()


def test_a_cache_that_cannot_be_written_is_told_and_no_more(
    cache: Cache, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file stands where the folder should be."""
    (tmp_path / "cache").write_text("")
    assert cache.read() is None
    cache.write(SHAPE)
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert str(cache.path) in caplog.text


@pytest.mark.parametrize("value", ["", "relative"])
def test_a_relative_cache_home_is_no_home(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The specification's rule; ~/.cache is taken instead."""
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert Cache.of("a", "m", {}).path == tmp_path / ".cache" / "onbudget" / "costs" / "a-m.json"


def test_a_user_without_a_home_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user has no name."""

    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", nowhere)
    homeless = Cache.of("a", "m", {})
    homeless.write(SHAPE)
    assert homeless.read() is None


# ---- a real model ---------------------------------------------------------------------------------------------------


def test_a_model_hands_its_costs_to_the_next_start(
    tiles: Tiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bundle's own curve is offered at the first start, and what that start found at the second."""
    offered: list[tuple[Cost | None, Cost | None]] = []

    def watch(job: Any, warm_up: float, cached: Cost | None, carried: Cost | None) -> Learnt:
        offered.append((cached, carried))
        return Learnt(SHAPE, (1, 16), "bundle")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("onbudget.serve.models.learn", watch)
    Model(tiles.bundle, Settings(lanes=1)).remember()
    Model(tiles.bundle, Settings(lanes=1))
    Model(tiles.bundle, Settings(lanes=1, threads=2))
    assert [cached for cached, _ in offered] == [None, SHAPE, None]
    assert offered[0][1] is not None
    assert [batch for batch, _ in offered[0][1].points][:2] == [1, 2]


def test_the_collector_is_tamed_in_a_process_of_its_own(tiles: Tiles) -> None:
    """`onbudget serve` freezes what loading left; a model that is embedded leaves its host's collector alone."""
    before = gc.get_freeze_count()
    Model(tiles.bundle, Settings(lanes=1))
    assert gc.get_freeze_count() == before
    script = (
        "import gc, os, signal, sys; from pathlib import Path; from onbudget.serve.server import serve\n"
        "from onbudget.serve.settings import Settings\n"
        "def ready(service, url): print(gc.get_freeze_count()); os.kill(os.getpid(), signal.SIGTERM)\n"
        "sys.exit(serve(Path(sys.argv[1]), Settings(port=0), ready))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tiles.bundle)], capture_output=True, text=True, timeout=60, check=True
    )
    assert int(done.stdout) > 10_000
