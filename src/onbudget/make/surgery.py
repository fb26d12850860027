"""Operations that put a recipe before a graph and an activation after it, and open a batch axis that was frozen.

Measured on one core (64×64 and 224×224, batch 1 and 8): scale and offset must come after the transpose, where each
channel is one contiguous plane (13 µs for a 64×64 picture; before it, 250 µs). Whether uint8 or float32 is transposed
makes no difference; the cast comes first, since more runtimes cast uint8 than transpose it. Where the model wants
channels last, the constants are spread over a whole row of pixels for the same reason.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from onbudget.core.errors import BundleError, UsageError
from onbudget.core.recipe import Recipe
from onbudget.make import graph, proto
from onbudget.make.needs import need_onnx

Model = Any  # onnx.ModelProto: onnx ships no complete types

OLDEST_OPSET = 7  # broadcasting as numpy does it
_FIRST_OPSET = 13  # of the standard domain, where a model imports none
_PASS = {
    "Identity",
    "Cast",
    "Flatten",
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Dropout",
    "QuantizeLinear",
    "DequantizeLinear",
}
_ENDS = {"Softmax": "softmax", "Sigmoid": "sigmoid"}


def own_inputs(model: Model) -> list[Any]:
    """The inputs that a caller must give: old files list their weights among the inputs too."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in weights]


def check_opset(model: Model) -> None:
    """BundleError where the graph is too old to be built on; a model without the standard domain gets it."""
    domains = graph.opsets(model)
    if "" not in domains:
        model.opset_import.add(domain="", version=_FIRST_OPSET)
    elif domains[""] < OLDEST_OPSET:
        raise BundleError(
            f"the model is of opset {domains['']}, and fusing needs {OLDEST_OPSET} or newer; convert it first: "
            "onnx.version_converter.convert_version(model, 17)"
        )


def is_half(model: Model) -> bool:
    """Whether the model computes in 16-bit floats, as far as its weights and its ports tell."""
    kinds = {proto.messages().TensorProto.FLOAT16, proto.messages().TensorProto.BFLOAT16}
    ports = (*model.graph.input, *model.graph.output)
    return any(t.data_type in kinds for t in model.graph.initializer) or any(
        v.type.tensor_type.elem_type in kinds for v in ports
    )


def forget_weight_inputs(model: Model) -> None:
    """Weights listed as inputs become plain constants, so that the runtime may fold them."""
    keep = own_inputs(model)
    if len(keep) < len(model.graph.input):
        del model.graph.input[:]
        model.graph.input.extend(keep)
        model.ir_version = max(model.ir_version, 4)  # before 4 every weight had to be an input


def put_recipe_before(model: Model, recipe: Recipe, field: str) -> None:
    """The graph's one input becomes `field`: (batch, *recipe.shape) of the recipe's dtype, through the tensor half."""
    onnx = proto.messages()
    (own,) = own_inputs(model)
    kind = own.type.tensor_type.elem_type
    dims = graph.shape_of(own)
    inner = free_name(model, "onbudget/tensor")
    _rename_input(model, own.name, inner, field)
    weave = _Weave(model, field)
    if recipe.input_dtype == "uint8":
        weave.add("Cast", to=onnx.TensorProto.FLOAT)
    if recipe.layout == "NCHW":
        weave.add("Transpose", perm=[0, 3, 1, 2])
    factor, offset = recipe.affine()
    if np.any(factor != 1):
        weave.add("Mul", weave.constant(_spread(factor, recipe)))
    if np.any(offset != 0):
        weave.add("Add", weave.constant(_spread(offset, recipe)))
    if recipe.bgr:
        axis = 1 if recipe.layout == "NCHW" else 3
        weave.add("Gather", weave.constant(np.array([2, 1, 0], np.int64)), axis=axis)
    wanted = own_shape(dims, recipe)
    if wanted != recipe.tensor_shape:
        weave.add("Reshape", weave.constant(np.array([-1, *wanted], np.int64)))
    if kind != onnx.TensorProto.FLOAT:
        weave.add("Cast", to=kind)
    weave.finish_before(inner)
    model.graph.input.remove(own)
    fed = model.graph.input.add(name=field)
    fed.type.tensor_type.elem_type = onnx.TensorProto.UINT8 if recipe.input_dtype == "uint8" else onnx.TensorProto.FLOAT
    batch = dims[0] if isinstance(dims[0], str) else "batch"
    graph.set_shape(fed, [batch, *recipe.shape])


