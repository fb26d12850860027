"""Does a row's answer depend on who shares its batch? A symbolic first axis proves nothing; only running does.

A model may take any batch and still mix its rows: dynamically quantised int8 takes its activation scale over the whole
batch, a normalisation may average over it, a sequence model may read the first axis as time. So one ordinary row is run
alone, then among loud and among quiet mates, first, in the middle and last, at 2, 3 and the largest batch. Every row of
every batch must answer as it does alone.

Nothing here knows onnxruntime: anything that is a `Runner` can be probed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from onbudget.core.recipe import Recipe
from onbudget.engine.noise import Noise
from onbudget.engine.told import told

if TYPE_CHECKING:  # importing session costs onnxruntime; a probe needs only its shape
    from onbudget.engine.session import Port, Runner

Array = npt.NDArray[Any]
Rows = Mapping[str, Array]

TOLERANCE = 1e-4  # of an output's own range; kernels that change with the batch size stay a hundred times below
_OPEN_AXES = (32, 64, 16, 224, 8, 1)  # sizes tried for axes that are open beside the first one
_KINDS = ("quiet", "ordinary", "loud")


@dataclass(frozen=True, slots=True)
class Invariance:
    """What the probe found.

    `worst` is the largest change of any row's answer, as a part of that output's own range; `output` is where it was,
    empty where nothing was compared. `sizes` are the batch sizes that were run: none where not even a row alone runs.
    `reason` is empty when `ok`, else a sentence fit for a passport's `unbatchable`.
    """

    ok: bool
    worst: float
    output: str
    sizes: tuple[int, ...]
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, for a passport."""
        return {**asdict(self), "sizes": list(self.sizes)}


class _Broken(Exception):
    """The probe ends here: the message is the reason."""


