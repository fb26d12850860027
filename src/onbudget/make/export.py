"""A PyTorch module → one .onnx file whose batch axis is free and whose answers are PyTorch's, both by running it.

There are two exporters. The newer one (`dynamo`) reads the module's program and may refuse it or freeze its batch axis;
the older one (`legacy`) writes down what one run did. `auto` takes the newer one's file when it passes every check,
else the older one's, and says why. Whatever an exporter says of its own work is not believed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.metadata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onbudget import __version__
from onbudget.core.errors import BundleError, DependencyError, ExportFailed, GateFailed, OnbudgetError, UsageError
from onbudget.core.metadata import Curve, Metadata
from onbudget.core.options import option
from onbudget.core.units import show_size
from onbudget.engine.bundle import with_metadata
from onbudget.engine.files import write_atomically
from onbudget.make import exporters, factory, graph, parity
from onbudget.make.needs import need_onnx, need_torch
from onbudget.make.quiet import Quiet

if TYPE_CHECKING:  # names for types; session costs onnxruntime
    from onbudget.engine.invariance import Invariance
    from onbudget.make.parity import Parity

DTYPES = ("float32", "float64", "float16", "uint8", "int32", "int64", "bool")
EXPORTERS = ("auto", "dynamo", "legacy")
LIMIT = 2_000_000_000  # bytes: an .onnx file is one protobuf message, which ends at 2 GiB
RESERVED = ("top", "file")  # words of the HTTP interface, which cannot be the field's name too
_ROWS = 7  # exported with this many rows: never 1, and a frozen 7 stands out in a graph


def _shape(text: str) -> tuple[int, ...]:
    parts = text.lower().replace("×", "x").replace(",", "x").split("x")
    if not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise UsageError(f"{text!r} is not a shape; write the batch first, as in 1x3x64x64")
    return tuple(int(part) for part in parts)


def _opset(text: str) -> int:
    if not text.isdigit():
        raise UsageError(f"{text!r} is not an opset; write a whole number, as in 18")
    return int(text)


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What to export and what to hold it to; `output` is the file to write, with a name that ends in .onnx."""

    example: tuple[int, ...] = option((), "Shape of an example, batch first: 1x3x64x64.", parse=_shape, metavar="SHAPE")
    dtype: str = option("float32", "Type of the example's values.", choices=DTYPES)
    input_name: str = option("input", "Name of the file's input.", metavar="NAME")
    output_name: tuple[str, ...] = option(
        ("output",), "Name of an output; once for each tensor of the answer.", metavar="NAME", multiple=True
    )
    exporter: str = option("auto", "auto tries dynamo, the newer one, and falls back to legacy.", choices=EXPORTERS)
    opset: int | None = option(None, "Opset of the file (default: the exporter's own).", parse=_opset, metavar="N")
    tolerance: float = option(1e-4, "Largest absolute difference allowed, PyTorch vs ONNX.")
    max_batch: int = option(32, "Largest batch to verify, after 1, 2 and 3.")
    weights: Path | None = option(  # noqa: RUF009 - option() is a dataclasses.field
        None, "A state_dict saved by torch.save, loaded into the module first.", parse=Path, metavar="FILE"
    )
    output: Path = Path("model.onnx")

    def __post_init__(self) -> None:
        """UsageError for values that cannot be meant."""
        names = (self.input_name, *self.output_name)
        if not self.example:
            raise UsageError("an example's shape is needed: --example 1x3x64x64 (batch first)")
        if not all(names) or len(set(names)) != len(names):
            raise UsageError(f"input and output names must differ and not be empty; got {', '.join(map(repr, names))}")
        if self.max_batch < 1 or not self.tolerance > 0:
            raise UsageError("--max-batch must be at least 1 and --tolerance above 0")
        if self.output.suffix != ".onnx" or not self.output.parent.is_dir():
            raise UsageError(f"-o {self.output}: write it into a folder that is there, under a name that ends in .onnx")


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What was written, how, and what was proved of it. `notes` tell what was done, `warnings` what may be wrong."""

    path: Path
    bytes: int
    sha256: str
    exporter: dict[str, Any]
    params: int
    parity: Parity
    mates: Invariance
    notes: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        told = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        told |= {"path": str(self.path), "parity": self.parity.to_dict(), "mates": self.mates.to_dict()}
        return told


@dataclass(slots=True)
class _Attempt:
    """One exporter's file on its way through the checks; `fault` is what stopped it."""

    exporter: str
    heard: Quiet
    model: Any = None
    parity: Parity | None = None
    mates: Invariance | None = None
    cost: Curve | None = None
    notes: list[str] = dataclasses.field(default_factory=list)
    fault: OnbudgetError | None = None


