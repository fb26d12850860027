"""What a server chooses when it knows what runs cost: policy, largest batch, and where the model runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onbudget.core.cost import Cost
from onbudget.core.errors import UsageError
from onbudget.serve.costs import Learnt
from onbudget.serve.models import Model
from onbudget.serve.settings import Settings
from tests.support.tiles import Tiles

FLAT = {1: 0.001, 16: 0.016}  # batching saves nothing
STEEP = {1: 0.010, 16: 0.016}  # nine parts in ten are paid once a run


@pytest.fixture
def chosen(tiles: Tiles, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]  # a function of four
    """`chosen(costs, cores, **settings)` → a model that was told these costs and this machine."""

    def choose(costs: dict[int, float], cores: float = 2.0, **given: object) -> Model:
        learnt = Learnt(Cost.of(costs) if costs else None, tuple(costs), "measured")
        monkeypatch.setattr("onbudget.serve.models.learn", lambda job, warm_up, cached, carried: learnt)
        monkeypatch.setattr("onbudget.engine.machine.Machine.cores", lambda machine: cores)
        return Model(tiles.bundle, replace(Settings(lanes=1), **given))  # type: ignore[arg-type]  # fields by name

    return choose


@pytest.mark.parametrize(
    ("costs", "given", "policy", "largest"),
    [
        (FLAT, {}, "greedy", 16),
        (FLAT, {"p95": 0.1, "policy": "greedy"}, "greedy", 16),
        (FLAT, {"policy": "timer"}, "timer", 16),
        (FLAT, {"p95": 0.1}, "deadline", 5),  # only what a batch costs beside its run is worth sharing
        (STEEP, {"p95": 0.1}, "deadline", 15),
        (STEEP, {"p95": 0.025}, "deadline", 6),  # two runs must fit: a request may just miss a batch
        (STEEP, {"p95": 0.001}, "deadline", 1),  # a budget that no run can hold still serves one at a time
        ({}, {"p95": 0.1}, "greedy", 16),  # nothing is known of a model that could not be tried
    ],
)
def test_the_policy_and_its_largest_batch(chosen, costs, given, policy, largest) -> None:  # type: ignore[no-untyped-def]  # a table
    """Deadline where a budget is declared; its largest batch is the smallest that loses next to no capacity."""
    model = chosen(costs, **given)
    assert (model.policy.name, model.policy.max_batch) == (policy, largest)


@pytest.mark.parametrize(
    ("cores", "costs", "given", "inline"),
    [
        (1.0, FLAT, {"p95": 0.1}, True),
        (2.0, FLAT, {"p95": 0.1}, False),  # a second core has better things to do than to wait
        (1.0, FLAT, {"p95": 0.1, "lanes": 2}, False),
        (1.0, STEEP, {"p95": 0.025}, False),  # runs of half the budget would be felt
        (1.0, {1: 0.0002, 16: 0.003}, {}, True),
        (1.0, FLAT, {}, False),
    ],
)
def test_short_runs_on_one_core_run_on_the_loop(chosen, cores, costs, given, inline) -> None:  # type: ignore[no-untyped-def]  # a table
    """Inline: one lane, one core, and runs below a quarter of the budget."""
    assert chosen(costs, cores, **given).inline is inline


def test_a_deadline_needs_a_budget() -> None:
    """`--policy deadline` without a budget says what to add."""
    with pytest.raises(UsageError, match="--p95 20ms"):
        Settings(policy="deadline")
