"""`onbudget profile`: what a run of a model costs on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onbudget.cli import show
from onbudget.cli.options import options
from onbudget.core.errors import UsageError
from onbudget.core.profile import shape
from onbudget.prove.profile import ProfileOptions

if TYPE_CHECKING:
    from onbudget.core.profile import Profile

EXAMPLES = """\b
Examples:
  onbudget profile served.onnx
  onbudget profile served.onnx -o profile.json --time-budget 60s
  onbudget profile model.onnx --threads 1 --lanes 1,2 --max-batch 8 --json

All lanes are busy while one is timed, and all points are measured in every round, in random order. The record says of
which model and of which machine it is; nothing presents it as another's.
"""
_BAR = 24  # characters for the most items a second


@click.command("profile", epilog=EXAMPLES)
@options(ProfileOptions)
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Where to write the record (JSON).")
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON.")
def command(chosen: ProfileOptions, model: Path, out: Path | None, as_json: bool) -> int:
    """Measure what a run of MODEL costs on this machine, by batch, threads and lanes."""
    from onbudget.prove.profile import profile_file, write_profile

    if out is not None and not out.absolute().parent.is_dir():  # told before the measurement, not after it
        raise UsageError(f"{out} cannot be written: there is no folder {out.parent}")
    with show.progress(f"profiling {model}") as line:
        found = profile_file(model, chosen, line.update)
    if out is not None:
        write_profile(found, out)
        show.note(f"written: {out}")
    if as_json:
        show.data(found.to_dict())
    else:
        _tell(found)
    for text in found.notes:
        show.warn(text)
    return 0


def _tell(found: Profile) -> None:
    facts = found.machine
    show.say(f"{found.model} on {facts['cpu']}, {facts['cores']:g} cores, onnxruntime {facts['onnxruntime']}")
    for threads, lanes in found.configurations():
        columns = ("batch", "ms a run", "p90", "ms an item", "items/s", "CPU ms", "runs", "")
        show.table(shape(threads, lanes), columns, list(_rows(found, threads, lanes)))
    for threads, lanes in found.configurations():
        show.say(f"{shape(threads, lanes)}: {found.pays(threads, lanes)}")
    best = found.fastest()
    show.say(f"most items: {best.items_per_s:,.0f}/s with {shape(best.threads, best.lanes)}, batch {best.batch}")


def _rows(found: Profile, threads: int, lanes: int) -> Iterator[tuple[str, ...]]:
    most = found.fastest().items_per_s
    for p in found.of(threads, lanes):
        yield (
            str(p.batch),
            f"{p.median_s * 1e3:.3f}",
            f"{p.q90_s * 1e3:.3f}",
            f"{p.median_s * 1e3 / p.batch:.3f}",
            f"{p.items_per_s:,.0f}",
            f"{p.cpu_s * 1e3:.3f}",
            str(p.runs),
            "▇" * max(1, round(_BAR * p.items_per_s / most)),
        )
