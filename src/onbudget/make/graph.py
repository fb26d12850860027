"""Small operations on an ONNX graph in memory: names, shapes, what exporters leave behind, and what froze a batch.

`onnx` is imported when a function is called: `onbudget --help` must not pay for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onbudget.core.errors import ExportFailed
from onbudget.make.needs import need_onnx

Model = Any  # onnx.ModelProto: onnx ships no complete types
Graph = Any

_WEIGHTED = {"Conv", "ConvTranspose", "Gemm"}  # their constants are weights, whatever their first axis is
_SHAPE_TAKERS = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0, "Tile": 1}  # operator -> which input is a shape


def graphs(graph: Graph) -> Iterator[Graph]:
    """The graph itself and every graph inside its nodes (branches and loop bodies)."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.node or inner.output:
                    yield from graphs(inner)


def forget_sources(model: Model) -> None:
    """Drop what exporters write about the machine that ran them: stack traces with file paths, doc strings."""
    model.doc_string = ""
    for graph in graphs(model.graph):
        graph.doc_string = ""
        del graph.metadata_props[:]
        for thing in (*graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
            thing.doc_string = ""
            del thing.metadata_props[:]
    for function in model.functions:
        function.doc_string = ""
        for node in function.node:
            node.doc_string = ""
            del node.metadata_props[:]


def rename(model: Model, names: Mapping[str, str]) -> None:
    """Rename values everywhere; another value that has a wanted name already gets an underscore more."""
    taken = {name for graph in graphs(model.graph) for name in _value_names(graph)}
    moved = dict(names)
    for wanted in names.values():
        if wanted in taken and wanted not in names:
            free = wanted + "_"
            while free in taken:
                free += "_"
            moved[wanted] = free
            taken.add(free)
    for graph in graphs(model.graph):
        for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
            value.name = moved.get(value.name, value.name)
        for node in graph.node:
            node.input[:] = [moved.get(name, name) for name in node.input]
            node.output[:] = [moved.get(name, name) for name in node.output]


def _value_names(graph: Graph) -> Iterator[str]:
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        yield value.name
    for node in graph.node:
        yield from node.output


def set_shape(value: Any, shape: Sequence[int | str]) -> None:
    """Declare a value's shape: whole numbers are fixed, words are open."""
    dims = value.type.tensor_type.shape.dim
    del dims[:]
    for size in shape:
        if isinstance(size, int):
            dims.add().dim_value = size
        else:
            dims.add().dim_param = size


def shape_of(value: Any) -> list[int | str | None]:
    """A value's declared shape: whole numbers, words, None for an axis without either; old exporters' -1 is open."""
    dims = value.type.tensor_type.shape.dim
    return [d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else d.dim_param or None for d in dims]


def declare_shapes(model: Model, item: Sequence[int], outputs: Mapping[str, tuple[int, ...] | None]) -> None:
    """Say what running has shown: ("batch", *item) for the input, and the same way for outputs of one shape."""
    set_shape(model.graph.input[0], ("batch", *item))
    for value in model.graph.output:
        shape = outputs.get(value.name)
        if shape is not None:
            set_shape(value, ("batch", *shape))


def validate(model: Model) -> None:
    """onnx's own checker with strict shape inference; ExportFailed with its first sentence."""
    onnx = need_onnx()
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportFailed(f"the exported graph is not valid: {' '.join(str(error).split())[:300]}") from error


def opsets(model: Model) -> dict[str, int]:
    """Domain → version; the standard domain is ""."""
    return {"" if o.domain == "ai.onnx" else o.domain: o.version for o in model.opset_import}


def node_name(node: Any) -> str:
    """A node as a person finds it: its operator and its name, or its first output when it has no name."""
    return f"{node.op_type} node {(node.name or node.output[0])!r}"


def frozen_by(model: Model, rows: int) -> str:
    """The node that most likely froze the batch axis of a graph exported with `rows` rows, or "" when none stands out.

    Only nodes that see the graph's input count. A constant shape that begins with `rows` is the best evidence, then
    a constant tensor with `rows` rows, then a constant shape that begins with any number above one.
    """
    constants = _constants(model)
    seen = {value.name for value in model.graph.input} - {t.name for t in model.graph.initializer}
    best: tuple[int, str] = (0, "")
    for node in model.graph.node:
        if not seen & set(node.input):
            continue
        seen.update(node.output)
        for score, text in _evidence(node, constants, rows):
            if score > best[0]:
                best = (score, f"{node_name(node)} {text}")
    return best[1]


def _evidence(node: Any, constants: Mapping[str, Any], rows: int) -> Iterator[tuple[int, str]]:
    at = _SHAPE_TAKERS.get(node.op_type)
    for i, name in enumerate(node.input):
        if name not in constants:
            continue
        value = constants[name]
        if i == at and value.ndim == 1 and value.size:
            shape = [int(v) for v in value]
            if shape[0] == rows:
                yield 3, f"with the constant shape {shape}"
            elif shape[0] > 1:
                yield 1, f"with the constant shape {shape}"
        elif i != at and node.op_type not in _WEIGHTED and value.ndim > 1 and value.shape[0] == rows:
            yield 2, f"with a constant of shape {list(value.shape)}: it was exported with {rows} rows"


def _constants(model: Model) -> dict[str, Any]:
    onnx = need_onnx()
    found = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer if t.data_location == 0}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            found[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
    return found
