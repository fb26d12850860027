"""The cost curve that a bundle carries: where there is one, and where there is none."""

from __future__ import annotations

from typing import Any

import pytest

from onbudget.engine.bundle import read_metadata
from onbudget.engine.machine import Machine
from onbudget.make.timed import timed
from tests import models
from tests.support.bundling import LABELS, PICTURE, Bundling


@pytest.mark.parametrize("recipe", [PICTURE, None])
def test_a_bundle_carries_what_its_runs_cost(bundling: Bundling, recipe: Any) -> None:
    """Sizes from 1 up, positive seconds, this machine's hash; fused or of plain tensors."""
    report = bundling.make(models.tile_cnn(), recipe, LABELS if recipe else None)
    told = read_metadata(bundling.target)
    assert told is not None
    assert told.cost is not None
    assert told == report.metadata
    assert [batch for batch, _ in told.cost.points][:2] == [1, 2]
    assert told.cost.machine == Machine.read().hash()
    assert report.to_dict()["cost"] == told.cost.to_dict()


def test_a_bundle_need_not_carry_a_cost(bundling: Bundling) -> None:
    """`--no-cost` runs nothing for it."""
    assert bundling.make(models.tile_cnn(), PICTURE, LABELS, cost=False).metadata.cost is None


def test_a_model_too_slow_for_two_sizes_is_not_run(bundling: Bundling) -> None:
    """What a row took before says so; nobody waits for it once more."""
    bundling.make(models.tile_cnn(), PICTURE, LABELS)
    runner = bundling.runner()
    ran: list[Any] = []
    runner.run = lambda *given: ran.append(given)  # type: ignore[method-assign,assignment]  # a witness
    assert timed(runner, [], None, 0.5) is None
    assert not ran


def test_a_run_that_fails_is_a_note(bundling: Bundling) -> None:
    """Made-up rows are no proof against a model, so the bundle is made, without a curve."""
    bundling.make(models.tile_cnn(), PICTURE, LABELS)
    runner = bundling.runner()

    def fail(*given: Any) -> Any:
        raise RuntimeError("index out of range")

    runner.run = fail  # type: ignore[method-assign]  # a model that is choosy
    notes: list[str] = []
    assert timed(runner, notes, None, None) is None
    assert notes == ["no cost curve, for made-up rows do not run: index out of range"]
