"""The fused file answers as numpy and the original do, whatever the model and the recipe look like."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from onbudget.core.errors import BundleError, UsageError
from onbudget.core.recipe import Recipe
from tests import models
from tests.support.bundling import GREY, LABELS, PICTURE, PIXELS, Bundling, by_hand, original, probabilities, some

AXES = (0, 3, 1, 2)


@pytest.mark.parametrize("rows", [1, 3, 7])
def test_pictures_go_in_as_bytes_and_come_out_as_probabilities(bundling: Bundling, rows: int) -> None:
    """uint8 NHWC in; the model's own logits and the softmax of them out, at any batch size; pain 35."""
    report = bundling.make(models.tile_cnn(), PICTURE, LABELS, field="pictures")
    runner = bundling.runner()
    items = some(rows, 8, 8, 3)
    logits, answer = runner.run({"pictures": items})
    wanted = original(bundling.folder / "model.onnx", by_hand(items, PICTURE).transpose(0, 3, 1, 2).astype(np.float32))
    assert [(p.name, p.dtype, p.shape) for p in runner.inputs] == [("pictures", "uint8", (None, 8, 8, 3))]
    assert [(p.name, p.shape) for p in runner.outputs] == [("logits", (None, 4)), ("probabilities", (None, 4))]
    np.testing.assert_allclose(logits, wanted, atol=1e-4)
    np.testing.assert_allclose(answer, probabilities(wanted), atol=1e-5)
    assert report.difference is not None
    assert report.difference < 1e-6


Case = tuple[Any, dict[str, Any], tuple[int, ...], tuple[int, ...]]  # model, recipe, item, the own input's axes
CASES: dict[str, Case] = {
    "channels last": (models.tile_cnn(layout="NHWC"), PICTURE, (8, 8, 3), ()),
    "grey": (models.tile_cnn(channels=1), GREY, (8, 8, 1), AXES),
    "grey, channels last": (models.tile_cnn(channels=1, layout="NHWC"), GREY, (8, 8, 1), ()),
    "one mean for all channels": (models.tile_cnn(), {**PICTURE, "mean": 0.5, "std": 0.25}, (8, 8, 3), AXES),
    "no scale": (models.tile_cnn(), {**PICTURE, "scale": 1, "mean": [120, 110, 100], "std": 60}, (8, 8, 3), AXES),
    "half precision": (models.tile_cnn(dtype="float16"), PICTURE, (8, 8, 3), AXES),
    "double precision, flat": (models.mlp(192, 4, dtype="float64"), PICTURE, (8, 8, 3), AXES),
    "opset 7": (models.tile_cnn(opset=7), PICTURE, (8, 8, 3), AXES),
    "opset 11": (models.tile_cnn(opset=11), PICTURE, (8, 8, 3), AXES),
    "a batch axis of -1": (models.tile_cnn(batch=-1), PICTURE, (8, 8, 3), AXES),
    "weights among the inputs": (models.with_weights_as_inputs(models.tile_cnn(opset=9)), PICTURE, (8, 8, 3), AXES),
}


@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_model_is_fused(bundling: Bundling, case: str) -> None:
    """Layouts, precisions, opsets and ways of writing the batch axis: the probabilities are numpy's."""
    model, recipe, item, axes = CASES[case]
    report = bundling.make(model, recipe, LABELS)
    (tiles,) = (port for port in bundling.runner().inputs)
    assert (tiles.dtype, tiles.shape) == ("uint8", (None, *item))
    items = some(5, *item)
    x = by_hand(items, recipe)
    own = onnx.helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    x = (x.transpose(axes) if axes else x).astype(own)
    if len(model.graph.input[0].type.tensor_type.shape.dim) == 2:
        x = x.reshape(5, -1)
    wanted = original(bundling.folder / "model.onnx", x)
    (answer,) = bundling.runner().run({tiles.name: items}, ["probabilities"])
    assert answer.dtype == np.float32
    np.testing.assert_allclose(answer, probabilities(wanted), atol=5e-3 if own == np.float16 else 1e-5)
    assert "probabilities" in [port.name for port in report.outputs]
    onnx.checker.check_model(onnx.load(bundling.target))


