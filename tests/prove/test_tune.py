"""What is predicted first where time may run out."""

from __future__ import annotations

from onbudget.core.candidates import Outlook
from onbudget.core.cost import Cost
from onbudget.core.forecast import Forecast
from onbudget.core.overheads import Overheads
from onbudget.core.plan import Configuration
from onbudget.prove.tune import _in_turns


def look(model: str, policy: str, seconds: float) -> Outlook:
    configuration = Configuration(1, 1, 1, policy)
    return Outlook(model, Forecast(Cost.of({1: seconds}), Overheads(), configuration, 0.02))


def test_each_variant_has_its_turn_and_deadlines_come_before_greedy() -> None:
    """However much more capacity another variant, or greedy, has; of equals the roomier one."""
    a = [look("a", "deadline", 0.001), look("a", "deadline", 0.002), look("a", "greedy", 0.0001)]
    b = [look("b", "deadline", 0.009), look("b", "greedy", 0.0005)]
    assert _in_turns([a[2], b[1], a[1], b[0], a[0]]) == [a[0], b[0], a[1], b[1], a[2]]
