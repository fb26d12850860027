"""`onbudget export`: a PyTorch module becomes a checked .onnx file."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from pathlib import Path

import click

from onbudget.cli import show
from onbudget.cli.options import options
from onbudget.make.export import ExportOptions, ExportReport

EXAMPLES = """\b
Examples:
  onbudget export model:make --example 1x3x64x64 --input-name tiles --output-name logits -o model.onnx
  onbudget export pkg.net:Net --example 1x128 --dtype int64 --weights net.pt
  onbudget export model:make --example 1x3x224x224 --exporter legacy --opset 17 --json

TARGET is pkg.module:factory: a function without arguments that returns a torch.nn.Module, or a module itself. The
current folder is importable. Exit code 12: the batch axis is not free, or the answers are not PyTorch's; OUTPUT is
not written then, and the failed file is kept as OUTPUT's name with .failed.onnx.
"""


@click.command("export", epilog=EXAMPLES)
@options(ExportOptions)
@click.argument("target")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=Path("model.onnx"), show_default=True, help="The file."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(chosen: ExportOptions, target: str, output: Path, as_json: bool) -> None:
    """Turn a PyTorch module into one .onnx file, and prove it.

    The batch axis is verified by running at 1, 2, 3 and --max-batch rows, against PyTorch's own answers.
    """
    from onbudget.make import export
    from onbudget.make.factory import load_module

    chosen = dataclasses.replace(chosen, output=output)
    with show.progress(f"importing {target}") as line:
        with contextlib.redirect_stdout(sys.stderr):  # what a factory prints is not this command's result
            module = load_module(target, chosen.weights)
        report = export.export(module, chosen, line.update)
    for text in report.notes:
        show.note(text)
    for text in report.warnings:
        show.warn(text)
    if as_json:
        show.data(report.to_dict())
    else:
        _tell(report)


def _tell(report: ExportReport) -> None:
    from onbudget.core.units import show_size

    made, found = report.exporter, report.parity
    worst = f"{found.worst:.3g} (tolerance {found.tolerance:g}, largest answer {found.scale:.3g})"
    rows = [
        ("file", f"{report.path}, {show_size(report.bytes)}"),
        ("exporter", f"{made['name']}, torch {made['torch']}, opset {made['opset']}, IR {made['ir_version']}"),
        ("parameters", f"{report.params:,}"),
        ("largest difference from PyTorch", worst),
        *((f"  with {n} row{'s' if n > 1 else ''}", f"{value:.3g}") for n, value in found.by_rows.items()),
        ("rows leave each other alone", "yes" if report.mates.ok else f"no: {report.mates.reason}"),
        ("sha256", report.sha256),
    ]
    show.table("", ("exported", ""), rows)
    show.note(
        f"next: onbudget bundle {report.path} --recipe recipe.json --labels labels.txt, or onbudget serve {report.path}"
    )
