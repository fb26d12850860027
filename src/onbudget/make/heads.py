"""Which of a model's outputs the labels belong to, and what makes it probabilities: decided by graph and by rows."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from onbudget.core.errors import BundleError, UsageError
from onbudget.core.metadata import Activation, Metadata, Sample
from onbudget.core.tasks import sigmoid, softmax
from onbudget.make import rows, surgery

if TYPE_CHECKING:  # names for types; engine.session costs onnxruntime
    from onbudget.engine.session import Runner

Array = npt.NDArray[Any]

_SUM_TOLERANCE = {"float16": 2e-2}  # of a row of probabilities; else 1e-3
_FEW = 16  # numbers in 0 … 1 that are no accident
_SAMPLE_BYTES, _SAMPLE_NUMBERS = 64_000, 4096  # above these a bundle carries no reference samples


@dataclass(frozen=True, slots=True)
class Head:
    """The output that the task reads, `columns` wide; an empty name means all outputs, as tensors.

    `plain` says that it is (rows, columns) of float32 as it stands.
    """

    name: str = ""
    columns: int = 0
    plain: bool = True
    labels: tuple[str, ...] = ()
    activation: Activation = "none"
    notes: tuple[str, ...] = ()

    def expected(self, answers: Mapping[str, Array]) -> Array:
        """The probabilities that the fused file should answer where the original answers this."""
        scores = answers[self.name]
        flat = scores.reshape(len(scores), self.columns).astype(np.float32)
        if self.activation == "already":
            return flat
        return softmax(flat) if self.activation == "softmax" else sigmoid(flat)


def choose(model: Any, answers: Mapping[str, Array], told: Metadata, wanted: str) -> Head:
    """Decide from the graph and from what the original answers to a few distinct rows.

    `wanted` is the output's name, or "". UsageError where labels and widths do not fit or several outputs do;
    BundleError where the graph's own activation contradicts the task.
    """
    if told.task == "tensors":
        return Head()
    if wanted and wanted not in answers:
        raise UsageError(f"--output-name {wanted!r}: the model's outputs are {', '.join(answers)}")
    fit = {name: _columns(a) for name, a in answers.items() if not wanted or name == wanted}
    fit = {name: n for name, n in fit.items() if n and (not told.labels or n == len(told.labels))}
    name = _the_one(model, fit, answers, told)
    scores, columns = answers[name], fit[name]
    notes: list[str] = []
    labels = told.labels
    if not labels:
        labels = tuple(str(i) for i in range(columns))
        notes.append(f"no labels given: the classes are called 0 … {columns - 1} (--labels FILE names them)")
    if told.task == "classify" and columns == 1:
        raise UsageError(f"output {name!r} is one column wide, so there is nothing to choose; use --task multilabel")
    flat = scores.reshape(len(scores), columns)
    decide = _classify if told.task == "classify" else _multilabel
    activation, note = decide(surgery.ends_in(model, name), flat, name)
    plain = scores.ndim == 2 and scores.dtype == np.float32
    return Head(name, columns, plain, labels, activation, (*notes, *([note] if note else ())))


def samples(runner: Runner, given: Array, output: str) -> tuple[Sample, ...]:
    """Reference samples, each row run alone; none where rows or answers are large, or not finite numbers."""
    if given[0].nbytes > _SAMPLE_BYTES or given.dtype.kind not in "biuf":
        return ()
    made = []
    for row in given:
        (answer,) = rows.answers(runner, row[None], [output])
        if not answer.ndim or len(answer) != 1 or answer.size > _SAMPLE_NUMBERS or answer.dtype.kind not in "biuf":
            return ()
        numbers = [float(f"{value:.9g}") for value in answer.ravel().astype(np.float64)]
        if not np.isfinite(numbers).all():
            return ()
        made.append(Sample(base64.b64encode(np.ascontiguousarray(row).tobytes()).decode(), tuple(numbers)))
    return tuple(made)


def _columns(answer: Array) -> int:
    """The width of an output that has one number a class and row, else 0."""
    if answer.dtype.kind != "f" or answer.ndim < 2 or len(answer) != max(rows.CHECKED):
        return 0
    long = [n for n in answer.shape[1:] if n != 1]
    return 0 if len(long) > 1 or 0 in long else (long or [1])[0]


def _the_one(model: Any, fit: Mapping[str, int], answers: Mapping[str, Array], told: Metadata) -> str:
    if not fit:
        shown = ", ".join(f"{name!r} {'×'.join(map(str, a.shape[1:])) or 'one number'}" for name, a in answers.items())
        if told.labels:
            raise UsageError(
                f"there are {len(told.labels)} labels, but no output of the model is that wide (a row of: {shown}); "
                "give --labels a file with one label a column, or --task tensors"
            )
        raise UsageError(f"no output of the model has one number a class (a row of: {shown}); use --task tensors")
    if len(fit) == 1:
        return next(iter(fit))
    done = [name for name in fit if surgery.ends_in(model, name)]  # the model's own probabilities, beside its logits
    if len(done) == 1:
        return done[0]
    raise UsageError(f"several outputs fit the labels: {', '.join(fit)}; choose one with --output-name")


def _classify(ends: str, flat: Array, name: str) -> tuple[Activation, str]:
    values = flat.astype(np.float64)
    tolerance = _SUM_TOLERANCE.get(str(flat.dtype), 1e-3)
    sums = bool((np.abs(values.sum(axis=1) - 1) <= tolerance).all() and _in_unit(values, tolerance))
    if ends == "softmax" and not sums:
        raise BundleError(
            f"output {name!r} comes from a Softmax, but its rows do not sum to 1: it runs over another axis than the "
            "classes. Export the model without it; the bundle adds its own"
        )
    if ends == "softmax" or sums:
        return "already", f"output {name!r} holds probabilities already, so no softmax was added"
    if ends == "sigmoid":
        return "already", f"output {name!r} comes from a sigmoid: each confidence is that label's alone"
    return "softmax", ""


def _multilabel(ends: str, flat: Array, name: str) -> tuple[Activation, str]:
    values = flat.astype(np.float64)
    if ends == "softmax":
        raise BundleError(
            f"output {name!r} comes from a Softmax, so its labels exclude each other; use --task classify"
        )
    if ends == "sigmoid" or (values.size >= _FEW and _in_unit(values, 0.0)):
        return "already", f"output {name!r} holds probabilities already, so no sigmoid was added"
    return "sigmoid", ""


def _in_unit(values: Array, tolerance: float) -> bool:
    return bool((values >= -tolerance).all() and (values <= 1 + tolerance).all())
