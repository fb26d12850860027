"""Learning what requests and batches cost: from rates that differ, from one steady rate, and not from too little."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from onbudget.core.overheads import ENOUGH, USUAL, Overheads, Spell, learn

TRUE = (60e-6, 20e-6, 120e-6)  # accept, refuse, a batch's turn
LANE = 30e-6  # a batch's part of its lane
FACTOR = 1.2


def spells(rates: Sequence[tuple[int, int, int]], noise: float = 0.0, slower: float = 1.0) -> list[Spell]:
    """A second each of (accepted, refused, batches), on a machine `slower` than the true figures."""
    draw = np.random.default_rng(3)
    told = []
    for accepted, refused, batches in rates:
        model = 1e-4 * accepted + 5e-5 * batches
        lanes = slower * (FACTOR * model + LANE * batches)
        other = slower * sum(cost * count for cost, count in zip(TRUE, (accepted, refused, batches), strict=True))
        one, two = np.exp(noise * draw.standard_normal(2))
        told.append(Spell(accepted, refused, batches, model, lanes * one, other * two))
    return told


MIXED = [(200, 0, 190), (1000, 0, 800), (2500, 50, 1200), (4000, 900, 500), (3900, 3000, 490), (50, 0, 50)] * 8


@pytest.mark.parametrize(("noise", "near"), [(0.0, 0.05), (0.03, 0.2)])
def test_rates_that_differ_tell_the_parts_apart(noise: float, near: float) -> None:
    """From quiet to overload, each figure is found, whatever is usual, and nearly so where CPU time is noisy."""
    found = learn(spells(MIXED, noise))
    assert found is not None
    over = found.overheads
    assert (over.accept_s, over.refuse_s) == pytest.approx(TRUE[:2], rel=near)
    assert over.batch_s == pytest.approx(TRUE[2] + LANE, rel=near)
    assert found.run_factor == pytest.approx(FACTOR, rel=near)


def test_one_steady_rate_tells_the_machine_s_speed() -> None:
    """All of it adds up to what was spent, and the split is near the usual one, scaled."""
    steady = spells([(1000, 0, 900)] * 10)
    found, slow = learn(steady), learn(spells([(1000, 0, 900)] * 10, slower=2.0))
    assert found is not None
    assert slow is not None
    spent = (steady[0].other_s + steady[0].lanes_s, 2 * (steady[0].other_s + steady[0].lanes_s))
    for one, wanted in zip((found, slow), spent, strict=True):
        over = one.overheads
        told = 1000 * over.accept_s + 900 * over.batch_s + one.run_factor * steady[0].model_s
        assert told == pytest.approx(wanted, rel=0.03)
    assert slow.overheads.accept_s > 1.5 * found.overheads.accept_s
    assert slow.overheads.refuse_s > 1.2 * found.overheads.refuse_s  # nobody was refused: it goes with the others


def test_too_little_tells_nothing() -> None:
    """Below 300 accepted requests there is no figure, and none where nothing was seen."""
    assert learn([]) is None
    assert learn(spells([(ENOUGH - 1, 5000, 200)])) is None


def test_no_part_is_free() -> None:
    """CPU that can't be told apart never makes a cost of nothing, and idle seconds change nothing."""
    cheap = [Spell(1000, 0, 900, 0.1, 0.0, 0.0)] * 5
    found = learn([*cheap, Spell(0, 0, 0, 0.0, 0.0, 0.9)])
    assert found is not None
    assert 0 < found.overheads.accept_s < USUAL[0]
    assert found == learn(cheap)


@pytest.mark.parametrize("wrong", [{"accept_s": -1.0}, {"refuse_s": math.inf}, {"batch_s": math.nan}, {"reply": 2.0}])
def test_overheads_are_times(wrong: dict[str, float]) -> None:
    """Nothing takes less than no time, or for ever."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Overheads(**wrong)
