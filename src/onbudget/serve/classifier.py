"""A model as a Python object: pixels in, labels and confidences out, on one thread; for scripts, notebooks and tests.

A bundle brings its own preprocessing and labels, inside the file. A plain .onnx gets both from the caller.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onbudget.core.errors import RunFailed, UsageError
from onbudget.core.metadata import Metadata
from onbudget.core.recipe import Recipe
from onbudget.core.tasks import Classify, Task, softmax, task_of
from onbudget.engine.axes import batch_axis
from onbudget.engine.session import OrtRunner, Port, example, load_runner

log = logging.getLogger("onbudget")
Array = npt.NDArray[Any]
Preprocess = Callable[[Array], Array]
SURE = 1e-3  # rows that are not negative and add up to 1 this closely are probabilities


class Classifier:
    """One model on one thread: `classes` are its labels, `predict` answers a batch.

    `classes` and `preprocess` (a Recipe, or a function of stacked items → the model's input) are for a plain .onnx
    file; a bundle holds both, so giving it others is an error. Raises BundleError for what is not a loadable model,
    UsageError for arguments that do not fit it.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        classes: Sequence[str] | None = None,
        preprocess: Preprocess | Recipe | None = None,
    ) -> None:
        self.path = Path(fspath(path))
        self.runner: OrtRunner = load_runner(self.path)
        told = self.runner.metadata
        self.bundle = told is not None and told.task != "tensors"  # it answers with labels all by itself
        self.metadata = told or Metadata()
        self._check(classes, preprocess)
        self.recipe = preprocess if isinstance(preprocess, Recipe) else self.metadata.recipe
        self._preprocess = preprocess.tensor if isinstance(preprocess, Recipe) else preprocess
        self.classes: list[str] = list(self.metadata.labels if self.bundle else classes or ())
        self._task = self._task_of()
        self._softmax = not self.bundle and not self._sums_to_one()

    @property
    def session(self) -> Any:
        """ONNX Runtime's own session."""
        return self.runner.session

    def predict(self, items: Array | Sequence[Any]) -> list[dict[str, Any]]:
        """Stacked items (n, …), or a list of them → `{"label", "confidence"}` each; confidence is the probability.

        ValueError for items of another shape than the model takes, RunFailed where the model answers NaN.
        """
        if len(items) == 0:
            return []
        stacked = np.asarray(items)
        rows = self._preprocess(stacked) if self._preprocess is not None else stacked
        scores = self._run(self._fitting(rows, stacked.shape))
        answers = self._task.finish([softmax(scores) if self._softmax else scores], [0] * len(rows))
        for answer in answers:
            if isinstance(answer, RunFailed):
                raise answer
        return answers  # type: ignore[return-value]  # none of them is a RunFailed

    def item(self) -> Port | None:
        """What one item looks like, rows first, where that is known: by the file, a Recipe, or by trying `preprocess`.

        A function is tried with uint8 pixels, height × width × channels, as the model has them.
        """
        (port,) = self.runner.inputs
        if self._preprocess is None:
            return port
        if self.recipe is not None:
            return Port(port.name, self.recipe.input_dtype, (None, *self.recipe.shape))
        channels, *size = port.shape[1:]
        shape = (*size, channels)
        if len(shape) != 3 or any(d is None for d in shape):
            return None
        try:
            made = self._preprocess(np.zeros((1, *shape), np.uint8))  # type: ignore[arg-type]  # no None: looked above
        except Exception as error:  # noqa: BLE001 - the caller's function may raise anything for what it does not take
            log.debug("preprocess does not take uint8 pixels of %s: %r", shape, error)
            return None
        fits = getattr(made, "shape", ()) == (1, *port.shape[1:])
        return Port(port.name, "uint8", (None, *shape)) if fits else None

    def _check(self, classes: Sequence[str] | None, preprocess: object) -> None:
        """UsageError where the file and the arguments say two things, or nothing."""
        if len(self.runner.inputs) != 1:
            names = ", ".join(port.name for port in self.runner.inputs)
            raise UsageError(f"{self.path}: a Classifier feeds one input, and this model has {names}; serve the file")
        if self.metadata.recipe is not None and preprocess is not None:
            raise UsageError(f"{self.path} is a bundle with its preprocessing inside: leave preprocess out")
        if not self.bundle and not classes:
            raise UsageError(f"{self.path} has no labels of its own: give classes=[…], one name for each column")
        if self.bundle and classes is not None and tuple(classes) != self.metadata.labels:
            raise UsageError(f"{self.path} is a bundle with the labels {list(self.metadata.labels)}: leave classes out")

    def _task_of(self) -> Task:
        outputs = {port.name: port.shape for port in self.runner.outputs}
        if self.bundle:
            return task_of(self.metadata, outputs)
        name, shape = self.runner.outputs[0].name, self.runner.outputs[0].shape
        if shape and len(shape) != 2:
            raise UsageError(f"{self.path}: output {name!r} has {len(shape)} axes; a Classifier reads rows × classes")
        if shape and shape[1] not in (None, len(self.classes)):
            raise UsageError(
                f"{self.path}: output {name!r} has {shape[1]} columns, but classes has {len(self.classes)}"
            )
        return Classify(name, self.classes)

    def _sums_to_one(self) -> bool:
        """Whether a plain model ends in its own softmax, which must not be taken twice: three made-up rows tell."""
        try:
            scores = self._run(example(self.runner.inputs[0], 3))
        except Exception as error:  # noqa: BLE001 - onnxruntime's own classes: open axes were guessed
            log.debug("%s: made-up rows do not run, so it is taken to answer logits: %s", self.path, error)
            return False
        return bool((scores >= 0).all() and (abs(scores.sum(axis=-1) - 1) < SURE).all())

    def _fitting(self, rows: Array, given: tuple[int, ...]) -> Array:
        port = self.runner.inputs[0]
        fits = rows.ndim == len(port.shape) and all(
            d is None or d == n for d, n in zip(port.shape[1:], rows.shape[1:], strict=True)
        )
        if not fits or str(rows.dtype) != port.dtype:
            wanted = "×".join("n" if d is None else str(d) for d in (None, *port.shape[1:]))
            made = "" if self._preprocess is None else f", from items of {'×'.join(map(str, given))}"
            raise ValueError(
                f"the model takes {wanted} {port.dtype}, not {'×'.join(map(str, rows.shape))} {rows.dtype}{made}"
            )
        return np.ascontiguousarray(rows)

    def _run(self, rows: Array) -> Array:
        """Scores of all rows; as many at a time as the file fixes, or one where rows must not share a run."""
        batch, _ = batch_axis(self.runner.inputs)
        step = batch or (1 if self.metadata.unbatchable else len(rows))
        name, outputs = self.runner.inputs[0].name, self._task.outputs if self.bundle else None
        parts = []
        for begin in range(0, len(rows), step):
            some = rows[begin : begin + step]
            count = len(some)
            if batch and count < batch:  # the file wants exactly so many: the last one fills up
                some = np.concatenate([some, np.repeat(some[-1:], batch - count, axis=0)])
            parts.append(self.runner.run({name: some}, outputs)[0][:count])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
