"""A prediction in a process of its own: the same figure, and a failure that is told."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from onbudget.core.cost import Cost
from onbudget.core.forecast import Forecast
from onbudget.core.overheads import Overheads
from onbudget.core.plan import Configuration
from onbudget.serve.foresee import Foresight, read, told

FORECAST = Forecast(
    cost=Cost.of({1: 0.001, 8: 0.004}),
    overheads=Overheads(1e-4, 3e-5, 2e-4),
    configuration=Configuration(1, 1, 8),
    budget_s=0.025,
    inline=True,
    demote=False,
)


def test_it_is_what_would_be_computed_here() -> None:
    """To the last digit."""
    assert Foresight().limit_rate(FORECAST) == FORECAST.quick_limit_rate()


@pytest.mark.parametrize("one", [FORECAST, replace(FORECAST, inline=False, cores=2.5, demote=True, budget_s=0.1)])
def test_a_forecast_survives_json(one: Forecast) -> None:
    """With everything that a server sets."""
    assert read(json.loads(json.dumps(told(one)))) == one


def test_a_child_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its exit code and its last words."""
    monkeypatch.setattr("onbudget.serve.foresee.told", lambda _: {"cost": {}})
    with pytest.raises(RuntimeError, match=r"(?s)ended with 1: .*points"):
        Foresight().limit_rate(FORECAST)


def test_one_that_is_stopped_ends_at_once() -> None:
    """Before its child is there, or while that computes: it is killed."""
    stopped = Foresight()
    stopped.stop()
    with pytest.raises(RuntimeError, match="ended with -9"):
        stopped.limit_rate(FORECAST)
