"""`onbudget bundle`: an .onnx file and a recipe become one servable bundle."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from onbudget.cli import show
from onbudget.cli.options import options
from onbudget.make.bundling import BundleOptions, BundleReport

EXAMPLES = """\b
Examples:
  onbudget bundle model.onnx --recipe recipe.json --labels labels.txt --field tiles -o served.onnx
  onbudget bundle vit.onnx --recipe preprocessor_config.json --labels config.json
  onbudget bundle tags.onnx --recipe recipe.json --labels tags.txt --task multilabel
  onbudget bundle encoder.onnx -o served.onnx --json

The recipe is one of ours, Hugging Face's preprocessor_config.json, or timm's data config, each as it stands. Exit code
12: the fused file does not answer as the numpy recipe and the model do; nothing is written then.
"""


@click.command("bundle", epilog=EXAMPLES)
@options(BundleOptions)
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write.  [default: MODEL.bundle.onnx]")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(chosen: BundleOptions, model: Path, output: Path | None, as_json: bool) -> None:
    """Fuse preprocessing and softmax into an .onnx file, check it against numpy, and write one bundle."""
    from onbudget.make.fuse import make_bundle

    with show.progress("", quiet=as_json) as line:
        report = make_bundle(model, dataclasses.replace(chosen, output=output), line.update)
    for text in report.notes:
        show.note(f"note: {text}")
    if as_json:
        show.data(report.to_dict())
    else:
        _tell(report)


def _tell(report: BundleReport) -> None:
    from onbudget.core.units import show_size

    told = report.metadata
    rows = [
        ("file", f"{report.path}, {show_size(report.bytes)}"),
        *(("input", f"{p.name}: {p.dtype} {_axes(p.shape)}") for p in report.inputs),
        *(("output", f"{p.name}: {p.dtype} {_axes(p.shape)}") for p in report.outputs),
        ("field in JSON", told.field),
        ("answers", _answers(report)),
        ("picture", _picture(report)),
        ("in the graph", _fused(report)),
        ("largest difference from numpy", _difference(report)),
        ("parameters", None if told.params is None else f"{told.params:,}"),
        ("sha256", report.sha256),
    ]
    show.table("", ("bundled", ""), [row for row in rows if row[1]])
    show.note(f"next: onbudget check {report.path}, or onbudget serve {report.path}")


def _axes(shape: tuple[int | None, ...]) -> str:
    return "×".join("N" if d is None else str(d) for d in shape) or "one number"


def _difference(report: BundleReport) -> str:
    return "" if report.difference is None else f"{report.difference:.3g} (tolerance {report.tolerance:g})"


def _answers(report: BundleReport) -> str:
    told = report.metadata
    if told.task == "tensors":
        return "tensors"
    shown = ", ".join(told.labels[:3]) + (" …" if len(told.labels) > 3 else "")
    return f"{told.task}, {len(told.labels)} labels ({shown}), from {told.output}"


def _picture(report: BundleReport) -> str:
    recipe = report.metadata.recipe
    if recipe is None or recipe.kind != "picture":
        return ""
    steps: list[str] = [recipe.colour]
    if recipe.exif:
        steps.append("turned by EXIF")
    if recipe.size is not None:
        size = f"{recipe.size[0]}×{recipe.size[1]}" if recipe.resize == "stretch" else f"shortest side {recipe.size[0]}"
        steps.append(f"{recipe.resize if recipe.resize == 'stretch' else 'resize'} to {size} ({recipe.resample})")
    if recipe.crop is not None:
        steps.append(f"centre crop {recipe.crop[0]}×{recipe.crop[1]}")
    return ", ".join(steps)


def _fused(report: BundleReport) -> str:
    told, recipe = report.metadata, report.metadata.recipe
    steps = []
    if recipe is not None:
        steps.append(f"scale {recipe.scale:.6g}")
        steps += [f"{name} {' '.join(f'{v:g}' for v in values)}" for name, values in _moments(report) if values]
        steps += ["channels reversed"] if recipe.bgr else []
        steps += [recipe.layout] if recipe.kind == "picture" else []
    if told.activation in ("softmax", "sigmoid"):
        steps.append(told.activation)
    return ", ".join(steps)


def _moments(report: BundleReport) -> list[tuple[str, tuple[float, ...]]]:
    recipe = report.metadata.recipe
    return [("mean", recipe.mean[:4]), ("std", recipe.std[:4])] if recipe is not None else []
