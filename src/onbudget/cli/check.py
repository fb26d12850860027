"""`onbudget check`: read a model's passport and test what it promises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onbudget.cli import show
from onbudget.cli.options import options
from onbudget.core.metadata import Metadata
from onbudget.core.recipe import Recipe
from onbudget.make.doctor import CheckOptions

if TYPE_CHECKING:  # a name for a type
    from onbudget.make.doctor import Examination

EXAMPLES = """\b
Examples:
  onbudget check served.onnx
  onbudget check model.onnx --max-batch 8 --json
  onbudget check served.onnx --no-mark

Exit code 12: the file promises something that does not hold. A bundle whose rows do not leave each other alone is
rewritten to say so (--no-mark leaves it as it is), and is served one request at a time from then on.
"""


@click.command("check", epilog=EXAMPLES)
@options(CheckOptions)
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(chosen: CheckOptions, model: Path, as_json: bool) -> int:
    """Read MODEL's passport and test what it promises.

    Opset and IR version against this runtime, the batch axis, and whether a row's answer depends on its batch-mates.
    """
    from onbudget.make.doctor import examine

    with show.progress(f"checking {model}") as line:
        seen = examine(model, chosen, line.update)
    if as_json:
        show.data(seen.to_dict())
    else:
        show.table(str(model), ("passport", ""), list(_passport(seen)))
        show.table("", ("", "check", "what"), [(f.level, f.check, _what(f.where, f.what)) for f in seen.findings])
        for finding in seen.findings:
            if finding.level != "ok":
                show.say(f"{finding.check}: {finding.why}" + (f". To mend it: {finding.mend}" if finding.mend else ""))
    if seen.marked and seen.passport is not None:
        show.warn(f"{model} is now marked: it is served one request at a time, because {seen.passport.unbatchable}")
    return 0 if seen.ok else 12


def _what(where: str, what: str) -> str:
    return f"{where}: {what}" if where else what


def _passport(seen: Examination) -> Iterator[tuple[str, str]]:
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in sorted(seen.opsets.items()))
    for name, ports in (("input", seen.inputs), ("output", seen.outputs)):
        for port in ports:
            axes = "×".join("N" if d is None else str(d) for d in port.shape) or "one number"
            yield name, f"{port.name}: {port.dtype or 'no tensor'} {axes}"
    yield "opset", opsets
    yield "producer", seen.producer or "unknown"
    if seen.passport is None:
        yield "passport", "none: a plain .onnx, served as tensors (onbudget bundle gives it one)"
    else:
        yield from _ours(seen.passport)
    yield "sha256", seen.sha256


def _ours(passport: Metadata) -> Iterator[tuple[str, str]]:
    labels = ", ".join(passport.labels[:5]) + (f" … {len(passport.labels)} in all" if len(passport.labels) > 5 else "")
    reads = f", reads {passport.output!r}" if passport.output else ""
    yield "task", f"{passport.task}, field {passport.field!r}{reads}, activation {passport.activation}"
    yield "labels", labels or "none"
    yield "recipe", _recipe(passport.recipe) if passport.recipe else "none"
    yield "parameters", "not counted" if passport.params is None else f"{passport.params:,}"
    yield "exporter", _plain(passport.exporter) or "unknown"
    for name, found in sorted(passport.parity.items()):
        yield name.replace("_", " "), _difference(found)
    yield "batching", f"one request at a time: {passport.unbatchable}" if passport.unbatchable else "yes"
    yield "samples", str(len(passport.samples))
    yield "made by", passport.made_by or "unknown"
    if passport.source_sha256:
        yield "made from sha256", passport.source_sha256


def _recipe(recipe: Recipe) -> str:
    """What it does, not what it leaves alone."""
    usual = Recipe(recipe.kind, recipe.shape).to_dict()
    told = {name: value for name, value in recipe.to_dict().items() if value != usual[name]}
    return _plain({"": recipe.kind, "shape": list(recipe.shape), "input_dtype": recipe.input_dtype} | told)


def _plain(values: Mapping[str, Any]) -> str:
    def show_value(name: str, value: Any) -> str:
        if isinstance(value, list):
            return ("×" if name in ("shape", "size", "crop") else " ").join(map(str, value))
        return f"{value:.6g}" if isinstance(value, float) else str(value)

    kept = {name: value for name, value in values.items() if value not in (None, [], "")}
    return ", ".join(f"{name} {show_value(name, value)}".strip() for name, value in kept.items())


def _difference(found: Any) -> str:
    if not isinstance(found, dict) or "worst" not in found:
        return str(found)
    worst = found["worst"]
    told = f"{worst:.3g}" if isinstance(worst, int | float) else str(worst)
    return f"at most {told}" + (f" (tolerance {found['tolerance']:g})" if "tolerance" in found else "")
