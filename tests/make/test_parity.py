"""Parity: the largest absolute difference, at every size, with rows that differ."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from onbudget.core.errors import GateFailed
from onbudget.engine.session import Port
from onbudget.make.parity import NotFree, max_difference, measure, sample

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")


@dataclass
class File:
    """A Runner made of one numpy function."""

    function: Callable[[Any], Any]
    inputs: tuple[Port, ...] = (Port("x", "float32", (None, 4)),)
    outputs: tuple[Port, ...] = (Port("y", "float32", (None, 4)),)

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, stop: Any = None) -> list[Any]:
        result = self.function(feeds["x"])
        return list(result) if isinstance(result, tuple) else [result]


class Double(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2


def check(function: Callable[[Any], Any], sizes: Sequence[int] = (1, 2, 3, 8)) -> Any:
    return measure(Double(), File(function), (1, 4), "float32", sizes=sizes, tolerance=1e-4)


def test_the_difference_is_the_largest_of_all_values_and_outputs() -> None:
    """A tensor or an array goes in; one number comes out (A2)."""
    x = torch.zeros(3, 4)
    assert max_difference(Double(), File(lambda v: v * 2), x) == 0
    off = File(lambda v: v * 2 + np.array([0, 0.25, 0, -0.5], np.float32))
    assert max_difference(Double(), off, x) == 0.5
    assert max_difference(Double(), off, x.numpy()) == 0.5


def test_other_shapes_and_sudden_nan_are_infinitely_different() -> None:
    """Neither can be subtracted."""
    x = np.ones((2, 4), np.float32)
    assert max_difference(Double(), File(lambda v: v[:, :2]), x) == float("inf")
    assert max_difference(Double(), File(lambda v: v * np.nan), x) == float("inf")
    x[0, 0] = np.nan
    assert max_difference(Double(), File(lambda v: v * 2), x) == 0


def test_right_at_one_row_and_wrong_at_more_is_caught() -> None:
    """The difference is told for each size (pain 35)."""
    found = check(lambda v: v * 2 if len(v) == 1 else np.repeat(v[:1] * 2, len(v), axis=0))
    assert not found.ok
    assert found.by_rows[1] == 0
    assert min(found.by_rows[rows] for rows in (2, 3, 8)) > 0.1
    assert found.worst == max(found.by_rows.values())


def test_one_side_of_zero_is_not_enough() -> None:
    """A file that is right for mixed rows and wrong below zero is found out."""
    assert check(lambda v: v * 2).ok
    assert not check(lambda v: v * (3 if (v < 0).all() else 2)).ok


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda v: (v * 2)[:-1], r"output 'y' has 0 rows for 1 row in$"),
        (lambda v: (v * 2).sum().reshape(()), "output 'y' has a single number for 1 row in"),
        (lambda v: np.zeros((3, 4), np.float32) if len(v) == 2 else v * 2, "3 rows for 2 rows in"),
    ],
)
def test_rows_that_get_lost_are_not_a_difference_but_a_frozen_axis(function: Any, said: str) -> None:
    """The batch axis is judged before any value is."""
    with pytest.raises(NotFree, match=said):
        check(function)


def test_a_side_that_does_not_run_is_told_with_the_size() -> None:
    """The file's error and the module's error are told apart."""

    def three(v: Any) -> Any:
        if len(v) == 3:
            raise RuntimeError("no third row")
        return v * 2

    with pytest.raises(NotFree, match="the file does not run with 3 rows: no third row"):
        check(three)

    class Two(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.view(2, 4)

    with pytest.raises(
        NotFree, match=r"the module itself fails with 1 row: RuntimeError: shape '\[2, 4\]'.*test_parity"
    ):
        measure(Two(), File(lambda v: v), (1, 4), "float32", sizes=(1,), tolerance=1e-4)


def test_answers_without_a_number_prove_nothing() -> None:
    """NaN equals NaN at the same place, but only NaN is no parity."""

    class Nothing(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * float("nan")

    with pytest.raises(GateFailed, match="no finite number"):
        measure(Nothing(), File(lambda v: v * np.nan), (1, 4), "float32", sizes=(1, 2), tolerance=1e-4)


def test_shapes_that_follow_the_batch_are_not_declared() -> None:
    """An output's other axes are known only when they are the same at every size."""

    class Square(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x @ x.T, x

    two = (Port("square", "float32", (None, None)), Port("same", "float32", (None, 4)))
    found = measure(
        Square(), File(lambda v: (v @ v.T, v), outputs=two), (1, 4), "float32", sizes=(1, 2), tolerance=1e-4
    )
    assert found.shapes == {"square": None, "same": (4,)}


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int64", "bool"])
def test_samples_have_the_type_and_differ_from_row_to_row(dtype: str) -> None:
    """Distinct rows, the same every time, on the side of zero that was asked for."""
    rows = sample((1, 40), dtype, 5)
    assert (rows.shape, str(rows.dtype)) == ((5, 40), dtype)
    assert len({row.tobytes() for row in rows}) == 5
    assert (rows == sample((9, 40), dtype, 5)).all()
    if dtype.startswith("float"):
        assert (sample((1, 40), dtype, 2, side="above") >= 0).all()
        assert (sample((1, 40), dtype, 2, side="below") <= 0).all()


def test_a_passport_holds_only_json_numbers() -> None:
    """An infinite difference becomes a word."""
    found = check(lambda v: v * np.nan if len(v) == 2 else v * 2)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["by_rows"]["2"] == "different"
