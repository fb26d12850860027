"""A model whose runs take as long as its caller says, in a real session."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def spin_model(path: Path, always: int = 0) -> Path:
    """y = x after as many rounds of a loop as the largest x says: 0 is quick, 1e15 is for ever; `always` are added."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["on_in"], ["on_out"]),
            helper.make_node("Add", ["acc_in", "zero"], ["acc_out"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("round", TensorProto.INT64, []),
            helper.make_tensor_value_info("on_in", TensorProto.BOOL, []),
            helper.make_tensor_value_info("acc_in", TensorProto.FLOAT, ["n", 1]),
        ],
        [
            helper.make_tensor_value_info("on_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info("acc_out", TensorProto.FLOAT, ["n", 1]),
        ],
        [numpy_helper.from_array(np.zeros(1, np.float32), "zero")],
    )
    graph = helper.make_graph(
        [
            helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
            helper.make_node("Cast", ["most"], ["asked"], to=TensorProto.INT64),
            helper.make_node("Add", ["asked", "always"], ["rounds"]),
            helper.make_node("Loop", ["rounds", "on", "x"], ["y"], body=body),
        ],
        "spin",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1])],
        [numpy_helper.from_array(np.array(True), "on"), numpy_helper.from_array(np.array(always, np.int64), "always")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path
