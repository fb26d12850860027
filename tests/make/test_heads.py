"""Which output the labels belong to, and that probabilities are made exactly once."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onbudget.core.errors import BundleError, UsageError
from tests import models
from tests.support.bundling import LABELS, PICTURE, Bundling, probabilities, some

AXES = (0, 3, 1, 2)


@pytest.mark.parametrize("opset", [11, 13, 17])
def test_a_softmax_is_never_doubled(bundling: Bundling, opset: int) -> None:
    """A model that ends in its own softmax keeps it alone, and the passport says `already`."""
    report = bundling.make(models.softmaxed(opset=opset), PICTURE, LABELS)
    assert report.metadata.activation == "already"
    assert report.metadata.output == "logits"
    assert [port.name for port in report.outputs] == ["logits"]
    assert "no softmax was added" in report.notes[0]


def test_a_softmax_written_out_is_found_by_its_row_sums(bundling: Bundling) -> None:
    """exp ÷ sum, without a Softmax node, is recognised by what it answers."""
    model = models.tile_cnn()
    logits = model.graph.output[0]
    model.graph.node[-1].output[0] = "raw"
    model.graph.node.extend(
        [
            onnx.helper.make_node("Exp", ["raw"], ["e"]),
            onnx.helper.make_node("ReduceSum", ["e", "axis"], ["s"], keepdims=1),
            onnx.helper.make_node("Div", ["e", "s"], [logits.name]),
        ]
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1], np.int64), "axis"))
    assert bundling.make(model, PICTURE, LABELS).metadata.activation == "already"


def test_probabilities_in_half_precision_are_told_apart_and_cast(bundling: Bundling) -> None:
    """An fp16 model's own softmax is kept; its probabilities leave as float32."""
    report = bundling.make(models.softmaxed(dtype="float16"), PICTURE, LABELS)
    assert (report.metadata.activation, report.metadata.output) == ("already", "probabilities")
    (answer,) = bundling.runner().run({"tiles": some(2, 8, 8, 3)}, ["probabilities"])
    assert answer.dtype == np.float32
    np.testing.assert_allclose(answer.sum(axis=1), 1, atol=0.01)


def test_a_softmax_over_another_axis_is_refused(bundling: Bundling) -> None:
    """A softmax over the batch would let a row's answer depend on its mates."""
    model = models.softmaxed()
    model.graph.node[-1].attribute[0].i = 0
    with pytest.raises(BundleError, match="over another axis than the classes"):
        bundling.make(model, PICTURE, LABELS)


def test_a_log_softmax_becomes_probabilities(bundling: Bundling) -> None:
    """The softmax of log-probabilities is the probabilities themselves."""
    report = bundling.make(models.tile_cnn(head="LogSoftmax"), PICTURE, LABELS)
    assert report.metadata.activation == "softmax"
    logs, answer = bundling.runner().run({"tiles": some(3, 8, 8, 3)})
    np.testing.assert_allclose(answer, np.exp(logs), atol=1e-6)


def test_many_labels_at_once_get_a_sigmoid_each(bundling: Bundling) -> None:
    """multilabel adds a sigmoid, or keeps the model's own; a softmax at the end contradicts it."""
    report = bundling.make(models.tile_cnn(), PICTURE, LABELS, task="multilabel")
    logits, answer = bundling.runner().run({"tiles": some(3, 8, 8, 3)})
    np.testing.assert_allclose(answer, 1 / (1 + np.exp(-logits.astype(np.float64))), atol=1e-6)
    assert report.metadata.activation == "sigmoid"
    own = bundling.make(models.tile_cnn(head="Sigmoid"), PICTURE, LABELS, task="multilabel")
    assert (own.metadata.activation, own.metadata.output) == ("already", "logits")
    with pytest.raises(BundleError, match="exclude each other; use --task classify"):
        bundling.make(models.softmaxed(), PICTURE, LABELS, task="multilabel")


def test_scores_with_spare_axes_are_flattened(bundling: Bundling) -> None:
    """Logits of N×4×1×1 are four classes."""
    model = models.tile_cnn()
    model.graph.node[-1].output[0] = "flat"
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1, 4, 1, 1], np.int64), "wide"))
    model.graph.node.append(onnx.helper.make_node("Reshape", ["flat", "wide"], ["logits"]))
    del model.graph.output[0].type.tensor_type.shape.dim[1:]
    for size in (4, 1, 1):
        model.graph.output[0].type.tensor_type.shape.dim.add().dim_value = size
    report = bundling.make(model, PICTURE, LABELS)
    logits, answer = bundling.runner().run({"tiles": some(3, 8, 8, 3)})
    assert report.outputs[1].shape == (None, 4)
    np.testing.assert_allclose(answer, probabilities(logits.reshape(3, 4)), atol=1e-6)


def test_the_output_that_labels_belong_to_is_chosen_or_asked_for(bundling: Bundling) -> None:
    """Two outputs of one width are ambiguous until one is named, or one is the model's own probabilities."""
    with pytest.raises(
        UsageError, match="several outputs fit the labels: logits, other; choose one with --output-name"
    ):
        bundling.make(models.two_heads(), None, LABELS)
    assert bundling.make(models.two_heads(), None, LABELS, output_name="other").metadata.output == "probabilities"
    model = models.two_heads()
    model.graph.node.append(onnx.helper.make_node("Softmax", ["logits"], ["chances"], axis=1))
    model.graph.output.append(onnx.helper.make_tensor_value_info("chances", onnx.TensorProto.FLOAT, ["n", 4]))
    assert bundling.make(model, None, LABELS).metadata.output == "chances"
    with pytest.raises(UsageError, match="--output-name 'x': the model's outputs are logits, other"):
        bundling.make(models.two_heads(), None, LABELS, output_name="x")
