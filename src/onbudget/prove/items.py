"""Made-up items for a model that is to be measured: which batch sizes can be run, and with what."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from onbudget.core.errors import BundleError
from onbudget.core.metadata import Metadata
from onbudget.core.tasks import task_of
from onbudget.engine.axes import batch_axis

if TYPE_CHECKING:  # importing session costs onnxruntime
    from onbudget.engine.session import Runner

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


class Items:
    """What one loaded model takes.

    `sizes` are the batches to measure, up to `max_batch`; `alone` is empty, or why there is only one; `outputs` are
    what its task asks for; `shapes` are one item's by input. Open axes other than the batch are `open_axis` long.
    """

    def __init__(self, name: str, runner: Runner, metadata: Metadata | None, max_batch: int, open_axis: int) -> None:
        self._name, self._open = name, open_axis
        self._ports = runner.inputs
        self._batch, why = batch_axis(runner.inputs)
        self.alone = (metadata.unbatchable if metadata else "") or why
        self.outputs = task_of(metadata, {port.name: port.shape for port in runner.outputs}).outputs
        if self.alone:
            self.sizes = [1]
        elif self._batch:  # the file is run at its own size, however few of its rows are wanted
            self.sizes = [self._batch]
        else:
            self.sizes = [n for n in SIZES if n < max_batch] + [max_batch]
        first = 0 if self._batch == 0 else 1
        self.shapes = {key: list(rows.shape[first:]) for key, rows in self.feeds(1, 0).items()}

    def feeds(self, batch: int, seed: int) -> dict[str, Any]:
        """Arrays by input name for a run of `batch` items; BundleError for inputs that are not tensors."""
        from onbudget.engine.session import example

        first = 0 if self._batch == 0 else 1
        made = {}
        for port in self._ports:
            if not port.dtype:
                raise BundleError(
                    f"{self._name}: input {port.name!r} is a sequence or a map; only tensors are measured"
                )
            filled = tuple(self._open if d is None and i >= first else d for i, d in enumerate(port.shape))
            made[port.name] = example(dataclasses.replace(port, shape=filled), self._batch or batch, seed)
        return made
