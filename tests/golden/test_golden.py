"""Files that an earlier onbudget wrote: a bundle of schema 1, and recipe vectors that a browser shares."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onbudget.core.dialects import read_recipe
from onbudget.core.recipe import Recipe
from onbudget.core.tasks import task_of
from onbudget.engine.bundle import check_file, file_sha256, read_metadata
from onbudget.engine.session import load_runner
from tests import models
from tests.support.bundling import Bundling

HERE = Path(__file__).parent
BUNDLE = HERE / "bundle-v1.onnx"
STORED = json.loads((HERE / "bundle-v1.json").read_text(encoding="utf-8"))
VECTORS: list[dict[str, Any]] = json.loads((HERE / "recipes.json").read_text(encoding="utf-8"))


def array(told: dict[str, Any], dtype: str) -> Any:
    return np.frombuffer(base64.b64decode(told["items"]), dtype).reshape(told["items_shape"])


# ---- the bundle -----------------------------------------------------------------------------------------------------


def test_the_golden_bundle_is_the_one_that_was_written() -> None:
    """Nobody made it again: the test is worth something only for the old file."""
    assert file_sha256(BUNDLE) == STORED["sha256"]
    assert BUNDLE.stat().st_size < 20_000


def test_the_golden_bundle_s_passport_is_read() -> None:
    """Every promise of schema 1, by the reader without a session and by the session's own."""
    check_file(BUNDLE)
    told = read_metadata(BUNDLE)
    assert told is not None
    assert told == load_runner(BUNDLE).metadata
    assert (told.task, told.field, told.activation, told.output) == ("classify", "tiles", "softmax", "probabilities")
    assert told.labels == ("water", "Wäldchen", "町", "field") == tuple(STORED["labels"])
    assert told.recipe == Recipe.from_dict(STORED["recipe"])
    assert (told.recipe.exif, told.recipe.resize, told.recipe.crop) == (True, "shortest", (8, 8))
    assert (told.params, told.unbatchable, told.exporter["name"]) == (556, "", "dynamo")
    assert set(told.parity) == {"torch", "fused"}
    assert len(told.source_sha256) == 64
    assert told.made_by == "onbudget 0.1.0"


def test_the_golden_bundle_answers_as_it_did() -> None:
    """Stored items, stored logits and probabilities; and the reference samples of its own passport."""
    runner = load_runner(BUNDLE)
    items = array(STORED, "uint8")
    logits, probabilities = runner.run({"tiles": items}, ["logits", "probabilities"])
    np.testing.assert_allclose(logits, STORED["logits"], atol=1e-4)
    np.testing.assert_allclose(probabilities, STORED["probabilities"], atol=1e-5)
    assert runner.metadata is not None
    assert len(runner.metadata.samples) == 3
    for sample in runner.metadata.samples:
        item = np.frombuffer(base64.b64decode(sample.item), np.uint8).reshape(1, 8, 8, 3)
        np.testing.assert_allclose(runner.run({"tiles": item}, ["probabilities"])[0][0], sample.output, atol=1e-5)


def test_the_golden_bundle_s_answers_have_labels() -> None:
    """Its task finds the labels of the stored probabilities."""
    runner = load_runner(BUNDLE)
    task = task_of(runner.metadata, {port.name: port.shape for port in runner.outputs})
    got = task.finish([np.array(STORED["probabilities"], np.float32)], [0, 0, 0])
    wanted = [STORED["labels"][int(np.argmax(row))] for row in STORED["probabilities"]]
    assert [answer["label"] for answer in got if isinstance(answer, dict)] == wanted


# ---- recipe vectors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["name"])
def test_a_recipe_vector_is_computed_to_the_bit(vector: dict[str, Any]) -> None:
    """The recipe as it was written reads as the stored one, and makes the stored tensor of the stored items."""
    recipe = read_recipe(vector["written"])
    assert recipe == Recipe.from_dict(vector["recipe"])
    got = recipe.tensor(array(vector, recipe.input_dtype))
    np.testing.assert_array_equal(got, np.array(vector["tensor"], np.float32).reshape(vector["tensor_shape"]))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["name"])
def test_a_recipe_vector_is_what_the_formula_says(vector: dict[str, Any]) -> None:
    """(x·scale − mean) / std in float64, so that the stored numbers are not only what the code once did."""
    told = vector["recipe"]
    x = array(vector, told["input_dtype"]).astype(np.float64)
    x = (x * told["scale"] - np.array(told["mean"] or 0)) / np.array(told["std"] or 1)
    x = x[..., ::-1] if told.get("bgr") else x
    x = x.transpose(0, 3, 1, 2) if told.get("layout") == "NCHW" else x
    np.testing.assert_allclose(np.array(vector["tensor"]).reshape(vector["tensor_shape"]), x, rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["name"])
def test_a_recipe_vector_is_what_the_fused_graph_computes(vector: dict[str, Any], tmp_path: Path) -> None:
    """Fused before a model that only echoes, the recipe gives the same bits."""
    bundling = Bundling(tmp_path)
    bundling.make(models.echo(*vector["tensor_shape"][1:]), vector["written"])
    (got,) = bundling.runner().run({"x": array(vector, vector["recipe"]["input_dtype"])})
    np.testing.assert_array_equal(got, np.array(vector["tensor"], np.float32).reshape(vector["tensor_shape"]))
    onnx.checker.check_model(onnx.load(bundling.target))


def test_every_kind_of_recipe_has_a_vector() -> None:
    """Both kinds, both dtypes, all layouts, grey and colour, reversed channels, and each dialect."""
    told = [vector["recipe"] for vector in VECTORS]
    assert {recipe["kind"] for recipe in told} == {"picture", "tensor"}
    assert {recipe["input_dtype"] for recipe in told} == {"uint8", "float32"}
    assert {recipe.get("layout") for recipe in told} == {"NCHW", "NHWC", "as-is", None}
    assert {recipe.get("colour") for recipe in told} == {"rgb", "grey", None}
    assert {recipe.get("bgr") for recipe in told} == {True, False, None}
    dialects = {"kind" in v["written"] for v in VECTORS} | {key for v in VECTORS for key in v["written"]}
    assert {True, False, "image_mean", "input_size"} <= dialects
