"""What is asked of `onbudget bundle`, and what it tells when it is done."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onbudget.core.errors import UsageError
from onbudget.core.metadata import Metadata
from onbudget.core.options import option

if TYPE_CHECKING:  # a name for a type; engine.session costs onnxruntime
    from onbudget.engine.session import Port

TOLERANCE = 1e-4  # of a probability, or of an output's largest value where that is above 1
HALF_TOLERANCE = 1e-2  # where the model computes in half precision: the runtime may skip roundings in one file only
RESERVED = ("top", "file")  # words of the HTTP interface


@dataclass(frozen=True, slots=True)
class BundleOptions:
    """What to fuse into a model and what to write down of it; `output` is the file (default: NAME.bundle.onnx)."""

    recipe: Path | None = option(  # noqa: RUF009 - option() is a dataclasses.field
        None, "Preprocessing: ours, preprocessor_config.json, or timm's data config.", parse=Path, metavar="FILE"
    )
    labels: Path | None = option(  # noqa: RUF009 - the same
        None, "One label a line, or a config.json with id2label.", parse=Path, metavar="FILE"
    )
    field: str = option("", "Name of the items in JSON (default: the model's input).", metavar="NAME")
    task: str = option(
        "auto",
        "What answers are; auto: classify where there are labels, else tensors.",
        choices=("auto", "classify", "multilabel", "tensors"),
    )
    output_name: str = option("", "The model's output that the labels belong to, where several fit.", metavar="NAME")
    cost: bool = option(
        True, "Time a few runs for the cost curve that a server starts from; without, equal inputs make equal bytes."
    )
    output: Path | None = None

    def __post_init__(self) -> None:
        """UsageError for options that contradict each other."""
        if self.field in RESERVED:
            raise UsageError(f"--field {self.field!r} is a word of the HTTP interface; choose another")
        if self.task == "tensors" and self.labels is not None:
            raise UsageError("--labels say nothing of tensors; leave them out, or use --task classify or multilabel")


@dataclass(frozen=True, slots=True)
class BundleReport:
    """What was written. `difference` is fused vs numpy and original, None where nothing was fused."""

    path: Path
    bytes: int
    sha256: str
    metadata: Metadata
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    difference: float | None
    tolerance: float
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        told = self.metadata
        return {
            "path": str(self.path),
            "bytes": self.bytes,
            "sha256": self.sha256,
            "task": told.task,
            "field": told.field,
            "labels": len(told.labels),
            "activation": told.activation,
            "output": told.output,
            "recipe": told.recipe.to_dict() if told.recipe else None,
            "inputs": [dataclasses.asdict(port) for port in self.inputs],
            "outputs": [dataclasses.asdict(port) for port in self.outputs],
            "difference": self.difference,
            "tolerance": self.tolerance,
            "source_sha256": told.source_sha256,
            "params": told.params,
            "samples": len(told.samples),
            "cost": told.cost.to_dict() if told.cost else None,
            "notes": list(self.notes),
        }
