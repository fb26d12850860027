"""What one item of a loaded model looks like on the wire, worked out once from its ports and its passport."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from onbudget.core.errors import BundleError
from onbudget.core.metadata import Metadata
from onbudget.core.recipe import Recipe
from onbudget.engine.axes import batch_axis
from onbudget.engine.session import OrtRunner, Port
from onbudget.serve.adapted import Adapted


@dataclass(frozen=True)
class Contract:
    """The items of one model.

    `inputs` are the model's input ports; `shapes` are one item's shapes, without the batch axis (None: any size).
    `batch` is the batch axis: None for open, a number where the file froze it, 0 where there is no batch axis at all.
    `why_alone` is empty, or the reason why items never share a run. `own`: the application's `decode` makes the arrays,
    and what it is given is nobody else's business. `free`: a Python classifier's, whose shape nobody declared.
    `reworded`: the application's `finish` makes the answers. `outputs` are the model's output ports.
    """

    field: str
    inputs: tuple[Port, ...]
    shapes: tuple[tuple[int | None, ...], ...]
    recipe: Recipe | None
    batch: int | None
    why_alone: str
    own: bool = False
    free: bool = False
    reworded: bool = False
    outputs: tuple[Port, ...] = ()

    @cached_property
    def shape(self) -> tuple[int, ...] | None:
        """One item's shape where there is one input and every axis is known, else None."""
        if len(self.shapes) != 1 or any(d is None for d in self.shapes[0]):
            return None
        if self.recipe is not None:
            return self.recipe.shape
        return tuple(d for d in self.shapes[0] if d is not None)

    @cached_property
    def dtype(self) -> np.dtype[np.generic]:
        """The first input's dtype."""
        return np.dtype(self.inputs[0].dtype or "object")

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of one item sent raw; 0 where raw bytes make no sense (strings, open axes, several inputs, `own`)."""
        if self.own or self.shape is None or self.dtype.kind == "O":
            return 0
        return prod(self.shape) * self.dtype.itemsize

    @cached_property
    def wire_bytes(self) -> int:
        """About as many bytes as one item takes in a body, in base64; 0 where nothing can be said."""
        return 0 if self.pictures and self.row_bytes > 2**16 else self.row_bytes * 4 // 3

    @cached_property
    def plain_head(self) -> re.Pattern[bytes]:
        """How a JSON body begins that holds nothing but text items, up to the first of them; group 1 is their name."""
        name = rb"|".join(re.escape(name.encode()) for name in (self.field, "instances"))
        return re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"(%b)"[ \t\r\n]*:[ \t\r\n]*\[[ \t\r\n]*"' % name)

    @cached_property
    def pictures(self) -> bool:
        """Whether an item may be a picture: the recipe says how to decode it."""
        return self.recipe is not None and self.recipe.kind == "picture" and not self.own

    @cached_property
    def stacks(self) -> bool:
        """Whether any two items can share a run, by their shapes."""
        return self.free or all(d is not None for shape in self.shapes for d in shape)


def contract_of(runner: OrtRunner | Adapted) -> Contract:
    """Read a loaded model's ports and passport; BundleError for inputs that can't be served as tensors."""
    metadata = runner.metadata or Metadata()
    if not runner.inputs:
        raise BundleError("the model has no inputs, so there is nothing to send it")
    for port in runner.inputs:
        if not port.dtype:
            raise BundleError(
                f"input {port.name!r} is a sequence, a map, or of a dtype that numpy has not; "
                "only tensors of numbers, booleans and strings can be served"
            )
    batch, why = batch_axis(runner.inputs)
    if metadata.unbatchable:
        why = metadata.unbatchable
    shapes = tuple(port.shape if batch == 0 else port.shape[1:] for port in runner.inputs)
    return Contract(metadata.field, runner.inputs, shapes, metadata.recipe, batch, why, outputs=runner.outputs)
