"""Tiny ONNX models built in code, one for each thing that a file may be. `write(model, path)` makes a file of one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Batch = str | int | None  # a name, a size (-1 too, as old exporters write), or no batch axis at all

_KINDS = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "float64": TensorProto.DOUBLE,
    "uint8": TensorProto.UINT8,
}


def write(model: onnx.ModelProto, path: Path) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


class Net:
    """A graph that grows node by node; weights come from one seeded generator."""

    def __init__(self, seed: int = 0, dtype: str = "float32", opset: int = 17) -> None:
        self.random = np.random.default_rng(seed)
        self.dtype, self.opset = dtype, opset
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def weight(self, *shape: int, gain: float = 1.0) -> str:
        return self.constant((self.random.standard_normal(shape) * gain).astype(self.dtype))

    def constant(self, value: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def add(self, operator: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        name = out or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def model(self, inputs: dict[str, tuple[Any, ...]], outputs: dict[str, tuple[Any, ...]], **kinds: str) -> Any:
        """Names → shapes; `kinds` gives dtypes that are not the net's."""

        def port(name: str, shape: tuple[Any, ...]) -> Any:
            return helper.make_tensor_value_info(name, _KINDS[kinds.get(name, self.dtype)], shape)

        graph = helper.make_graph(
            self.nodes, "net", [port(*p) for p in inputs.items()], [port(*p) for p in outputs.items()], self.weights
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], producer_name="tests")
        made.ir_version = 8 if self.opset >= 10 else 4
        return made


def _axes(batch: Batch, *rest: int) -> tuple[Any, ...]:
    return rest if batch is None else (batch, *rest)


def tile_cnn(
    size: int = 8,
    classes: int = 4,
    *,
    channels: int = 3,
    batch: Batch = "n",
    dtype: str = "float32",
    opset: int = 17,
    head: str = "",
    layout: str = "NCHW",
    input_name: str = "tiles",
    seed: int = 0,
) -> Any:
    """Convolution, ReLU, pooling, linear: `tiles` → `logits`; `head` adds an operator (Softmax, Sigmoid) at the end.

    Every place of the picture has weights of its own, so that turned or swapped axes change the answer.
    """
    net = Net(seed, dtype, opset)
    x = input_name if layout == "NCHW" else net.add("Transpose", input_name, perm=[0, 3, 1, 2])
    x = net.add("Relu", net.add("Conv", x, net.weight(6, channels, 3, 3), net.weight(6), pads=[1, 1, 1, 1]))
    x = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    flat = net.add("Flatten", x, axis=1)
    inner = 6 * (size // 2) ** 2
    out = "logits" if not head else ""
    x = net.add("Gemm", flat, net.weight(inner, classes, gain=2 / inner**0.5), net.weight(classes), out=out)
    if head:
        net.add(head, x, out="logits", **({"axis": 1} if head in ("Softmax", "LogSoftmax") else {}))
    shape = (channels, size, size) if layout == "NCHW" else (size, size, channels)
    return net.model({input_name: _axes(batch, *shape)}, {"logits": _axes(batch, classes)})


def softmaxed(**options: Any) -> Any:
    """A tile_cnn that ends in its own softmax."""
    return tile_cnn(head="Softmax", **options)


def mlp(
    features: int = 784, classes: int = 10, *, item: Sequence[int] = (), batch: Batch = "n", dtype: str = "float32"
) -> Any:
    """Two linear layers: `x` (N, *item) → `logits`; `item` (default: features) may be (1, 28, 28), and is flattened."""
    net = Net(dtype=dtype)
    x = net.add("Flatten", "x", axis=1) if len(item) > 1 else "x"
    x = net.add("Relu", net.add("Gemm", x, net.weight(features, 16, gain=0.05), net.weight(16)))
    net.add("Gemm", x, net.weight(16, classes), net.weight(classes), out="logits")
    return net.model({"x": _axes(batch, *(item or (features,)))}, {"logits": _axes(batch, classes)})


def slow(channels: int = 24) -> Any:
    """Milliseconds a run for a small item: `x` (n, 3, 16, 16) laid side by side to 128 × 128, and convolved twice."""
    net = Net()
    x = net.add("Tile", "x", net.constant(np.array([1, 1, 8, 8], np.int64)))
    x = net.add("Relu", net.add("Conv", x, net.weight(channels, 3, 3, 3), pads=[1, 1, 1, 1]))
    x = net.add("Relu", net.add("Conv", x, net.weight(channels, channels, 3, 3, gain=0.1), pads=[1, 1, 1, 1]))
    flat = net.add("Flatten", net.add("GlobalAveragePool", x), axis=1)
    net.add("MatMul", flat, net.weight(channels, 4), out="logits")
    return net.model({"x": _axes("n", 3, 16, 16)}, {"logits": _axes("n", 4)})


def echo(*item: int, dtype: str = "float32", batch: Batch = "n", source: str = "x", target: str = "y") -> Any:
    """What comes in goes out."""
    net = Net(dtype=dtype)
    net.add("Identity", source, out=target)
    return net.model({source: _axes(batch, *item)}, {target: _axes(batch, *item)})


def fixed_batch(rows: int = 1, *, flatten: bool = True, mixing: bool = False) -> Any:
    """A tile_cnn whose file fixes the batch: in its ports, and in a reshape as exporters write it.

    With `mixing` the reshape joins the rows, so that no other batch can be right.
    """
    net = Net()
    x = net.add("Relu", net.add("Conv", "tiles", net.weight(6, 3, 3, 3), net.weight(6), pads=[1, 1, 1, 1]))
    x = net.add("GlobalMaxPool", x)
    shape = [rows, 6] if not mixing else [6, rows]
    x = net.add("Reshape", x, net.constant(np.array(shape if flatten else [rows, -1], np.int64)))
    x = net.add("Transpose", x, perm=[1, 0]) if mixing else x
    net.add("Gemm", x, net.weight(6, 4), net.weight(4), out="logits")
    return net.model({"tiles": (rows, 3, 8, 8)}, {"logits": (rows, 4)})


def two_inputs() -> Any:
    """`a` (N, 3) plus `b` (N, 3)."""
    net = Net()
    net.add("Add", "a", "b", out="sum")
    return net.model({"a": ("n", 3), "b": ("n", 3)}, {"sum": ("n", 3)})


def no_batch() -> Any:
    """One picture (3, 8, 8) → 4 logits: there is no batch axis."""
    net = Net()
    x = net.add("Reshape", "picture", net.constant(np.array([1, -1], np.int64)))
    x = net.add("MatMul", x, net.weight(192, 4))
    net.add("Reshape", x, net.constant(np.array([4], np.int64)), out="logits")
    return net.model({"picture": (3, 8, 8)}, {"logits": (4,)})


def two_heads(first: str = "logits", second: str = "other") -> Any:
    """One input, two outputs of the same width."""
    net = Net()
    net.add("Gemm", "x", net.weight(5, 4), out=first)
    net.add("Gemm", "x", net.weight(5, 4), out=second)
    return net.model({"x": ("n", 5)}, {first: ("n", 4), second: ("n", 4)})


def with_weights_as_inputs(model: Any) -> Any:
    """The same model as files before IR 4 were: every weight is listed among the inputs."""
    for weight in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims))
    model.ir_version = 3
    return model


def with_external_data(model: Any, folder: Path, name: str = "model.onnx") -> Path:
    """The model as a file whose weights lie beside it in NAME.data."""
    onnx.save(
        model,
        folder / name,
        save_as_external_data=True,
        location=f"{name}.data",
        size_threshold=0,
        convert_attribute=False,
    )
    return folder / name
