"""Rows to compare two files with, and what the files answer to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from onbudget.core.errors import BundleError
from onbudget.core.recipe import Recipe
from onbudget.engine.noise import Noise
from onbudget.engine.told import told

if TYPE_CHECKING:  # names for types; engine.session costs onnxruntime
    from onbudget.engine.session import Port, Runner

Array = npt.NDArray[Any]

CHECKED = (1, 3)  # numbers of rows that a fused file is checked with
_OPEN_AXES = (1, 32, 224, 64, 16)  # sizes tried for open axes beside the batch


def items(recipe: Recipe, count: int, seed: int = 0) -> Array:
    """`count` distinct items as a caller sends them: each with its own colours, so that swapped channels show."""
    full = (count, *recipe.shape)
    low, high = (0.0, 255.0) if recipe.input_dtype == "uint8" else recipe.input_range or (-3.0, 3.0)
    colours = Noise(seed).random((count, *([1] * (len(full) - 2)), *full[-1:])) if len(full) > 1 else 0.5
    share = 0.6 * colours + 0.4 * Noise(seed + 1).random(full)
    values = low + (high - low) * share
    return np.round(values).astype(np.uint8) if recipe.input_dtype == "uint8" else values.astype(np.float32)


def plain_items(port: Port, count: int) -> Iterator[Array]:
    """Random rows for an input without a recipe; once for each size that its open axes may have."""
    from onbudget.engine.session import example

    for size in _OPEN_AXES:
        yield example(replace(port, shape=(None, *(size if d is None else d for d in port.shape[1:]))), count)
        if None not in port.shape[1:]:
            return


def answers(runner: Runner, rows: Array, outputs: Sequence[str] | None = None) -> list[Array]:
    """What a one-input model answers to `rows`, output by output (`outputs`, or all).

    A file with a frozen batch gets them in portions, the last one filled up. BundleError where it does not run.
    """
    (port,) = runner.inputs
    size = port.shape[0] or len(rows)
    parts = []
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        padding = np.repeat(part[:1], size - len(part), axis=0)
        try:
            got = runner.run({port.name: np.concatenate([part, padding])}, outputs)
        except Exception as error:  # onnxruntime raises a dozen unrelated classes, all meaning: it did not run
            raise BundleError(f"the model does not run with {size} rows: {told(error)}") from error
        # An output without one row for each row in cannot be cut; it is left whole, and nobody reads it by rows.
        parts.append([a[: len(part)] if a.ndim and len(a) == size else a for a in map(np.asarray, got)])
    return [
        columns[0] if len(columns) == 1 or not columns[0].ndim else np.concatenate(columns)
        for columns in zip(*parts, strict=True)
    ]


def difference(a: Array, b: Array) -> float:
    """The largest absolute difference; inf where shapes differ or only one side is NaN or infinite there."""
    if a.shape != b.shape:
        return float("inf")
    if a.dtype.kind not in "biuf":
        return 0.0 if np.array_equal(a, b) else float("inf")
    left, right = a.astype(np.float64), b.astype(np.float64)
    odd = ~(np.isfinite(left) & np.isfinite(right))
    if not np.array_equal(left[odd], right[odd], equal_nan=True):
        return float("inf")
    return float(np.max(np.abs(left[~odd] - right[~odd]), initial=0.0))