def fitted(recipe: Recipe, dims: Sequence[int | str | None]) -> Recipe:
    """The recipe, with channels last where the model's input only fits so; `dims` has the batch axis first."""
    if recipe.layout == "NCHW" and len(dims) == 4:
        turned = dataclasses.replace(recipe, layout="NHWC")
        if not _agree(dims[1:], recipe.tensor_shape) and _agree(dims[1:], turned.tensor_shape):
            return turned
    return recipe


def _agree(own: Sequence[int | str | None], made: Sequence[int]) -> bool:
    return len(own) == len(made) and all(not isinstance(d, int) or d == n for d, n in zip(own, made, strict=True))


def own_shape(dims: Sequence[int | str | None], recipe: Recipe) -> tuple[int, ...]:
    """One item in the model's own input: open axes take the recipe's size where the ranks agree."""
    made = recipe.tensor_shape
    own = dims[1:]
    if _agree(own, made):
        return made
    if all(isinstance(d, int) for d in own) and math.prod(d for d in own if isinstance(d, int)) == math.prod(made):
        fixed = tuple(d for d in own if isinstance(d, int))
        flat = len(_squeezed(fixed)) <= 1 or len(_squeezed(made)) <= 1
        if flat or _squeezed(fixed) == _squeezed(made):
            return fixed
    if _agree(dims, made):
        raise BundleError(
            f"the model's input is one item ({'×'.join(map(str, made))}) without a batch axis; "
            "export it with a batch axis first"
        )
    shown = "×".join("?" if not isinstance(d, int) else str(d) for d in own) or "a single number"
    raise BundleError(
        f"the recipe makes items of {'×'.join(map(str, made)) or 'a single number'}, but the model takes {shown} "
        "(after its batch axis); correct the recipe's size, layout or shape"
    )


def put_activation_after(model: Model, output: str, activation: str, columns: int, *, plain: bool) -> str:
    """Add an output of (batch, columns) float32 probabilities made from `output`; returns its name.

    `plain` says that `output` is (batch, columns) float32 already; with activation "already" nothing is added then.
    """
    onnx = proto.messages()
    if plain and activation == "already":
        return output
    name = free_name(model, "probabilities")
    weave = _Weave(model, output)
    if not plain:
        weave.add("Flatten", axis=1)
        weave.add("Cast", to=onnx.TensorProto.FLOAT)
    if activation == "softmax":
        # Before opset 13 Softmax flattened all axes from `axis` on; with two axes both meanings are the same.
        weave.add("Softmax", axis=1)
    elif activation == "sigmoid":
        weave.add("Sigmoid")
    weave.finish_after(name)
    made = model.graph.output.add(name=name)
    made.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    first = next(graph.shape_of(value)[:1] for value in model.graph.output if value.name == output)
    graph.set_shape(made, [first[0] if first and first[0] is not None else "batch", columns])
    return name


def ends_in(model: Model, output: str) -> str:
    """softmax or sigmoid where the graph makes `output` by one, seen through casts and reshapes; else ""."""
    makers = {name: node for node in model.graph.node for name in node.output}
    for _ in range(len(model.graph.node)):
        node = makers.get(output)
        if node is None:
            return ""
        if node.op_type in _ENDS:
            return _ENDS[node.op_type]
        if node.op_type not in _PASS:
            return ""
        output = node.input[0]
    return ""


