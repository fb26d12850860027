"""PyTorch's two ONNX exporters behind one call, silent, with the names that were asked for in the file.

`dynamo` reads the module's program; `legacy` writes down what one run did. Both get names of our own first and are
renamed afterwards: an exporter that is asked for the name of a weight mixes the two up.
"""

from __future__ import annotations

import io
import re
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onbudget.core.errors import ExportFailed
from onbudget.make import graph, parity
from onbudget.make.needs import need_onnx, need_onnxscript, need_torch
from onbudget.make.quiet import Quiet

Module = Any  # torch.nn.Module: torch is imported by `needs` alone
Model = Any  # onnx.ModelProto

_SUMMARY = re.compile(r"## Exception summary\s+<class '(?:[\w.]+\.)?(\w+)'>: ([^\n]*)")
_THEIR_LINE = re.compile(r'File "([^"]+)", line (\d+), in ')


def run(name: str, module: Module, x: Any, names: Sequence[str], opset: int | None, heard: Quiet) -> Model:
    """Export `module` with the array `x` as its example; `names` are the input's and then the outputs'.

    The first axis is asked to be open ("batch"); whether it is must be verified. What the exporter says goes to
    `heard`. The model carries nothing of the machine that made it. Raises ExportFailed, and DependencyError
    without a package that the exporter needs.
    """
    torch = need_torch()
    need_onnx()
    if name == "dynamo":
        need_onnxscript()
    inner = {f"onbudget.{i}": asked for i, asked in enumerate(names)}
    with heard:
        try:
            model = (_dynamo if name == "dynamo" else _legacy)(torch, module, torch.from_numpy(x), list(inner), opset)
        except Exception as error:  # exporters raise their own and their libraries' classes
            heard.hear(traceback.format_exc())
            raise ExportFailed(f"the export failed: {essence(error)}") from error
    missing = set(inner) - {value.name for value in (*model.graph.input, *model.graph.output)}
    if missing or len(model.graph.output) != len(names) - 1:
        lost = ", ".join(repr(inner[name]) for name in sorted(missing))
        raise ExportFailed(f"the exported graph does not have {lost or 'those outputs'}: the module does not use it")
    stamped = graph.opsets(model)[""]
    if opset is not None and stamped != opset:
        raise ExportFailed(f"opset {opset} was asked for and {stamped} was written")
    graph.forget_sources(model)
    graph.rename(model, inner)
    return model


def flattened(module: Module) -> Module:
    """The module with its answer flattened to a tuple of tensors, which is what both exporters understand."""
    torch = need_torch()

    class Flat(torch.nn.Module):  # type: ignore[misc,name-defined]  # its base is only known inside functions
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Any) -> tuple[Any, ...]:
            return tuple(parity.tensors_of(self.module(x)))

    return Flat().eval()


def traced_away(caught: Sequence[warnings.WarningMessage]) -> list[str]:
    """What the legacy exporter fixed for ever, because one run went one way: a sentence a place, three at most."""
    own = str(Path(need_torch().__file__).parent)  # PyTorch's layers check shapes that way; nobody can act on those
    places = [
        f"{w.filename}:{w.lineno}"
        for w in caught
        if "might cause the trace to be incorrect" in str(w.message) and not w.filename.startswith(own)
    ]
    told = [
        f"{place}: a value was turned into Python's own while tracing, so the file always takes the way that was taken"
        for place in dict.fromkeys(places)
    ]
    return told[:3] + ([f"… and {len(told) - 3} more such places"] if len(told) > 3 else [])


def essence(error: BaseException) -> str:
    """An exporter's error in one line: the cause and the user's line, without the exporter's advice to its authors."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
    found = _SUMMARY.search(text)
    told = f"{found[1]}: {found[2]}" if found else f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"
    theirs = _THEIR_LINE.search(text, found.end()) if found else None
    return told.strip() + (f" (at {theirs[1]}:{theirs[2]})" if theirs else "")


def _dynamo(torch: Any, module: Module, x: Any, names: list[str], opset: int | None) -> Model:
    return torch.onnx.export(
        module,
        (x,),
        None,
        input_names=names[:1],
        output_names=names[1:],
        dynamo=True,
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        external_data=False,
        opset_version=opset,
        verbose=False,
    ).model_proto


def _legacy(torch: Any, module: Module, x: Any, names: list[str], opset: int | None) -> Model:
    buffer = io.BytesIO()
    torch.onnx.export(
        module,
        (x,),
        buffer,
        input_names=names[:1],
        output_names=names[1:],
        dynamo=False,
        dynamic_axes={name: {0: "batch"} for name in names},
        opset_version=opset,
    )
    return need_onnx().load_from_string(buffer.getvalue())
