"""What a model file promises, tested: a table of checks, each giving findings with their why and their mending.

A finding that fails is a promise of the file's own that does not hold; a file that says of itself that its rows must
not be batched keeps its promise, and is only warned of.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import onnxruntime as ort

from onbudget.core.errors import BundleError, UsageError
from onbudget.core.metadata import Metadata
from onbudget.core.options import option
from onbudget.engine.bundle import check_file, file_sha256, read_metadata, with_metadata
from onbudget.engine.files import write_atomically
from onbudget.engine.invariance import Invariance, probe
from onbudget.engine.session import OrtRunner, Port, load_runner
from onbudget.engine.told import told
from onbudget.make import graph
from onbudget.make.needs import need_onnx

RUNTIME = f"onnxruntime {ort.__version__}"
OLDEST_OPSET = 7  # what onnxruntime promises to keep running


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """How far to go."""

    max_batch: int = option(32, "Largest batch to try, after 1, 2 and 3.")
    mark: bool = option(True, "Write into a bundle that its rows must not be batched, when they must not.")

    def __post_init__(self) -> None:
        """UsageError for a batch that holds nobody."""
        if self.max_batch < 1:
            raise UsageError("--max-batch must be at least 1")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check saw: what it is, where, why it hurts, what mends it."""

    level: Literal["ok", "warn", "fail"]
    check: str
    what: str
    where: str = ""
    why: str = ""
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """The newest IR version and the newest opset that something reads."""

    ir_version: int
    opset: int


@dataclass(slots=True)
class Patient:
    """A model file on its way through the checks; `runner` is None, and `refusal` says why, when it does not load."""

    path: Path
    options: CheckOptions
    model: Any  # onnx.ModelProto, without weights that lie beside the file
    passport: Metadata | None
    runner: OrtRunner | None = None
    refusal: str = ""
    mates: Invariance | None = None