def open_batch(model: Model, rows: int) -> None:
    """Free a batch axis that the file fixes at `rows`: in the inputs, the outputs and constant reshapes.

    Nothing is proved by it; the caller runs the file at several sizes against the original.
    """
    for value in (*model.graph.input, *model.graph.output):
        dims = graph.shape_of(value)
        if dims and dims[0] == rows:
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
    del model.graph.value_info[:]  # their first axes are stale
    onnx = need_onnx()
    shapes = {node.input[1] for node in model.graph.node if node.op_type == "Reshape"}
    tensors = [t for t in model.graph.initializer if t.name in shapes]
    for node in model.graph.node:
        if node.op_type == "Constant" and node.output[0] in shapes and node.attribute[0].name == "value":
            tensors.append(node.attribute[0].t)
    for tensor in tensors:
        shape = onnx.numpy_helper.to_array(tensor).copy()
        if shape.ndim == 1 and len(shape) > 1 and shape[0] == rows:
            shape[0] = 0 if -1 in shape[1:] else -1  # 0 copies the axis; -1 is what is left
            tensor.CopyFrom(onnx.numpy_helper.from_array(shape, tensor.name))


def forget_negative_axes(model: Model) -> None:
    """Axes that old exporters marked as open by -1 are open by name, or without one."""
    for value in (*model.graph.input, *model.graph.output):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.HasField("dim_value") and dim.dim_value < 0:
                dim.ClearField("dim_value")
                if axis == 0:
                    dim.dim_param = "batch"


def free_name(model: Model, wanted: str) -> str:
    """`wanted`, or the first of `wanted_1`, `wanted_2` … that no value of the graph has."""
    taken = _names(model)
    name, count = wanted, 0
    while name in taken:
        count += 1
        name = f"{wanted}_{count}"
    return name


def _names(model: Model) -> set[str]:
    """Every name that a value or a node has, in branches and loop bodies too."""
    found: set[str] = set()
    for inner in graph.graphs(model.graph):
        found.update(value.name for value in (*inner.input, *inner.output, *inner.value_info, *inner.initializer))
        for node in inner.node:
            found.update((node.name, *node.input, *node.output))
    return found


def _rename_input(model: Model, own: str, inner: str, field: str) -> None:
    names = {own: inner}
    if field != own and field in _names(model):
        if field in {value.name for value in model.graph.output}:
            raise UsageError(f"--field {field!r} is the name of an output of the model; choose another")
        names[field] = free_name(model, f"{field}_inner")
    graph.rename(model, names)


def _spread(values: npt.NDArray[np.float32], recipe: Recipe) -> npt.NDArray[np.float32]:
    """A factor or an offset in the shape that broadcasts fastest against the tensor."""
    if len(values) == 1:
        return values.reshape(())
    if recipe.layout == "NCHW":
        return values.reshape(-1, 1, 1)
    return np.tile(values, (recipe.shape[-2], 1)) if len(recipe.shape) > 1 else values


def _squeezed(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


class _Weave:
    """A chain of new nodes, each fed by the one before; names never meet the graph's own."""

    def __init__(self, model: Model, first: str) -> None:
        self._graph = model.graph
        self._taken = _names(model)
        self._last = first
        self._nodes: list[Any] = []

    def _name(self, what: str) -> str:
        name, count = f"onbudget/{what}", 1
        while name in self._taken:
            count += 1
            name = f"onbudget/{what}_{count}"
        self._taken.add(name)
        return name

    def constant(self, value: npt.NDArray[Any]) -> str:
        """A constant's name."""
        name = self._name("constant")
        self._graph.initializer.append(proto.tensor(value, name))
        return name

    def add(self, operator: str, *constants: str, **attributes: int | list[int]) -> None:
        """One node more, on the last one's result."""
        name = self._name(operator.lower())
        self._nodes.append(proto.node(operator, [self._last, *constants], name, **attributes))
        self._last = name

    def _close(self, name: str) -> None:
        if not self._nodes:
            self.add("Identity")
        self._nodes[-1].output[0] = name

    def finish_before(self, name: str) -> None:
        """The chain's result is `name`; the nodes go first."""
        self._close(name)
        old = list(self._graph.node)
        del self._graph.node[:]
        self._graph.node.extend([*self._nodes, *old])

    def finish_after(self, name: str) -> None:
        """The chain's result is `name`; the nodes go last."""
        self._close(name)
        self._graph.node.extend(self._nodes)
