"""What a bundle says of itself: versioned JSON under one key of the ONNX file's metadata.

The format is a promise. `SCHEMA` grows only when an old reader would misunderstand a new file; a reader refuses a newer
schema by name and reads every older one. `tests/golden/bundle-v1.onnx` is kept for ever.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from onbudget.core.recipe import Recipe

SCHEMA = 1
KEY = "onbudget"  # the metadata_props key

Activation = Literal["none", "softmax", "sigmoid", "already"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One reference item and what the fused file answered: `item` is base64 of the raw input row."""

    item: str
    output: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Metadata:
    """A bundle's passport.

    `field` is the name that callers use in JSON (`tiles`); `task` says how outputs become answers; `activation` says
    what turned logits into probabilities and where (`already`: the model's own graph did). `unbatchable` is empty, or
    the reason why rows must not share a run.
    """

    task: Literal["classify", "multilabel", "tensors"] = "tensors"
    field: str = "instances"
    labels: tuple[str, ...] = ()
    recipe: Recipe | None = None
    activation: Activation = "none"
    output: str = ""  # the output that the task reads (probabilities)
    params: int | None = None  # counted at export
    unbatchable: str = ""
    source_sha256: str = ""  # of the .onnx that this bundle was made from
    exporter: dict[str, Any] = dataclasses.field(default_factory=dict)  # name, versions, opset
    parity: dict[str, Any] = dataclasses.field(default_factory=dict)  # torch vs ONNX, fused vs numpy, batch-mates
    samples: tuple[Sample, ...] = ()
    made_by: str = ""  # onbudget's version

    def to_json(self) -> str:
        """Canonical JSON, with the schema first."""
        raise NotImplementedError  # the helper for this room writes it

    @classmethod
    def from_json(cls, text: str) -> Metadata:
        """Read any schema up to SCHEMA; BundleError for a newer one or for damage, naming what is wrong."""
        raise NotImplementedError
