"""The ONNX message classes and the little that fusing does with them, without importing all of the `onnx` package.

Importing the package costs 100 ms, half of what `onbudget bundle` takes in all: it brings helpers, the checker and a
text format. The message classes are one generated file in it; that alone is loaded here, under its own name, so that a
later `import onnx` finds and shares it.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onbudget.core.errors import BundleError, DependencyError
from onbudget.engine.bundle import external_data
from onbudget.make.needs import need_onnx

Model = Any  # onnx.ModelProto: onnx ships no complete types

_NAME = "onnx.onnx_ml_pb2"
_KINDS = {"float32": "FLOAT", "int64": "INT64"}


def messages() -> Any:
    """The module of message classes (ModelProto, TensorProto …); DependencyError where onnx is not installed."""
    if _NAME in sys.modules:
        return sys.modules[_NAME]
    package = None if "onnx" in sys.modules else importlib.util.find_spec("onnx")
    file = Path(package.origin).with_name("onnx_ml_pb2.py") if package and package.origin else None
    spec = importlib.util.spec_from_file_location(_NAME, file) if file and file.is_file() else None
    if spec is None or spec.loader is None:
        return need_onnx()  # it names the same classes, whatever way it is built
    module = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[_NAME]
        raise
    return module


def load(path: Path) -> Model:
    """The model in a file, its external data brought into it; BundleError where it is damaged.

    DependencyError without the `onnx` package.
    """
    try:
        if external_data(path):
            return need_onnx().load(path)
        return messages().ModelProto.FromString(path.read_bytes())
    except DependencyError:
        raise
    except Exception as error:  # protobuf and onnx raise their own classes, all meaning: it is not a model
        raise BundleError(f"{path} is damaged: {error}") from error


def tensor(value: npt.NDArray[Any], name: str) -> Any:
    """A TensorProto of float32 or int64."""
    made = messages().TensorProto(name=name, dims=value.shape, raw_data=np.ascontiguousarray(value).tobytes())
    made.data_type = getattr(messages().TensorProto, _KINDS[str(value.dtype)])
    return made


def node(operator: str, inputs: list[str], output: str, **attributes: int | list[int]) -> Any:
    """A NodeProto with one output, named like it; attributes are whole numbers or lists of them."""
    onnx = messages()
    made = onnx.NodeProto(op_type=operator, input=inputs, output=[output], name=output)
    for name, value in attributes.items():
        if isinstance(value, int):
            made.attribute.add(name=name, i=value, type=onnx.AttributeProto.INT)
        else:
            made.attribute.add(name=name, ints=value, type=onnx.AttributeProto.INTS)
    return made