def probe(
    runner: Runner,
    *,
    max_batch: int = 32,
    recipe: Recipe | None = None,
    outputs: Sequence[str] | None = None,
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> Invariance:
    """Run rows alone and among mates, about 20 runs and 40 + 2 × `max_batch` rows in all.

    `outputs` limits the comparison (all of them when None). `recipe` bounds float inputs. A model that cannot run
    at all is reported as not ok, since nothing was proved.
    """
    names = tuple(outputs) if outputs is not None else tuple(port.name for port in runner.outputs)
    sizes = tuple(sorted({2, 3, max_batch} & set(range(2, max_batch + 1))))
    worst, where, at, limit = 0.0, names[0] if names else "", 0, tolerance
    tried: tuple[int, ...] = ()
    try:
        _first_axes_open(runner.inputs)
        pool, alone = _alone(runner, names, recipe, seed)
        for size in sizes:
            tried += (size,)
            for order in _orders(size):
                got = _run(runner, {key: rows[list(order)] for key, rows in pool.items()}, names, size)
                for i, name in enumerate(names):
                    change = _change(got[i], [row[i] for row in alone], order, name)
                    own_limit = max(tolerance, 4 * _epsilon(got[i]))
                    if change / own_limit > worst / limit:
                        worst, where, at, limit = change, name, size, own_limit
    except _Broken as broken:
        return Invariance(False, worst, "", tried, str(broken))
    if worst <= limit:
        return Invariance(True, worst, where, sizes, "")
    moved = "changes altogether" if worst == 1 else f"moves by {worst:.2%} of its range"
    reason = f"a row's answer depends on its batch-mates: output {where!r} {moved} in a batch of {at}"
    return Invariance(False, worst, where, sizes, reason)


def _first_axes_open(inputs: Sequence[Port]) -> None:
    if not inputs:
        raise _Broken("the model has no inputs")
    for port in inputs:
        if not port.shape:
            raise _Broken(f"input {port.name!r} is a single number: it has no batch axis")
        if port.shape[0] is not None:
            open_axes = [i for i, d in enumerate(port.shape) if d is None]
            also = f"; only axis {open_axes[0]} is open, and the batch must come first" if open_axes else ""
            raise _Broken(f"the first axis of input {port.name!r} is fixed at {port.shape[0]}{also}")


def _alone(
    runner: Runner, names: Sequence[str], recipe: Recipe | None, seed: int
) -> tuple[dict[str, Array], list[list[Array]]]:
    """The pool (two rows of each kind, input by input) and each row's outputs when it is run alone."""
    has_open = any(d is None for port in runner.inputs for d in port.shape[1:])
    first: _Broken | None = None
    for open_axis in _OPEN_AXES if has_open else (1,):
        pool = {port.name: _pool(port, open_axis, recipe, seed + i) for i, port in enumerate(runner.inputs)}
        try:
            rows = range(2 * len(_KINDS))
            return pool, [_run(runner, {k: v[r : r + 1] for k, v in pool.items()}, names, 1) for r in rows]
        except _Broken as broken:
            first = first or broken
    raise first or _Broken("the model has no inputs")


def _pool(port: Port, open_axis: int, recipe: Recipe | None, seed: int) -> Array:
    """(6, …): quiet, ordinary, loud, quiet, ordinary, loud."""
    shape = tuple(open_axis if d is None else d for d in port.shape[1:])
    rng = Noise(seed)
    bounds = recipe.input_range if recipe is not None and port.dtype == recipe.input_dtype else None
    return np.stack([_row(kind, port.dtype, shape, rng, bounds) for kind in _KINDS * 2])


def _row(kind: str, dtype: str, shape: tuple[int, ...], rng: Noise, bounds: tuple[float, float] | None) -> Array:
    """One row: quiet is close to zero (or to the lower bound), loud is at the ends of what the input may hold."""
    if dtype == "":
        raise _Broken("an input is a sequence or a map, which has no batch axis")
    if dtype == "object":
        return np.full(shape, {"quiet": "", "ordinary": "a few words", "loud": "MANY LOUD WORDS! " * 8}[kind], object)
    target = np.dtype(dtype)
    if target == np.uint8:
        low, high = {"quiet": (0, 4), "ordinary": (0, 256), "loud": (0, 2)}[kind]
        return (rng.integers(low, high, shape) * (255 if kind == "loud" else 1)).astype(target)
    if target.kind != "f":  # token ids, masks, flags: 0 and 1 mean something to all of them; the first is never masked
        ints = {"quiet": np.zeros(shape, int), "ordinary": rng.integers(0, 2, shape), "loud": np.ones(shape, int)}[kind]
        ints.reshape(-1)[:1] = 1
        return ints.astype(target)
    if bounds is None:
        return (rng.standard_normal(shape) * {"quiet": 0.01, "ordinary": 1.0, "loud": 20.0}[kind]).astype(target)
    low_f, high_f = bounds
    part = rng.integers(0, 2, shape) if kind == "loud" else rng.random(shape) * (0.02 if kind == "quiet" else 1.0)
    return (low_f + part * (high_f - low_f)).astype(target)


def _orders(size: int) -> Iterator[tuple[int, ...]]:
    """Rows of the pool, by index: ordinary rows first, in the middle and last, among loud and among quiet mates."""
    places = sorted({0, size // 2, size - 1})
    for mates in ((2, 5), (0, 3)):
        batch = [mates[i % 2] for i in range(size)]
        if size > len(places):  # room enough for all three places in one run
            yield tuple(1 if i in places[:2] else 4 if i in places else mate for i, mate in enumerate(batch))
        else:
            yield from (tuple(1 if i == place else mate for i, mate in enumerate(batch)) for place in places)


def _run(runner: Runner, feeds: Rows, names: Sequence[str], size: int) -> list[Array]:
    rows = "1 row" if size == 1 else f"{size} rows"
    try:
        got = runner.run(feeds, list(names))
    except Exception as error:  # any runtime's own class; whatever it is, the model did not run
        raise _Broken(f"the model does not run with {rows}: {told(error)}") from error
    for name, value in zip(names, got, strict=True):
        if not isinstance(value, np.ndarray):
            raise _Broken(f"output {name!r} is not a tensor, so its rows cannot be told apart")
        if value.ndim == 0 or value.shape[0] != size:
            count = "a single number" if value.ndim == 0 else f"{value.shape[0]} rows"
            raise _Broken(f"output {name!r} has {count} where {rows} went in")
    return got


def _change(got: Array, alone: Sequence[Array], order: Sequence[int], name: str) -> float:
    """The largest change of any row against itself alone, as a part of its kind's range; at most 1, altogether."""
    before = [alone[row] for row in order]
    for row in before:
        if row.shape[1:] != got.shape[1:]:
            raise _Broken(
                f"output {name!r} has shape {got.shape} in a batch of {len(order)}, its rows alone {row.shape}"
            )
    if got.dtype.kind not in "fiu":
        return 0.0 if all(np.array_equal(got[i], row[0]) for i, row in enumerate(before)) else 1.0
    ranges = _ranges(alone, name)
    return max(
        (_row_change(got[i], row[0], ranges[order[i] % len(_KINDS)]) for i, row in enumerate(before)), default=0.0
    )


def _row_change(got: Array, before: Array, scale: float) -> float:
    left, right = got.astype(np.float64), before.astype(np.float64)
    odd = ~(np.isfinite(left) & np.isfinite(right))
    if not np.array_equal(left[odd], right[odd], equal_nan=True):
        return 1.0
    difference = float(np.max(np.abs(left[~odd] - right[~odd]), initial=0.0))
    return difference / max(scale, difference)


def _ranges(alone: Sequence[Array], name: str) -> list[float]:
    """The range of one output over the two rows of each kind; never next to nothing beside the range of them all."""

    def spread(rows: Sequence[Array]) -> float:
        flat = np.concatenate([row.ravel() for row in rows]).astype(np.float64)
        finite = flat[np.isfinite(flat)]
        return float(np.ptp(finite)) if finite.size else 0.0

    if alone[0].size and not any(np.isfinite(row).any() for row in alone):
        raise _Broken(f"output {name!r} holds no finite number, so nothing can be compared")
    whole = max(spread(alone), 1e-12)
    return [max(spread(alone[kind :: len(_KINDS)]), 1e-3 * whole) for kind in range(len(_KINDS))]


def _epsilon(values: Array) -> float:
    return float(np.finfo(values.dtype).eps) if values.dtype.kind == "f" else 0.0
