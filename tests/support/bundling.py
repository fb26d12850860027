"""Bundles made in one folder, and what they should answer, worked out once more by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from onbudget.engine.session import OrtRunner, load_runner
from onbudget.make.fuse import BundleOptions, BundleReport, make_bundle
from tests import models

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
PICTURE: dict[str, Any] = {
    "kind": "picture",
    "resize": "stretch",
    "size": [8, 8],
    "scale": 1 / 255,
    "mean": MEAN,
    "std": STD,
}
GREY = {**PICTURE, "colour": "grey", "mean": 0.1307, "std": 0.3081}
PIXELS = {
    "kind": "tensor",
    "shape": [784],
    "input_dtype": "float32",
    "input_range": [0, 255],
    "scale": 1 / 255,
    "mean": 0.1307,
    "std": 0.3081,
}
LABELS = ("water", "wood", "town", "field")


class Bundling:
    """Makes bundles in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.target = folder / "served.onnx"

    def file(self, model: Any) -> Path:
        return model if isinstance(model, Path) else models.write(model, self.folder / "model.onnx")

    def make(self, model: Any, recipe: Any = None, labels: Any = None, **options: Any) -> BundleReport:
        if recipe is not None:
            options["recipe"] = self.folder / "recipe.json"
            options["recipe"].write_text(json.dumps(recipe))
        if labels is not None:
            options["labels"] = self.folder / "labels.txt"
            options["labels"].write_text("\n".join(labels) + "\n")
        return make_bundle(self.file(model), BundleOptions(output=self.target, **options))

    def runner(self) -> OrtRunner:
        return load_runner(self.target)


def some(*shape: int, seed: int = 1) -> Any:
    """Distinct uint8 rows."""
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def by_hand(items: Any, recipe: dict[str, Any]) -> Any:
    """The tensor half in float64, written out here once more: it must not be the code under test."""
    x = items.astype(np.float64) * recipe.get("scale", 1.0)
    return (x - np.array(recipe.get("mean", 0.0))) / np.array(recipe.get("std", 1.0))


def original(path: Path, x: Any, rows: int = 0) -> Any:
    """The first output of the file itself, for an input that is ready for it; `rows` at a time where it is fixed."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    parts = [x] if not rows else np.split(x, len(x) // rows)
    return np.concatenate([session.run(None, {name: part})[0] for part in parts])


def probabilities(logits: Any) -> Any:
    e = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