def export(module: Any, options: ExportOptions, say: Callable[[str], None] = lambda _: None) -> ExportReport:
    """Export `module`, verify the file, write it to `options.output`; `say` hears what is being done.

    The module is put into eval mode meanwhile. Raises GateFailed when the batch axis is not free or the answers differ
    by more than the tolerance (what was at the output stays then; the failed file lies beside it), ExportFailed when
    no exporter takes the module.
    """
    notes: list[str] = []
    warnings: list[str] = []
    with _evaluated(module) as training:
        if training:
            notes.append(
                f"the module was in training mode ({training} of its parts): exported in eval mode, then put back"
            )
        target = _prepared(module, options, warnings)
        names = ("dynamo", "legacy") if options.exporter == "auto" else (options.exporter,)
        attempts: list[_Attempt] = []
        for name in names:
            say(f"exporting with the {name} exporter")
            attempts.append(_attempt(target, name, options, say))
            fault = attempts[-1].fault
            if fault is None:
                break
            if name != names[-1]:
                notes.append(f"the {name} exporter was given up: {fault}")
    if attempts[-1].fault is not None:
        raise _failure(attempts, options, warnings)
    warnings.extend(exporters.traced_away(attempts[-1].heard.warned))
    return _written(module, attempts[-1], options, notes, warnings)


@contextlib.contextmanager
def _evaluated(module: Any) -> Iterator[int]:
    """Eval mode for the time of the context; yields how many parts were in training mode before."""
    before = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield sum(training for _, training in before)
    finally:
        for part, training in before:
            part.training = training


def _prepared(module: Any, options: ExportOptions, warnings: list[str]) -> Any:
    """The module in a form that exporters take, after one look at whether it fits a file, runs and repeats itself."""
    size = sum(t.numel() * t.element_size() for t in (*module.parameters(), *module.buffers()))
    if size > LIMIT:
        raise ExportFailed(f"the module's weights take {show_size(size)}; an .onnx file in one piece holds 2 GB")
    x = parity.sample(options.example, options.dtype, options.example[0])
    try:
        answer, again = parity.answer(module, x), parity.answer(module, x)
    except Exception as error:  # the module's own code may raise anything
        shape = "x".join(map(str, options.example))
        raise ExportFailed(f"the module fails with {options.dtype} of {shape}: {factory.raised(error)}") from error
    first, second = parity.arrays_of(answer), parity.arrays_of(again)
    if len(first) != len(options.output_name):
        raise UsageError(
            f"the module answers with {len(first)} tensors and there are {len(options.output_name)} names for them;"
            " give --output-name once for each"
        )
    if not all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(first, second, strict=True)):
        warnings.append(
            "the module answers the same input differently each time, in eval mode too: look for a dropout called as a"
            " function without training=self.training"
        )
    return module if parity.is_tensor(answer) else exporters.flattened(module)


def _attempt(module: Any, name: str, options: ExportOptions, say: Callable[[str], None]) -> _Attempt:
    """One exporter's model through every check."""
    attempt = _Attempt(name, Quiet())
    rows = options.example[0] if options.example[0] > 1 else _ROWS
    x = parity.sample(options.example, options.dtype, rows)
    try:
        names = (options.input_name, *options.output_name)
        attempt.model = exporters.run(name, module, x, names, options.opset, attempt.heard)
        say(f"verifying the {name} exporter's file at 1, 2, 3 and {options.max_batch} rows")
        _verify(module, attempt, options)
    except parity.NotFree as fault:
        suspect = graph.frozen_by(attempt.model, rows)
        attempt.fault = GateFailed(f"{fault}; look at the {suspect}" if suspect else str(fault))
    except (ExportFailed, GateFailed, BundleError, DependencyError) as fault:
        attempt.fault = fault
    return attempt


