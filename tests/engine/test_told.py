"""onnxruntime's errors, as people read them."""

from __future__ import annotations

import numpy as np
import pytest

from onbudget.core.errors import BundleError
from onbudget.engine.session import load_runner
from onbudget.engine.told import told


def test_an_onnxruntime_error_is_told_as_one_sentence_with_its_node() -> None:
    """The node and the reason survive; source files and C++ signatures do not."""
    raw = (
        "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running Reshape node. "
        "Name:'node_view' Status Message: /onnxruntime_src/onnxruntime/core/providers/cpu/tensor/reshape_helper.h:47 "
        "onnxruntime::ReshapeHelper::ReshapeHelper(const onnxruntime::TensorShape&, onnxruntime::TensorShapeVector&, "
        "bool) The input tensor cannot be reshaped to the requested shape. Input shape:{1,9}, requested shape:{4,-1}\n"
    )
    assert told(RuntimeError(raw)) == (
        "Reshape node 'node_view': The input tensor cannot be reshaped to the requested shape. "
        "Input shape:{1,9}, requested shape:{4,-1}"
    )
    assert told(RuntimeError("")) == "RuntimeError"
    assert len(told(RuntimeError("x" * 5000))) == 300


def test_a_real_error_of_a_run_names_its_node() -> None:
    """A node that cannot run is named first, and no source file is left in the sentence."""
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "shape"], ["y"], name="four")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, None])],
        [numpy_helper.from_array(np.array([4, -1]), "shape")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(Exception, match="Reshape") as caught:
        load_runner(model.SerializeToString()).run({"x": np.zeros((1, 3), np.float32)})
    said = told(caught.value)
    assert said.startswith("Reshape node 'four': ")
    assert "requested shape:{4,-1}" in said
    assert ".h:" not in said
    model.ir_version = 99
    with pytest.raises(BundleError) as refused:
        load_runner(model.SerializeToString())
    assert "Unsupported model IR version: 99" in told(refused.value)
    assert "::" not in told(refused.value)