@dataclass(frozen=True, slots=True)
class Examination:
    """All that `onbudget check` has to say of a file; `marked` tells that the file was rewritten as unbatchable."""

    path: Path
    sha256: str
    passport: Metadata | None
    producer: str
    ir_version: int
    opsets: dict[str, int]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    findings: tuple[Finding, ...]
    mates: Invariance | None
    runtime: Limits
    marked: bool = False

    @property
    def ok(self) -> bool:
        """Whether every promise of the file holds."""
        return all(finding.level != "fail" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        told = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        told |= {name: [dataclasses.asdict(one) for one in told[name]] for name in ("inputs", "outputs", "findings")}
        told |= {
            "path": str(self.path),
            "runtime": {"name": RUNTIME, **dataclasses.asdict(self.runtime)},
            "ok": self.ok,
        }
        told["passport"] = json.loads(self.passport.to_json()) if self.passport else None
        told["mates"] = dataclasses.asdict(self.mates) if self.mates else None
        return told


def examine(
    path: Path, options: CheckOptions | None = None, say: Callable[[str], None] = lambda _: None
) -> Examination:
    """Every check of `CHECKS` on one file; a bundle whose rows do not leave each other alone is marked so.

    Raises BundleError when the file is no whole .onnx file, DependencyError without the onnx package.
    """
    onnx = need_onnx()
    chosen = options or CheckOptions()
    check_file(path)
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf and onnx raise their own classes, all meaning: it is not a model
        raise BundleError(f"{path} is damaged: {told(error)}") from error
    patient = Patient(path, chosen, model, read_metadata(path))
    try:
        patient.runner = load_runner(path)
    except BundleError as error:
        patient.refusal = str(error)
    findings: list[Finding] = []
    for name, check in CHECKS.items():
        say(f"{path}: {name}")
        findings.extend(check(patient))
    marked = _mark(patient)
    return Examination(
        path=path,
        sha256=file_sha256(path),
        passport=read_metadata(path) if marked else patient.passport,
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        ir_version=model.ir_version,
        opsets=graph.opsets(model),
        inputs=patient.runner.inputs if patient.runner else (),
        outputs=patient.runner.outputs if patient.runner else (),
        findings=tuple(findings),
        mates=patient.mates,
        runtime=runtime_limits(),
        marked=marked,
    )


@functools.cache
def runtime_limits() -> Limits:
    """What the installed onnxruntime reads, found by asking it: it has no call that tells."""
    onnx = need_onnx()

    def reads(ir_version: int, opset: int) -> bool:
        value = onnx.helper.make_tensor_value_info
        graph_ = onnx.helper.make_graph(
            [onnx.helper.make_node("Identity", ["x"], ["y"])], "g", [value("x", 1, [1])], [value("y", 1, [1])]
        )
        model = onnx.helper.make_model(graph_, opset_imports=[onnx.helper.make_opsetid("", opset)])
        model.ir_version = ir_version
        try:
            load_runner(model.SerializeToString())
        except BundleError:
            return False
        return True

    ir_version, opset = 4, OLDEST_OPSET
    while reads(ir_version + 1, OLDEST_OPSET):
        ir_version += 1
    while reads(4, opset + 1):
        opset += 1
    return Limits(ir_version, opset)


# ---- the checks ----------------------------------------------------------------------------------------------------


def _versions(patient: Patient) -> Iterator[Finding]:
    """IR version and opset against this runtime: both numbers, and what to do."""
    limits, name = runtime_limits(), "versions"
    ir_version, opset = patient.model.ir_version, graph.opsets(patient.model).get("")
    newer = f"install an onnxruntime that reads it (this is {ort.__version__})"
    fine = True
    if opset is not None and opset > limits.opset:
        fine = False
        yield Finding(
            "fail",
            name,
            f"the file has opset {opset}; {RUNTIME} reads up to {limits.opset}",
            why="the runtime refuses the file",
            mend=f"export it again with --opset {min(limits.opset, 20)}, or {newer}",
        )
    if ir_version > limits.ir_version:
        fine = False
        yield Finding(
            "fail",
            name,
            f"the file has IR version {ir_version}; {RUNTIME} reads up to {limits.ir_version}",
            why="the runtime refuses the file, whatever is in it",
            mend=f"{newer}, or write it again with an older stamp: load it with onnx, set ir_version ="
            f" {limits.ir_version} and save it; then check it again",
        )
    if opset is not None and opset < OLDEST_OPSET:
        fine = False
        yield Finding(
            "warn",
            name,
            f"the file has opset {opset}; {RUNTIME} promises opset {OLDEST_OPSET} and newer",
            why="operators this old may load and answer differently",
            mend="export it again, or convert it with onnx.version_converter",
        )
    if fine:
        opset_text = f"opset {opset} (up to {limits.opset})" if opset is not None else "no standard operators"
        yield Finding("ok", name, f"{opset_text}, IR version {ir_version} (up to {limits.ir_version}) on {RUNTIME}")


def _loads(patient: Patient) -> Iterator[Finding]:
    """The runtime takes the file."""
    if patient.runner is None:
        yield Finding("fail", "loads", patient.refusal, why="it cannot be served, nor can the rest be tested")
    else:
        yield Finding("ok", "loads", f"{RUNTIME}, {patient.runner.providers[0]}")


def _batch_axis(patient: Patient) -> Iterator[Finding]:
    """The first axis of every input is open."""
    if patient.runner is None:
        return
    fixed = [port for port in patient.runner.inputs if not port.shape or port.shape[0] is not None]
    for port in fixed:
        yield Finding(
            "warn",
            "batch axis",
            f"fixed at {port.shape[0]}" if port.shape else "a single number has none",
            where=f"input {port.name!r}",
            why="requests cannot share a run; they are served one at a time",
            mend="export it with an open first axis, as onbudget export does",
        )
    if not fixed:
        yield Finding("ok", "batch axis", f"open: {', '.join(f'{port.name!r}' for port in patient.runner.inputs)}")


def _batch_mates(patient: Patient) -> Iterator[Finding]:
    """A row alone answers as the row among loud and quiet mates."""
    if patient.runner is None:
        return
    passport, name = patient.passport, "batch-mates"
    recipe = passport.recipe if passport else None
    patient.mates = mates = probe(patient.runner, max_batch=patient.options.max_batch, recipe=recipe)
    said = passport.unbatchable if passport else ""
    if mates.ok:
        sizes = ", ".join(map(str, mates.sizes)) or "1"
        yield Finding(
            "ok",
            name,
            f"rows answer alike alone and in batches of {sizes} (largest change {mates.worst:.1g} of the range)",
        )
        if said:
            yield Finding(
                "warn",
                name,
                f"the passport says otherwise: {said}",
                why="it is served one request at a time, perhaps for nothing",
                mend="make the bundle again",
            )
        return
    if any(not port.shape or port.shape[0] is not None for port in patient.runner.inputs):
        return  # the batch axis has been told of
    yield Finding(
        "warn" if said or _unsure(patient) else "fail",
        name,
        f"could not be tested: {mates.reason}" if _unsure(patient) else mates.reason,
        why="what somebody is answered must not depend on who asks at the same time",
        mend=_mend_mates(patient),
    )


def _unsure(patient: Patient) -> bool:
    """A row alone did not run, and the sizes of its other axes were ours to guess: that says nothing of the model."""
    guessed = patient.runner and any(d is None for port in patient.runner.inputs for d in port.shape[1:])
    return bool(guessed and patient.mates and not patient.mates.ok and not patient.mates.sizes)


def _mend_mates(patient: Patient) -> str:
    kinds = {node.op_type for one in graph.graphs(patient.model.graph) for node in one.node}
    dynamic = sorted(kinds & {"DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"})
    if dynamic:
        return f"{dynamic[0]} takes its scale over the whole batch: quantise statically (QDQ), or leave it unbatched"
    if patient.passport is None:
        return "serve it with --max-batch 1, or mend the model"
    return "nothing, if one request at a time is fast enough: the passport says so and the server obeys; else the model"


CHECKS: dict[str, Callable[[Patient], Iterator[Finding]]] = {
    "versions": _versions,
    "loads": _loads,
    "batch axis": _batch_axis,
    "batch-mates": _batch_mates,
}


def _mark(patient: Patient) -> bool:
    """Write the reason into a bundle of ours that does not know it yet; a plain .onnx is never touched."""
    passport, mates = patient.passport, patient.mates
    if passport is None or mates is None or mates.ok or passport.unbatchable or not patient.options.mark:
        return False
    if _unsure(patient):
        return False
    known = dataclasses.replace(
        passport, unbatchable=mates.reason, parity={**passport.parity, "batch_mates": mates.to_dict()}
    )
    write_atomically(patient.path, with_metadata(patient.path.read_bytes(), known))
    return True
