"""How a model's outputs become answers: one task object per bundle, one call per batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from onbudget.core.errors import BundleError, RunFailed
from onbudget.core.metadata import Metadata

Array = npt.NDArray[Any]
Answer = dict[str, Any]


class Task(Protocol):
    """`outputs` names what the run must compute; `finish` turns those arrays into one answer a row."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs that a run must compute."""
        ...

    def finish(self, arrays: Sequence[Any], tops: Sequence[int]) -> list[Answer | RunFailed]:
        """Arrays with rows first, and how many classes each row's caller wants to see (0: only the best) → answers.

        A row that the model spoilt (NaN) is a RunFailed in its place: it is one caller's, not the batch's.
        """
        ...


def softmax(logits: Array) -> Array:
    """Probabilities along the last axis; stable, since the row's largest logit is subtracted first."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    out: Array = shifted / shifted.sum(axis=-1, keepdims=True)
    return out


def sigmoid(logits: Array) -> Array:
    """Element-wise probabilities; stable for large negative logits."""
    positive = logits >= 0
    small = np.exp(np.where(positive, -logits, logits))
    out: Array = np.where(positive, 1, small) / (1 + small)
    return out


def _known(labels: Sequence[str], width: int, output: str) -> None:
    if width != len(labels):
        raise BundleError(
            f"the output {output!r} has {width} columns but the bundle has {len(labels)} labels; "
            "give `onbudget bundle --labels` a file with one label a column"
        )


_SPOILT = "the model answered NaN; the input was in range, so the model or its quantisation is at fault"


class Classify:
    """The best label and its probability; `top` lists more of them, best first."""

    def __init__(self, output: str, labels: Sequence[str]) -> None:
        self.outputs: tuple[str, ...] = (output,)
        self.labels = list(labels)

    def finish(self, arrays: Sequence[Any], tops: Sequence[int]) -> list[Answer | RunFailed]:
        """(n, classes) → `{"label", "confidence"}`, with `"top"` where it was asked for."""
        scores = arrays[0]
        best = scores.argmax(axis=1).tolist()
        confidence = scores.max(axis=1).tolist()
        labels = self.labels
        answers: list[Answer | RunFailed] = []
        for row, (index, value) in enumerate(zip(best, confidence, strict=True)):
            if value != value:  # NaN
                answers.append(RunFailed(_SPOILT))
                continue
            answer: Answer = {"label": labels[index], "confidence": value}
            if tops[row]:
                answer["top"] = self._top(scores[row], tops[row])
            answers.append(answer)
        return answers

    def _top(self, row: Array, count: int) -> list[Answer]:
        count = min(count, len(self.labels))
        some = np.argpartition(-row, count - 1)[:count]
        return [{"label": self.labels[i], "confidence": float(row[i])} for i in some[np.argsort(-row[some])].tolist()]


class MultiLabel:
    """Every label at or above one half, best first; `top` instead lists that many whatever their probability."""

    def __init__(self, output: str, labels: Sequence[str]) -> None:
        self.outputs: tuple[str, ...] = (output,)
        self.labels = list(labels)

    def finish(self, arrays: Sequence[Any], tops: Sequence[int]) -> list[Answer | RunFailed]:
        """(n, labels) of probabilities → `{"labels": [{"label", "confidence"}, …]}`."""
        scores = arrays[0]
        answers: list[Answer | RunFailed] = []
        for row, top in zip(scores, tops, strict=True):
            if np.isnan(row).any():
                answers.append(RunFailed(_SPOILT))
                continue
            order = np.argsort(-row)
            shown = order[:top] if top else order[row[order] >= 0.5]
            answers.append({"labels": [{"label": self.labels[i], "confidence": float(row[i])} for i in shown.tolist()]})
        return answers


def _finite(value: Any) -> bool:
    """Whether an array, or a map of scores, is without NaN and infinities; text and whole numbers are."""
    if isinstance(value, dict):
        return all(math.isfinite(score) for score in value.values() if isinstance(score, float))
    return getattr(value, "dtype", np.dtype(object)).kind != "f" or bool(np.isfinite(value).all())


class Tensors:
    """Every output of the model, as nested lists: the task of a plain .onnx file."""

    def __init__(self, outputs: Sequence[str]) -> None:
        self.outputs = tuple(outputs)

    def finish(self, arrays: Sequence[Any], tops: Sequence[int]) -> list[Answer | RunFailed]:
        """Arrays with rows first → `{"<output>": nested list, …}` a row; RunFailed for NaN, which JSON can't carry."""
        answers: list[Answer | RunFailed] = []
        for row in range(len(tops)):
            answer: Answer = {}
            bad = ""
            for name, array in zip(self.outputs, arrays, strict=True):
                value = array[row]
                if not _finite(value):
                    bad = name
                answer[name] = value.tolist() if hasattr(value, "tolist") else value
            answers.append(
                RunFailed(f"output {bad!r} has NaN or infinities, which JSON can't carry") if bad else answer
            )
        return answers


def task_of(metadata: Metadata | None, outputs: Mapping[str, tuple[int | None, ...]]) -> Task:
    """The task that a bundle names; `outputs` gives each output's shape. A plain model's task is Tensors.

    Raises BundleError when the labels do not fit the output's width, or the output is not there.
    """
    if metadata is None or metadata.task == "tensors":
        return Tensors(tuple(outputs))
    if metadata.output not in outputs:
        raise BundleError(f"the bundle reads output {metadata.output!r}, but the model has {', '.join(outputs)}")
    width = outputs[metadata.output][-1] if outputs[metadata.output] else None
    if width is not None:
        _known(metadata.labels, width, metadata.output)
    kind = Classify if metadata.task == "classify" else MultiLabel
    return kind(metadata.output, metadata.labels)
