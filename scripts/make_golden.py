#!/usr/bin/env python3
"""Write tests/golden/: a bundle of schema 1 with its answers, and recipe vectors for Python and the browser.

    python scripts/make_golden.py recipes      recipe vectors, again
    python scripts/make_golden.py bundle       bundle-v1.onnx, once: it is kept for ever

The bundle is refused where there is one already: a later onbudget must read the file that an earlier one wrote.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from onbudget.core.dialects import read_recipe  # noqa: E402 - the paths come first
from onbudget.core.metadata import Metadata  # noqa: E402 - the same
from onbudget.core.recipe import Recipe  # noqa: E402 - the same
from onbudget.engine.session import load_runner  # noqa: E402 - the same
from onbudget.make.fuse import BundleOptions, make_bundle, write_metadata  # noqa: E402 - the same
from tests import models  # noqa: E402 - the same

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
HUGGING_FACE = {
    "do_resize": True,
    "size": {"height": 2, "width": 3},
    "resample": 2,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": MEAN,
    "image_std": STD,
    "image_processor_type": "ViTImageProcessor",
}
TIMM = {"input_size": [3, 2, 2], "interpolation": "bicubic", "mean": MEAN, "std": STD, "crop_pct": 1.0}
PICTURE = {"kind": "picture", "shape": [2, 3, 3], "scale": 1 / 255, "mean": MEAN, "std": STD}
# name -> a recipe in any dialect
RECIPES: dict[str, dict[str, Any]] = {
    "picture, channels first": PICTURE,
    "picture, channels last": {**PICTURE, "layout": "NHWC"},
    "picture, as it is": {"kind": "picture", "shape": [2, 2, 3], "layout": "as-is"},
    "picture, blue first": {**PICTURE, "bgr": True},
    "picture of floats": {**PICTURE, "input_dtype": "float32", "input_range": [0, 255]},
    "grey picture": {
        "kind": "picture",
        "shape": [3, 2, 1],
        "colour": "grey",
        "scale": 1 / 255,
        "mean": 0.13,
        "std": 0.3,
    },
    "numbers": {
        "kind": "tensor",
        "shape": [6],
        "input_dtype": "float32",
        "input_range": [0, 255],
        "scale": 1 / 255,
        "mean": 0.1307,
        "std": 0.3081,
    },
    "a table's columns": {
        "kind": "tensor",
        "shape": [4],
        "input_dtype": "float32",
        "mean": [1, -2, 0.5, 1000],
        "std": [1, 2, 0.25, 300],
    },
    "bytes": {"kind": "tensor", "shape": [2, 3], "input_dtype": "uint8", "scale": 2},
    "Hugging Face": HUGGING_FACE,
    "timm": TIMM,
}


def vector(name: str, written: dict[str, Any]) -> dict[str, Any]:
    """One recipe, two raw items and the tensor that they become."""
    recipe = read_recipe(written)
    random = np.random.default_rng(len(name))
    shape = (2, *recipe.shape)
    if recipe.input_dtype == "uint8":
        items = random.integers(0, 256, shape, dtype=np.uint8)
    else:
        low, high = recipe.input_range or (-5, 5)
        items = random.uniform(low, high, shape).astype(np.float32)
    tensor = recipe.tensor(items)
    return {
        "name": name,
        "written": written,
        "recipe": recipe.to_dict(),
        "items": base64.b64encode(items.tobytes()).decode(),
        "items_shape": list(shape),
        "tensor": [float(f"{value:.9g}") for value in tensor.ravel()],
        "tensor_shape": list(tensor.shape),
    }


def write_recipes() -> None:
    """tests/golden/recipes.json; items are little-endian, row by row."""
    vectors = [vector(name, written) for name, written in RECIPES.items()]
    (GOLDEN / "recipes.json").write_text(json.dumps(vectors, indent=1) + "\n")


def write_bundle() -> None:
    """tests/golden/bundle-v1.onnx and what it answers, in bundle-v1.json."""
    target = GOLDEN / "bundle-v1.onnx"
    if target.exists():
        sys.exit(f"{target} is there already, and stays as it is")
    recipe = Recipe.from_dict(
        {"kind": "picture", "exif": True, "resize": "shortest", "size": 9, "crop": 8, "resample": "bilinear"}
        | {"scale": 1 / 255, "mean": MEAN, "std": STD}
    )
    with tempfile.TemporaryDirectory() as folder:
        source = models.write(models.tile_cnn(), Path(folder) / "model.onnx")
        facts = {"name": "dynamo", "torch": "2.13.0", "opset": 17, "ir_version": 8}
        told = Metadata(params=556, exporter=facts, parity={"torch": {"worst": 1e-7}}, unbatchable="")
        write_metadata(source, told, source)
        (Path(folder) / "recipe.json").write_text(json.dumps(recipe.to_dict()))
        (Path(folder) / "labels.txt").write_text("water\nWäldchen\n町\nfield\n", encoding="utf-8")
        options = BundleOptions(
            recipe=Path(folder) / "recipe.json", labels=Path(folder) / "labels.txt", field="tiles", output=target
        )
        report = make_bundle(source, options)
    items = np.random.default_rng(1).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
    logits, probabilities = load_runner(target).run({"tiles": items}, ["logits", "probabilities"])
    answers = {
        "sha256": report.sha256,
        "recipe": recipe.to_dict(),
        "labels": list(report.metadata.labels),
        "items": base64.b64encode(items.tobytes()).decode(),
        "items_shape": list(items.shape),
        "logits": logits.tolist(),
        "probabilities": probabilities.tolist(),
    }
    (GOLDEN / "bundle-v1.json").write_text(json.dumps(answers, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    wanted = {"recipes": write_recipes, "bundle": write_bundle}
    if len(sys.argv) != 2 or sys.argv[1] not in wanted:
        sys.exit(__doc__)
    wanted[sys.argv[1]]()