def test_channels_are_reversed_where_the_model_wants_bgr(bundling: Bundling) -> None:
    """With `bgr` the model sees blue first, each channel still with its own mean."""
    bundling.make(models.tile_cnn(), {**PICTURE, "bgr": True}, LABELS)
    items = some(4, 8, 8, 3)
    x = by_hand(items, PICTURE)[..., ::-1].transpose(AXES).astype(np.float32)
    (answer,) = bundling.runner().run({"tiles": items}, ["probabilities"])
    np.testing.assert_allclose(answer, probabilities(original(bundling.folder / "model.onnx", x)), atol=1e-5)


@pytest.mark.parametrize("item", [(784,), (1, 28, 28), (28, 28)])
def test_flat_numbers_take_the_shape_that_the_model_wants(bundling: Bundling, item: tuple[int, ...]) -> None:
    """784 numbers in 0 … 255 reach a model of N×784, N×1×28×28 or N×28×28."""
    bundling.make(models.mlp(item=item), PIXELS, [str(i) for i in range(10)], field="pixels")
    items = np.random.default_rng(3).uniform(0, 255, (4, 784)).astype(np.float32)
    (answer,) = bundling.runner().run({"pixels": items}, ["probabilities"])
    x = by_hand(items, PIXELS).reshape(4, *item).astype(np.float32)
    np.testing.assert_allclose(answer, probabilities(original(bundling.folder / "model.onnx", x)), atol=1e-5)


def test_every_feature_of_a_table_has_its_own_mean(bundling: Bundling) -> None:
    """A tensor recipe's mean and std may have one number for each place of the last axis."""
    recipe = {"kind": "tensor", "shape": [5], "input_dtype": "float32", "mean": [1, 2, 3, 4, 5], "std": [1, 2, 1, 2, 4]}
    bundling.make(models.mlp(5, 4), recipe, LABELS)
    items = np.random.default_rng(3).standard_normal((3, 5)).astype(np.float32)
    (answer,) = bundling.runner().run({"x": items}, ["probabilities"])
    wanted = original(bundling.folder / "model.onnx", by_hand(items, recipe).astype(np.float32))
    np.testing.assert_allclose(answer, probabilities(wanted), atol=1e-5)


@pytest.mark.parametrize(
    ("item", "recipe"),
    [
        ((3, 4, 5), {**PICTURE, "size": [4, 5]}),
        ((4, 5, 3), {**PICTURE, "size": [4, 5], "layout": "NHWC"}),
        ((3, 4, 5), {**PICTURE, "size": [4, 5], "bgr": True}),
        ((7,), {"kind": "tensor", "shape": [7], "input_dtype": "uint8", "scale": 0.1, "mean": 3, "std": 0.7}),
    ],
)
def test_the_graph_and_the_numpy_recipe_agree_to_the_bit(bundling: Bundling, item: Any, recipe: Any) -> None:
    """Both compute one product and one sum in float32, so there is no difference at all."""
    bundling.make(models.echo(*item), recipe)
    told = Recipe.from_dict(recipe)
    items = some(6, *told.shape)
    (got,) = bundling.runner().run({"x": items})
    np.testing.assert_array_equal(got, told.tensor(items))


def test_open_height_and_width_take_the_recipe_s(bundling: Bundling) -> None:
    """A model of N×3×H×W becomes a bundle of the recipe's size."""
    model = models.tile_cnn()
    for axis, name in ((2, "h"), (3, "w")):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    assert bundling.make(model, PICTURE, LABELS).inputs[0].shape == (None, 8, 8, 3)


