"""Which rate is offered next, and where the limit lies."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onbudget.core.bracket import holds, limit_of, next_rate


@dataclass(frozen=True)
class Test:
    __test__ = False
    rate: float
    in_budget: float
    refused: float = 0.0


@pytest.mark.parametrize(
    ("in_budget", "refused", "held"),
    [(0.95, 0.0, True), (0.949, 0.0, False), (1.0, 0.01, True), (0.98, 0.011, False)],
)
def test_a_rate_holds_with_95_percent_in_time_and_1_percent_refused(
    in_budget: float, refused: float, held: bool
) -> None:
    """What is called goodput here; both bounds belong to it."""
    assert holds(Test(100, in_budget, refused)) is held


def test_the_first_rate_is_the_guess() -> None:
    """Nothing is known before."""
    assert next_rate([], 500.0) == 500.0


def test_it_goes_up_while_all_hold_and_down_by_how_badly_one_failed() -> None:
    """Up in steps that grow; a near miss is followed by a small step down, a collapse by a large one."""
    assert next_rate([Test(100, 1.0)], 1.0) == pytest.approx(115)
    assert next_rate([Test(100, 0.94)], 1.0) == pytest.approx(80)
    assert next_rate([Test(100, 1.0), Test(115, 1.0)], 1.0) == pytest.approx(115 * 1.15**2)
    assert next_rate([Test(100, 0.6)], 1.0) == pytest.approx(60)
    assert next_rate([Test(100, 0.0)], 1.0) == pytest.approx(30)


def test_between_one_that_holds_and_one_that_fails_it_halves() -> None:
    """In whatever order they came."""
    assert next_rate([Test(120, 0.5), Test(100, 1.0)], 1.0) == 110


@given(limit=st.floats(10, 1000), guess=st.floats(0.7, 1.4))
def test_four_tests_bracket_a_limit_that_was_guessed_roughly(limit: float, guess: float) -> None:
    """With a sharp edge, and a guess that is 30 to 40 % off."""
    tried: list[Test] = []
    for _ in range(4):
        rate = next_rate(tried, guess * limit)
        tried.append(Test(rate, 1.0 if rate <= limit else 0.3))
    assert limit_of(tried) == pytest.approx(limit, rel=0.2)


def test_the_limit_lies_on_the_line_between_the_two() -> None:
    """By the share in budget and by the share refused, whichever ends first."""
    assert limit_of([Test(100, 1.0), Test(200, 0.9)]) == pytest.approx(150)
    assert limit_of([Test(100, 1.0), Test(200, 1.0, 0.04)]) == pytest.approx(125)
    assert limit_of([Test(100, 1.0), Test(200, 0.9, 0.04)]) == pytest.approx(125)
    assert limit_of([Test(100, 1.0), Test(200, 0.9, 0.04)], most_refused=1.0) == pytest.approx(150)


def test_one_that_held_outweighs_lower_ones_that_did_not() -> None:
    """A pause of the host fails any rate."""
    assert limit_of([Test(100, 0.5), Test(200, 1.0), Test(300, 0.9)]) == pytest.approx(250)


def test_where_all_hold_or_none() -> None:
    """The highest of them; below the lowest of them; nothing is said of nothing."""
    assert limit_of([Test(100, 1.0), Test(300, 0.95)]) == 300
    assert limit_of([Test(100, 0.475), Test(300, 0.1)]) == pytest.approx(50)
    with pytest.raises(ValueError, match="no load tests"):
        limit_of([])
