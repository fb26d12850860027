"""The packages that only making a model needs, each imported when a function asks for it, with what to install."""

from __future__ import annotations

from typing import Any

from onbudget.core.errors import DependencyError


def need_torch() -> Any:
    """PyTorch, which the user brings; DependencyError says so."""
    try:
        import torch
    except ModuleNotFoundError as error:
        raise DependencyError("exporting needs PyTorch, which you bring yourself: pip install torch") from error
    return torch


def need_onnx() -> Any:
    """The `onnx` package; DependencyError names the extra that brings it."""
    try:
        import onnx
    except ModuleNotFoundError as error:
        raise DependencyError("this needs the onnx package: pip install 'onbudget[make]'") from error
    return onnx


def need_onnxscript() -> None:
    """The `onnxscript` package, which PyTorch's newer exporter writes its graphs with; else DependencyError."""
    try:
        import onnxscript  # noqa: F401 - PyTorch uses it, and would say less clearly that it is missing
    except ModuleNotFoundError as error:
        raise DependencyError("the dynamo exporter needs onnxscript: pip install 'onbudget[make]'") from error