def test_weights_beside_the_model_come_into_the_bundle(bundling: Bundling) -> None:
    """A model with external data becomes one file that needs nothing beside it; pain 38, 39."""
    path = models.with_external_data(models.tile_cnn(), bundling.folder, "outside.onnx")
    bundling.make(path, PICTURE, LABELS)
    (bundling.folder / "outside.onnx.data").unlink()
    items = some(2, 8, 8, 3)
    (answer,) = bundling.runner().run({"tiles": items}, ["probabilities"])
    assert answer.shape == (2, 4)


def test_whole_number_models_take_recipes_that_make_whole_numbers(bundling: Bundling) -> None:
    """A uint8 model is fed uint8 as it is; a recipe that scales is refused, since its fractions would be cut off."""
    bundling.make(models.echo(3, 8, 8, dtype="uint8"), {"kind": "picture", "resize": "stretch", "size": [8, 8]})
    items = some(2, 8, 8, 3)
    (got,) = bundling.runner().run({"x": items})
    np.testing.assert_array_equal(got, items.transpose(AXES))
    with pytest.raises(BundleError, match="makes fractions, but the model's input 'x' is uint8"):
        bundling.make(models.echo(3, 8, 8, dtype="uint8"), PICTURE)


# ---- the batch axis -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("flatten", [True, False])
def test_a_frozen_batch_axis_is_opened_where_the_answers_stay(bundling: Bundling, rows: int, flatten: bool) -> None:
    """A file made for 1, 2 or 4 rows takes any number, reshapes included, and is checked against itself; pain 33."""
    report = bundling.make(models.fixed_batch(rows, flatten=flatten), PICTURE, LABELS)
    items = some(4 * 3, 8, 8, 3)
    x = by_hand(items, PICTURE).transpose(AXES).astype(np.float32)
    wanted = original(bundling.folder / "model.onnx", x, rows)
    (answer,) = bundling.runner().run({"tiles": items}, ["probabilities"])
    np.testing.assert_allclose(answer, probabilities(wanted), atol=1e-5)
    assert f"fixed its batch axis at {rows}" in report.notes[0]
    assert [port.shape for port in report.outputs] == [(None, 4), (None, 4)]


def test_a_frozen_batch_that_cannot_be_opened_is_refused(bundling: Bundling) -> None:
    """Where rows are joined for good, the message names the batch, the node and the way out; pain 31, 32."""
    with pytest.raises(BundleError, match=r"fixes its batch axis at 2 .*Reshape.*onbudget export"):
        bundling.make(models.fixed_batch(2, mixing=True), PICTURE, LABELS)
    assert not bundling.target.exists()


def test_a_model_without_a_batch_axis_is_refused(bundling: Bundling) -> None:
    """One picture in, one row of logits out: there is nothing to batch, and the message says so."""
    with pytest.raises(BundleError, match=r"one item \(3×8×8\) without a batch axis"):
        bundling.make(models.no_batch(), PICTURE, LABELS)


def test_two_inputs_are_tensors_or_refused(bundling: Bundling) -> None:
    """A recipe is for one input; without it the file becomes a bundle of tensors."""
    with pytest.raises(BundleError, match=r"has 2 inputs \(a, b\)"):
        bundling.make(models.two_inputs(), PIXELS)
    report = bundling.make(models.two_inputs())
    assert (report.metadata.task, report.metadata.field, report.difference) == ("tensors", "instances", None)


# ---- names ----------------------------------------------------------------------------------------------------------


def test_new_names_never_meet_the_model_s_own(bundling: Bundling) -> None:
    """A field, our own nodes and `probabilities` may all be names that the graph has already."""
    model = models.tile_cnn()
    first, second = model.graph.node[0], model.graph.node[1]
    first.output[0] = second.input[0] = "onbudget/tensor"
    second.output[0] = model.graph.node[2].input[0] = "probabilities"
    model.graph.node[2].output[0] = model.graph.node[3].input[0] = "pictures"
    model.graph.node[3].name = "onbudget/mul"
    report = bundling.make(model, PICTURE, LABELS, field="pictures")
    assert report.inputs[0].name == "pictures"
    assert report.metadata.output == report.outputs[1].name == "probabilities_1"
    onnx.checker.check_model(onnx.load(bundling.target))


