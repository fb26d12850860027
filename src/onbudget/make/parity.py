"""Does the .onnx file answer as the PyTorch module does? The largest absolute difference, at several batch sizes.

One row proves little: a file may be right at batch 1 and wrong at batch N, so every size gets rows that all differ.
One row is also tried with all its values above and all below zero, because a branch on a value that was traced away
is wrong on one side only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from onbudget.core.errors import ExportFailed, GateFailed
from onbudget.engine.told import told
from onbudget.make.factory import raised
from onbudget.make.needs import need_torch
from onbudget.make.rows import difference as _largest

if TYPE_CHECKING:  # a name for a type; engine.session costs onnxruntime
    from onbudget.engine.session import Runner

Array = npt.NDArray[Any]


class NotFree(GateFailed):
    """The batch axis is not free; the maker of the graph can still look for the node."""


@dataclass(frozen=True, slots=True)
class Parity:
    """Largest absolute differences, torch vs ONNX: `worst` of all, and by number of rows; `output` has the worst.

    `scale` is the largest absolute value that torch answered, to judge the difference by. `shapes` has each output's
    shape without the batch, None where it changes with the batch.
    """

    worst: float
    tolerance: float
    by_rows: Mapping[int, float]
    output: str
    scale: float
    shapes: Mapping[str, tuple[int, ...] | None]

    @property
    def ok(self) -> bool:
        """Within tolerance; NaN on one side only is not."""
        return self.worst <= self.tolerance

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, for the passport; an infinite difference is the word "different"."""
        return {
            "worst": _jsonable(self.worst),
            "tolerance": self.tolerance,
            "by_rows": {str(rows): _jsonable(value) for rows, value in self.by_rows.items()},
            "output": self.output,
            "scale": _jsonable(self.scale),
        }


def max_difference(module: Any, runner: Runner, x: Any) -> float:
    """The largest absolute difference between the module's and the runner's answers to `x`, over all outputs.

    `x` is a torch tensor or an array, rows first. inf where shapes differ, or NaN is on one side only.
    """
    rows = x.numpy() if hasattr(x, "detach") else np.asarray(x)
    ours = runner.run({runner.inputs[0].name: np.ascontiguousarray(rows)})
    return max(_largest(a, b) for a, b in zip(arrays_of(answer(module, rows)), ours, strict=True))


def measure(
    module: Any, runner: Runner, shape: Sequence[int], dtype: str, *, sizes: Sequence[int], tolerance: float
) -> Parity:
    """Compare at every size of `sizes`, with distinct rows; `shape` is an example's, its first axis is not used.

    Raises NotFree when a side does not run or an output has not one row per row, GateFailed when no answer is a
    finite number.
    """
    by_rows: dict[int, float] = {}
    seen: dict[str, set[tuple[int, ...]]] = {port.name: set() for port in runner.outputs}
    worst, where, scale, finite = -1.0, "", 0.0, False
    for rows in sizes:
        by_rows[rows] = 0.0
        for side in ("both", "above", "below") if rows == 1 and np.dtype(dtype).kind == "f" else ("both",):
            x = sample(shape, dtype, rows, side=side)
            theirs, ours = _both(module, runner, x)
            for port, a, b in zip(runner.outputs, theirs, ours, strict=True):
                seen[port.name].add(b.shape[1:])
                difference = _largest(a, b)
                by_rows[rows] = max(by_rows[rows], difference)
                scale, finite = max(scale, _magnitude(a)), finite or bool(np.isfinite(a).any())
                if difference > worst:
                    worst, where = difference, port.name
    if not finite:
        raise GateFailed("the module answers no finite number to random rows, so nothing can be compared")
    shapes = {name: next(iter(some)) if len(some) == 1 else None for name, some in seen.items()}
    return Parity(worst, tolerance, by_rows, where, scale, shapes)


def sample(shape: Sequence[int], dtype: str, rows: int, *, side: str = "both", seed: int = 0) -> Array:
    """`rows` distinct rows of `shape[1:]`: normal floats, 0–255 for uint8, 0–9 for other whole numbers.

    `side` is "both", or "above" or "below" for floats on one side of zero.
    """
    rng = np.random.default_rng(seed)
    full, kind = (rows, *shape[1:]), np.dtype(dtype)
    if kind.kind == "f":
        values = rng.standard_normal(full)
        return (values if side == "both" else np.abs(values) * (1 if side == "above" else -1)).astype(kind)
    return rng.integers(0, 256 if kind == np.uint8 else 2 if kind == np.bool_ else 10, full).astype(kind)


def answer(module: Any, rows: Array) -> Any:
    """What the module answers to an array, without gradients; it gets a copy, since it may write into its input."""
    torch = need_torch()
    with torch.no_grad():
        return module(torch.from_numpy(rows.copy()))


def arrays_of(answered: Any) -> list[Array]:
    """The tensors in a module's answer as arrays; ExportFailed for an answer that holds anything else."""
    return [tensor.detach().cpu().numpy() for tensor in tensors_of(answered)]


def is_tensor(answered: Any) -> bool:
    """Whether the answer is one plain tensor."""
    return isinstance(answered, need_torch().Tensor)


def tensors_of(answered: Any) -> list[Any]:
    """The tensors in a tensor, tuple, list or dict, in order; absent ones (None) are left out. Else ExportFailed."""
    if is_tensor(answered):
        return [answered]
    if answered is None:
        return []
    if isinstance(answered, Mapping):
        return [tensor for part in answered.values() for tensor in tensors_of(part)]
    if isinstance(answered, tuple | list):
        return [tensor for part in answered for tensor in tensors_of(part)]
    raise ExportFailed(f"the module answers with a {type(answered).__name__}; an .onnx file's outputs are tensors")


def _both(module: Any, runner: Runner, x: Array) -> tuple[list[Array], list[Array]]:
    rows = f"{len(x)} row" if len(x) == 1 else f"{len(x)} rows"
    try:
        theirs = arrays_of(answer(module, x))
    except Exception as error:  # the module's own code may raise anything
        raise NotFree(f"the batch axis is not free: the module itself fails with {rows}: {raised(error)}") from error
    try:
        ours = runner.run({runner.inputs[0].name: x})
    except Exception as error:  # onnxruntime raises a dozen unrelated classes, all meaning: it did not run
        raise NotFree(f"the batch axis is not free: the file does not run with {rows}: {told(error)}") from error
    for port, a, b in zip(runner.outputs, theirs, ours, strict=True):
        for value, whose in ((a, " (in PyTorch too)"), (b, "")):
            if value.ndim == 0 or len(value) != len(x):
                count = "a single number" if value.ndim == 0 else f"{len(value)} rows"
                raise NotFree(f"the batch axis is not free: output {port.name!r} has {count} for {rows} in{whose}")
    return theirs, ours


def _magnitude(values: Array) -> float:
    flat = np.abs(values.astype(np.float64))
    return float(np.max(flat[np.isfinite(flat)], initial=0.0))


def _jsonable(value: float) -> float | str:
    return value if np.isfinite(value) else "different"
