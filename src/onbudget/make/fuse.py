"""An .onnx file and a recipe → one bundle: preprocessing and softmax in the graph, the rest in its metadata.

The order is: read everything and refuse what can't be meant; ask the original file; decide; operate; ask the fused file
the same; write. Nothing is written unless the fused file answers as the numpy recipe and the original do together.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from onbudget import __version__
from onbudget.core.errors import BundleError, GateFailed, UsageError
from onbudget.core.metadata import KEY, Metadata
from onbudget.engine.bundle import check_file, external_data, file_sha256, with_metadata
from onbudget.engine.files import write_atomically
from onbudget.engine.invariance import probe
from onbudget.make import graph, heads, proto, rows, sources, surgery
from onbudget.make.bundling import HALF_TOLERANCE, RESERVED, TOLERANCE, BundleOptions, BundleReport

if TYPE_CHECKING:  # names for types; engine.session costs onnxruntime
    from onbudget.engine.session import OrtRunner

Array = npt.NDArray[Any]

LIMIT = 2_000_000_000  # bytes: an .onnx file is one protobuf message, which ends at 2 GiB


@dataclass(slots=True)
class _Job:
    """One bundle on its way."""

    source: Path
    target: Path
    options: BundleOptions
    model: Any  # onnx.ModelProto
    told: Metadata  # grows step by step into the bundle's passport
    notes: list[str] = dataclasses.field(default_factory=list)
    opened: int = 0  # the batch that the file was frozen at, where it was opened
    difference: float | None = None
    tolerance: float = TOLERANCE


def make_bundle(source: Path, options: BundleOptions, say: Callable[[str], None] | None = None) -> BundleReport:
    """Fuse, check, write; `say` hears what is being done.

    Raises UsageError for options and files that do not fit each other, BundleError for a model that cannot become a
    bundle, GateFailed when the fused file answers differently.
    """
    say = say or _unheard
    target = _target(source, options)
    check_file(source)
    say(f"reading {source}")
    model = _load(source)
    job = _Job(source, target, options, model, _passport(model, source))
    _ask(job)
    if job.told.recipe is None and job.told.task == "tensors":
        return _plain(job)
    return _fused(job, say)


def _unheard(text: str) -> None:
    """Nobody listens."""


def write_metadata(path_in: Path, metadata: Metadata, path_out: Path) -> None:
    """The model of `path_in` with this passport, as `path_out` (which may be the same file); every weight is kept.

    External data beside the model stays there when both are in one folder, else it goes into the new file.
    """
    check_file(path_in)
    moved = path_in.parent.resolve() != path_out.parent.resolve() and external_data(path_in)
    data = _load(path_in).SerializeToString() if moved else path_in.read_bytes()
    write_atomically(path_out, with_metadata(data, metadata))


# ---- reading --------------------------------------------------------------------------------------------------------


def _target(source: Path, options: BundleOptions) -> Path:
    target = options.output or source.with_name(f"{source.stem}.bundle.onnx")
    if target.is_dir():
        target = target / source.name
    if not target.parent.is_dir():
        raise UsageError(f"-o {target}: there is no folder {target.parent}")
    if target.exists() and source.exists() and target.samefile(source):
        raise UsageError(f"-o {target} is the model itself; a bundle is a new file, so name another")
    return target


def _load(source: Path) -> Any:
    size = source.stat().st_size + sum(external_data(source).values())
    if size > LIMIT:
        raise BundleError(f"{source} is of {size / 1e9:.1f} GB with its weights; a bundle is one file of at most 2 GB")
    return proto.load(source)


def _passport(model: Any, source: Path) -> Metadata:
    """What the source says of itself (`onbudget export` writes that), and what it was made from."""
    found = next((entry.value for entry in model.metadata_props if entry.key == KEY), None)
    before = Metadata() if found is None else Metadata.from_json(found)
    if before.recipe is not None or before.activation != "none":
        raise BundleError(f"{source} is a bundle already; make the new one from the .onnx that it was made from")
    facts = {"ir_version": model.ir_version, "opset": graph.opsets(model).get("", 0)}
    made = {"name": model.producer_name or "unknown", "version": model.producer_version, **facts}
    return dataclasses.replace(
        before,
        source_sha256=file_sha256(source),
        exporter=before.exporter or made,
        samples=(),
        cost=None,
        made_by=f"onbudget {__version__}",
    )


def _ask(job: _Job) -> None:
    """What the options ask for: recipe, labels, task and field, as far as they can be known before a run."""
    options = job.options
    recipe, labels = sources.recipe_file(options.recipe) if options.recipe else (None, ())
    if options.labels:
        labels = sources.labels_file(options.labels)
    task: Any = options.task
    if task == "auto":
        task = "classify" if labels else "tensors"
    if task == "tensors":
        labels = ()
    elif twice := sources.doubles(labels):
        job.notes.append(
            f"{len(twice)} labels occur more than once, so answers can't be told apart by them: {twice[:3]}"
        )
    inputs = surgery.own_inputs(job.model)
    if len(inputs) != 1 and (recipe is not None or task != "tensors"):
        raise BundleError(
            f"{job.source} has {len(inputs)} inputs ({', '.join(v.name for v in inputs)}); a recipe and labels are for "
            "models of one. Without them it becomes a bundle of tensors"
        )
    name = options.field or (inputs[0].name if len(inputs) == 1 else Metadata().field)
    if name in RESERVED:
        raise UsageError(
            f"the model's input is called {name!r}, a word of the HTTP interface; give --field another name"
        )
    job.told = dataclasses.replace(job.told, task=task, field=name, labels=labels, recipe=recipe)


# ---- fusing ---------------------------------------------------------------------------------------------------------


def _plain(job: _Job) -> BundleReport:
    """A bundle of tensors: the graph stays as it is, so there is nothing to check but that it loads."""
    from onbudget.engine.session import load_runner
    from onbudget.make.timed import timed

    data = _serialised(job) if external_data(job.source) else job.source.read_bytes()
    runner = load_runner(data)
    if len(runner.inputs) == 1 and runner.inputs[0].shape and None not in runner.inputs[0].shape[1:]:
        given = next(rows.plain_items(runner.inputs[0], max(rows.CHECKED)))
        job.told = dataclasses.replace(job.told, samples=heads.samples(runner, given, runner.outputs[0].name))
    if job.options.cost and not job.told.unbatchable:
        job.told = dataclasses.replace(job.told, cost=timed(runner, job.notes, None, None))
    return _write(job, data, runner)


def _fused(job: _Job, say: Callable[[str], None]) -> BundleReport:
    from onbudget.engine.session import load_runner
    from onbudget.make.timed import timed

    say(f"asking {job.source}")
    surgery.check_opset(job.model)
    if surgery.is_half(job.model):
        job.tolerance = HALF_TOLERANCE
    original = load_runner(job.source)
    if not original.inputs[0].shape:
        raise BundleError(f"{job.source}: the input {original.inputs[0].name!r} declares no axes, so no batch axis")
    names = [port.name for port in original.outputs]
    given, own = _rows(job, original)
    before = {n: dict(zip(names, _asked(job, original, own[:n]), strict=True)) for n in rows.CHECKED}
    head = heads.choose(job.model, before[max(rows.CHECKED)], job.told, job.options.output_name)
    job.notes.extend(head.notes)
    output = _operate(job, head)
    say("checking the fused file")
    data = _serialised(job)
    fused = load_runner(data)
    wanted = {n: {**told, **({output: head.expected(told)} if output else {})} for n, told in before.items()}
    began = time.perf_counter()
    _check(job, fused, given, wanted)
    took = (time.perf_counter() - began) / len(wanted)  # at most, of the smallest
    facts = {"worst": job.difference, "tolerance": job.tolerance, "rows": list(rows.CHECKED)}
    if "batch_mates" not in job.told.parity:  # `onbudget export` has tried it already, with larger batches
        _mates(job, fused, [output] if output else names)
    job.told = dataclasses.replace(
        job.told,
        labels=head.labels,
        activation=head.activation,
        output=output,
        parity={**job.told.parity, "fused": facts},
        samples=heads.samples(fused, given, output or names[0]),
    )
    if job.options.cost and not job.told.unbatchable:
        job.told = dataclasses.replace(job.told, cost=timed(fused, job.notes, [output] if output else None, took))
    return _write(job, data, fused)


def _mates(job: _Job, fused: OrtRunner, outputs: list[str]) -> None:
    """Whether rows leave each other alone, tried with few: the server must know, and `onbudget check` tries more."""
    mates = probe(fused, max_batch=max(rows.CHECKED), recipe=job.told.recipe, outputs=outputs)
    job.told = dataclasses.replace(
        job.told,
        unbatchable=job.told.unbatchable or mates.reason,
        parity={**job.told.parity, "batch_mates": mates.to_dict()},
    )
    if not mates.ok:
        job.notes.append(f"it will be served one at a time: {mates.reason}")


def _asked(job: _Job, original: OrtRunner, own: Array) -> list[Array]:
    try:
        return rows.answers(original, own)
    except BundleError as error:
        hint = "" if len(own) == 1 else ", though it does with 1: export it again with a dynamic batch axis"
        raise BundleError(f"{job.source}: {error}{hint}") from error


def _rows(job: _Job, original: OrtRunner) -> tuple[Array, Array]:
    """The same distinct rows as the fused file will get them, and as the original wants them."""
    count, port = max(rows.CHECKED), original.inputs[0]
    if job.told.recipe is None:
        failed: BundleError | None = None
        for given in rows.plain_items(port, count):
            try:
                rows.answers(original, given)
            except BundleError as error:
                failed = failed or error
            else:
                return given, given
        raise BundleError(f"{job.source}: {failed}")
    if np.dtype(port.dtype or "object").kind not in "biuf":
        raise BundleError(f"{job.source}: the input {port.name!r} does not take numbers that a recipe can make")
    recipe = surgery.fitted(job.told.recipe, port.shape)
    if recipe.layout != job.told.recipe.layout:
        job.notes.append(f"the model takes pictures with channels last, so the recipe's layout is {recipe.layout}")
    job.told = dataclasses.replace(job.told, recipe=recipe)
    given = rows.items(recipe, count)
    own = recipe.tensor(given).reshape(count, *surgery.own_shape(port.shape, recipe))
    if np.dtype(port.dtype or "object").kind != "f" and np.any(own != np.round(own)):
        raise BundleError(
            f"the recipe makes fractions, but the model's input {port.name!r} is {port.dtype or 'no tensor'}"
        )
    return given, own.astype(port.dtype)


def _operate(job: _Job, head: heads.Head) -> str:
    """Change the graph; returns the output that the task reads ("" for all)."""
    surgery.forget_weight_inputs(job.model)
    frozen = graph.shape_of(surgery.own_inputs(job.model)[0])[0]
    if isinstance(frozen, int) and frozen:
        job.opened = frozen
        surgery.open_batch(job.model, frozen)
        job.notes.append(
            f"the file fixed its batch axis at {frozen}; it was opened, and {max(rows.CHECKED)} rows at once answer as "
            "they do in the original"
        )
    surgery.forget_negative_axes(job.model)
    if job.told.recipe is not None:
        surgery.put_recipe_before(job.model, job.told.recipe, job.told.field)
    if not head.name:
        return ""
    return surgery.put_activation_after(job.model, head.name, head.activation, head.columns, plain=head.plain)


def _check(job: _Job, fused: OrtRunner, given: Array, wanted: Mapping[int, Mapping[str, Array]]) -> None:
    """The largest difference of any output at every number of rows, one above 1 measured by its largest value.

    The model's own outputs count beside the probabilities, which hide a difference where they are nearly 0 and 1.
    """
    worst, where = 0.0, ""
    for count, outputs in wanted.items():
        try:
            got = rows.answers(fused, given[:count], list(outputs))
        except BundleError as error:
            raise (_frozen(job, str(error)) if job.opened else error) from error
        for (name, b), a in zip(outputs.items(), got, strict=True):
            if job.opened and (not b.ndim or len(b) != count):
                continue  # not an output of rows: what it is with another batch, nobody knows
            if b.dtype.kind == "f" and np.isnan(b).any():
                raise GateFailed(f"{job.source}: output {name!r} is NaN for ordinary items, before anything was fused")
            scale = max(1.0, float(np.max(np.abs(b), initial=0.0))) if b.dtype.kind == "f" else 1.0
            apart = rows.difference(a, b) / scale
            if not apart <= worst:
                worst, where = apart, f"output {name!r} with {count} rows"
    job.difference = worst
    if not worst <= job.tolerance:
        if job.opened:
            raise _frozen(job, f"{where} differs by {worst:.3g}")
        raise GateFailed(
            f"{job.source}: the fused file differs from the numpy recipe and the model by {worst:.3g} ({where}); "
            f"the tolerance is {job.tolerance:g}. Nothing was written"
        )


def _frozen(job: _Job, why: str) -> BundleError:
    node = graph.frozen_by(_load(job.source), job.opened)
    return BundleError(
        f"{job.source} fixes its batch axis at {job.opened}{f' ({node})' if node else ''}, and opening it failed: "
        f"{why}. Export it again with a dynamic batch axis; `onbudget export` does that"
    )


# ---- writing --------------------------------------------------------------------------------------------------------


def _serialised(job: _Job) -> bytes:
    size = job.model.ByteSize()
    if size > LIMIT:
        raise BundleError(f"{job.source}: the bundle would be of {size / 1e9:.1f} GB; one .onnx file holds 2 GB")
    return bytes(job.model.SerializeToString())


def _write(job: _Job, data: bytes, runner: OrtRunner) -> BundleReport:
    whole = with_metadata(data, job.told)
    write_atomically(job.target, whole)
    return BundleReport(
        job.target,
        len(whole),
        file_sha256(whole),
        job.told,
        runner.inputs,
        runner.outputs,
        job.difference,
        job.tolerance,
        tuple(job.notes),
    )
