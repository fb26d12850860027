"""What a bundle says of itself: versioned JSON under one key of the ONNX file's metadata.

The format is a promise. `SCHEMA` grows only when an old reader would misunderstand a new file; a reader refuses a newer
schema by name, reads every older one, and ignores keys that it does not know. `tests/golden/bundle-v1.onnx` is kept for
ever.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, NoReturn, get_args

from onbudget.core.errors import BundleError, UsageError
from onbudget.core.recipe import Recipe

SCHEMA = 1
KEY = "onbudget"  # the metadata_props key
LARGEST = 1024  # the largest batch that a curve may tell of, and a server run

Activation = Literal["none", "softmax", "sigmoid", "already"]
TaskName = Literal["classify", "multilabel", "tensors"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One reference item and what the fused file answered: `item` is base64 of the raw input row.

    `output` is the answer's row, flattened: of the output that the task reads, or of the first one.
    """

    item: str
    output: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Curve:
    """What runs cost where the file was made: (batch, seconds) in ascending order, and that machine's hash.

    Its shape holds elsewhere too; its scale does not.
    """

    points: tuple[tuple[int, float], ...]
    machine: str

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Curve:
        """What `to_dict` gave; ValueError names what is wrong with anything else."""
        from onbudget.core.cost import Cost  # it needs statistics: 16 ms that a command without a curve does not pay

        points, machine = told.get("points"), told.get("machine")
        if not isinstance(machine, str):
            raise ValueError(f"a curve's machine must be text, not {str(machine)[:60]!r}")
        if isinstance(points, list) and any(not _is_size(point) for point in points):
            raise ValueError(f"a curve's batches must be from 1 to {LARGEST}")  # a table is made up to the largest
        try:
            return cls(Cost.from_dict(told).points, machine)
        except OverflowError as error:  # a whole number that no float holds
            raise ValueError("a curve's seconds must be numbers") from error

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"points": [[batch, seconds] for batch, seconds in self.points], "machine": self.machine}


def _is_size(point: Any) -> bool:
    return isinstance(point, list) and bool(point) and isinstance(point[0], int) and 1 <= point[0] <= LARGEST


@dataclass(frozen=True, slots=True)
class Metadata:
    """A bundle's passport.

    `field` is the name that callers use in JSON (`tiles`); `task` says how outputs become answers; `activation` says
    what turned logits into probabilities and where (`already`: the model's own graph did). `unbatchable` is empty, or
    the reason why rows must not share a run.
    """

    task: TaskName = "tensors"
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
    cost: Curve | None = None  # absent from the text where nobody measured

    def to_json(self) -> str:
        """Canonical JSON, with the schema first: the same passport is always the same text."""
        told: dict[str, Any] = {"schema": SCHEMA}
        for name in (f.name for f in fields(self)):
            told[name] = getattr(self, name)
        told["labels"] = list(self.labels)
        told["recipe"] = self.recipe.to_dict() if self.recipe else None
        told["exporter"], told["parity"] = _sorted(self.exporter), _sorted(self.parity)
        told["samples"] = [{"item": s.item, "output": list(s.output)} for s in self.samples]
        if self.cost is None:
            del told["cost"]
        else:
            told["cost"] = self.cost.to_dict()
        return json.dumps(told, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Metadata:
        """Read any schema up to SCHEMA; BundleError for a newer one or for damage, naming what is wrong."""
        try:
            data = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise BundleError(f"the bundle's metadata is damaged: not JSON: {error}") from error
        if not isinstance(data, dict):
            raise BundleError("the bundle's metadata is damaged: not a JSON object")
        _check_schema(data)
        return cls(**{key: read(key, data[key]) for key, read in _READERS.items() if key in data})


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _sorted(value[key]) for key in sorted(value, key=str)}
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _check_schema(data: Mapping[str, Any]) -> None:
    schema = data.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise BundleError(f"the bundle's metadata is damaged: schema must be a whole number, not {schema!r}")
    if schema > SCHEMA:
        maker = data.get("made_by") or "a newer onbudget"
        raise BundleError(
            f"the bundle has metadata schema {schema}, written by {maker}; this onbudget reads schemas up to {SCHEMA}. "
            "Install a newer onbudget, or make the bundle again with this one"
        )


# ---- one reader a key -----------------------------------------------------------------------------------------------


def _damaged(key: str, wanted: str, value: Any) -> BundleError:
    return BundleError(f"the bundle's metadata is damaged: {key} must be {wanted}, not {str(value)[:60]!r}")


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _damaged(key, "text", value)
    return value


def _name(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _damaged(key, "text that is not empty", value)
    return value


def _word(allowed: tuple[str, ...]) -> Callable[[str, Any], str]:
    def read(key: str, value: Any) -> str:
        if value not in allowed:
            raise _damaged(key, f"one of {', '.join(allowed)}", value)
        return str(value)

    return read


def _texts(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise _damaged(key, "a list of texts", value)
    return tuple(value)


def _count(key: str, value: Any) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise _damaged(key, "a count or null", value)
    return value


def _mapping(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _damaged(key, "an object", value)
    return value


def _recipe(key: str, value: Any) -> Recipe | None:
    if value is None:
        return None
    try:
        return Recipe.from_dict(_mapping(key, value))
    except UsageError as error:
        raise BundleError(f"the bundle's metadata is damaged, or newer than this onbudget: {error}") from error


def _samples(key: str, value: Any) -> tuple[Sample, ...]:
    if not isinstance(value, list):
        raise _damaged(key, "a list", value)
    return tuple(_sample(f"{key}[{i}]", one) for i, one in enumerate(value))


def _sample(key: str, value: Any) -> Sample:
    told = _mapping(key, value)
    item, output = told.get("item"), told.get("output")
    if not isinstance(item, str):
        raise _damaged(f"{key}.item", "base64 text", item)
    if not isinstance(output, list) or not all(
        isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in output
    ):
        raise _damaged(f"{key}.output", "a list of numbers", output)
    return Sample(item, tuple(float(v) for v in output))


def _cost(key: str, value: Any) -> Curve | None:
    if value is None:
        return None
    try:
        return Curve.from_dict(_mapping(key, value))
    except ValueError as error:
        raise BundleError(f"the bundle's metadata is damaged: {key}: {error}") from error


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "task": _word(get_args(TaskName)),
    "field": _name,
    "labels": _texts,
    "recipe": _recipe,
    "activation": _word(get_args(Activation)),
    "output": _text,
    "params": _count,
    "unbatchable": _text,
    "source_sha256": _text,
    "exporter": _mapping,
    "parity": _mapping,
    "samples": _samples,
    "made_by": _text,
    "cost": _cost,
}
