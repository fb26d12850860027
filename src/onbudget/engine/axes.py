"""Which axis of a model's inputs counts items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # importing session costs onnxruntime; here only its shapes are read
    from onbudget.engine.session import Port


def batch_axis(inputs: Sequence[Port]) -> tuple[int | None, str]:
    """The size of the inputs' shared first axis (None: open; 0: there is none), and why items run alone, if they do."""
    firsts = {port.shape[0] if port.shape else 0 for port in inputs}
    if not firsts:
        return 0, "the model has no inputs"
    if 0 in firsts:
        return 0, "an input has no axes, so there is no batch axis"
    if len(firsts) > 1:
        return 0, "the inputs do not share their first axis, so it is not a batch axis"
    batch = firsts.pop()
    if batch is None:
        # A first axis that the outputs do not share is not proof either way; `onbudget check` tests by running.
        return None, ""
    return batch, "" if batch > 1 else "the file fixes the batch axis at 1"