def _verify(module: Any, attempt: _Attempt, options: ExportOptions) -> None:
    """The batch axis and parity by running, whether rows leave each other alone, and the structure last."""
    from onbudget.engine.invariance import probe
    from onbudget.engine.session import load_runner
    from onbudget.make.timed import timed

    model = attempt.model
    first = graph.shape_of(model.graph.input[0])[:1]
    if first and isinstance(first[0], int):
        raise parity.NotFree(f"the batch axis is frozen at {first[0]}")
    runner = load_runner(model.SerializeToString())
    sizes = sorted({1, 2, 3, options.max_batch})
    found = parity.measure(module, runner, options.example, options.dtype, sizes=sizes, tolerance=options.tolerance)
    if not found.ok:
        at = ", ".join(f"{value:.3g} at {rows}" for rows, value in found.by_rows.items())
        raise (parity.NotFree if found.by_rows[1] <= found.tolerance else GateFailed)(
            f"output {found.output!r} differs from PyTorch's by {found.worst:.3g} (tolerance {found.tolerance:g},"
            f" largest value {found.scale:.3g}; by rows: {at})"
        )
    graph.declare_shapes(model, options.example[1:], found.shapes)
    graph.validate(model)
    attempt.parity, attempt.mates = found, probe(runner, max_batch=options.max_batch)
    attempt.cost = timed(runner, attempt.notes, None, None) if attempt.mates.ok else None


def _failure(attempts: list[_Attempt], options: ExportOptions, warnings: list[str]) -> OnbudgetError:
    """All faults in one error, with the failed file and the exporters' noise kept beside the output."""
    faults = [attempt.fault for attempt in attempts if attempt.fault is not None]
    kept = list(warnings)
    made = [attempt.model for attempt in attempts if attempt.model is not None]
    if made:
        failed = _failed(options)
        write_atomically(failed, made[-1].SerializeToString())
        kept.append(f"the failed file is kept as {failed}")
    noise = "".join(f"# {attempt.exporter}\n{attempt.heard.text}\n" for attempt in attempts if attempt.heard.text)
    if noise and any(isinstance(fault, ExportFailed) for fault in faults):
        log = _log(options)
        log.write_text(noise, encoding="utf-8")
        kept.append(f"what PyTorch said is in {log}")
    told = "\n".join(f"  {attempt.exporter}: {attempt.fault}" for attempt in attempts)
    tail = "".join(f"\n  {line}" for line in kept)
    kind = GateFailed if any(isinstance(fault, GateFailed) for fault in faults) else ExportFailed
    return kind(f"{options.output} was not written:\n{told}{tail}")


def _failed(options: ExportOptions) -> Path:
    return options.output.with_suffix(".failed.onnx")


def _log(options: ExportOptions) -> Path:
    return options.output.with_suffix(".export.log")


def _written(
    module: Any, attempt: _Attempt, options: ExportOptions, notes: list[str], warnings: list[str]
) -> ExportReport:
    """Write the passport into the model and the model to its place."""
    if attempt.parity is None or attempt.mates is None:
        raise AssertionError("an attempt without a fault has been verified")
    if not attempt.mates.ok:
        warnings.append(f"the file is marked unbatchable and is served one request at a time: {attempt.mates.reason}")
    facts = {
        "name": attempt.exporter,
        "opset": graph.opsets(attempt.model)[""],
        "ir_version": attempt.model.ir_version,
        "torch": str(need_torch().__version__),
        "onnx": str(need_onnx().__version__),
        "onnxscript": _version("onnxscript"),
    }
    params = sum(p.numel() for p in module.parameters())
    mates = attempt.mates.to_dict()
    passport = Metadata(
        field=Metadata().field if options.input_name in RESERVED else options.input_name,
        params=params,
        output=options.output_name[0] if len(options.output_name) == 1 else "",
        unbatchable=attempt.mates.reason,
        exporter=facts,
        parity={"torch_vs_onnx": attempt.parity.to_dict(), "batch_mates": mates},
        made_by=f"onbudget {__version__}",
        cost=attempt.cost,
    )
    content = with_metadata(attempt.model.SerializeToString(), passport)
    write_atomically(options.output, content)
    for leftover in (_failed(options), _log(options)):  # of an earlier try; they would tell of a fault that is mended
        leftover.unlink(missing_ok=True)
    return ExportReport(
        path=options.output,
        bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        exporter=facts,
        params=params,
        parity=attempt.parity,
        mates=attempt.mates,
        notes=(*notes, *attempt.notes),
        warnings=tuple(warnings),
    )


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