def test_a_field_may_not_be_an_output_or_a_word_of_the_interface(bundling: Bundling) -> None:
    """`logits` is taken by the model, `top` by the request."""
    with pytest.raises(UsageError, match="--field 'logits' is the name of an output"):
        bundling.make(models.tile_cnn(), PICTURE, LABELS, field="logits")
    with pytest.raises(UsageError, match="--field 'top' is a word of the HTTP interface"):
        bundling.make(models.tile_cnn(), PICTURE, LABELS, field="top")


def test_values_captured_by_a_branch_are_renamed_with_the_input(bundling: Bundling) -> None:
    """The body of an If reads the model's input from outside; it still does after the input got another name."""
    then = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "x"], ["a"])],
        "then",
        [],
        [onnx.helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, None)],
    )
    other = onnx.helper.make_graph(
        [onnx.helper.make_node("Neg", ["x"], ["b"])],
        "else",
        [],
        [onnx.helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, None)],
    )
    model = models.echo(4)
    del model.graph.node[:]
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "yes"))
    model.graph.node.append(onnx.helper.make_node("If", ["yes"], ["y"], then_branch=then, else_branch=other))
    recipe = {"kind": "tensor", "shape": [4], "input_dtype": "uint8", "scale": 0.5}
    bundling.make(model, recipe, field="x")
    (got,) = bundling.runner().run({"x": np.array([[2, 4, 6, 8]], np.uint8)})
    np.testing.assert_array_equal(got, [[2, 4, 6, 8]])


def test_an_axis_that_is_open_in_name_only_is_found_by_running(bundling: Bundling) -> None:
    """A symbolic batch with a frozen reshape inside runs with 1 row, not with 3, and the message says so; pain 33."""
    model = models.fixed_batch(1)
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    with pytest.raises(BundleError, match=r"model\.onnx: .* with 3 rows: .*, though it does with 1: export it again"):
        bundling.make(model, PICTURE, LABELS)


def test_inputs_that_no_recipe_can_make_are_refused(bundling: Bundling) -> None:
    """Text, and an input without declared axes: each is said in words."""
    recipe = {"kind": "tensor", "shape": [3], "input_dtype": "uint8"}
    text = models.echo(3)
    for value in (text.graph.input[0], text.graph.output[0]):
        value.type.tensor_type.elem_type = onnx.TensorProto.STRING
    with pytest.raises(BundleError, match="the input 'x' does not take numbers"):
        bundling.make(text, recipe)
    with pytest.raises(BundleError, match="the input 'x' declares no axes, so no batch axis"):
        bundling.make(models.echo(batch=None), recipe)


def test_other_outputs_stay_whatever_they_are(bundling: Bundling) -> None:
    """A single number and a list of maps beside the logits are kept, and do not disturb the check."""
    model = models.tile_cnn()
    model.graph.node.append(onnx.helper.make_node("ReduceMean", ["logits"], ["mean"], keepdims=0))
    model.graph.node.append(
        onnx.helper.make_node("ZipMap", ["logits"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2, 3])
    )
    model.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 1))
    number = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
    maps = onnx.helper.make_sequence_type_proto(onnx.helper.make_map_type_proto(onnx.TensorProto.INT64, number))
    model.graph.output.append(onnx.helper.make_tensor_value_info("mean", onnx.TensorProto.FLOAT, []))
    model.graph.output.append(onnx.helper.make_value_info("maps", maps))
    report = bundling.make(model, PICTURE, LABELS)
    assert [port.name for port in report.outputs] == ["logits", "mean", "maps", "probabilities"]
    assert report.metadata.output == "probabilities"
