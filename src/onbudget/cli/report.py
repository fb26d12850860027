"""`onbudget report`: load tests as a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onbudget.cli import show
from onbudget.cli.options import Parsed
from onbudget.core import units
from onbudget.core.errors import RecordError, UsageError

if TYPE_CHECKING:
    from onbudget.prove.series import Named

EXAMPLES = """\b
Examples:
  onbudget report run.jsonl                                  one run, as report.html
  onbudget report before.jsonl after.jsonl -o change.html    the second compared with the first
  onbudget report *.jsonl --margin 5% -o all.html            each compared with the first

RUN is what `onbudget load -o` wrote. The page is one file that loads nothing from elsewhere.

Exit codes: 0 the page is written; 1 a file could not be read (the page is of the others, if there are any).
"""
MOST = 16  # as many as the eye can tell apart


@click.command("report", epilog=EXAMPLES)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), default="report.html", show_default=True, help="Where to write it."
)
@click.option(
    "--margin",
    type=Parsed(units.share, "share"),
    default="10%",
    show_default=True,
    metavar="SHARE",
    help="Of several runs: how much higher a p95 may be that counts as no worse.",
)
def command(runs: tuple[Path, ...], out: Path, margin: float) -> int:
    """Show load tests as a page: latency, traffic, batches, refusals, machine, commands and cautions.

    Several are compared with the first.
    """
    from onbudget.engine.files import write_atomically
    from onbudget.prove.run_page import page

    _check(runs, out)
    named, failed = _read(list(dict.fromkeys(runs)))
    if not named:
        show.note("no page: there is no run to show")
        return RecordError.exit_code
    with show.progress("drawing"):
        made = page(named, margin)
    write_atomically(out, made.encode())
    show.note(f"written: {out}")
    return RecordError.exit_code if failed else 0


def _check(runs: Sequence[Path], out: Path) -> None:
    """UsageError before anything is read, where the end can be foreseen."""
    if len(runs) > MOST:
        raise UsageError(f"{len(runs)} runs: a page has at most {MOST}, which is as many as the eye can tell apart")
    if not out.absolute().parent.is_dir():
        raise UsageError(f"{out} cannot be written: there is no folder {out.parent}")
    if any(
        path.absolute() == out.absolute() or (out.exists() and path.exists() and path.samefile(out)) for path in runs
    ):
        raise UsageError(f"-o {out} is one of the runs; it would be overwritten")


def _read(paths: Sequence[Path]) -> tuple[list[Named], int]:
    """The runs that can be read, by names that differ, and how many cannot; each of these is told in a sentence."""
    from onbudget.prove.report import read_run
    from onbudget.prove.series import Named

    stems = [path.stem for path in paths]
    found: list[Named] = []
    failed: list[str] = []
    with show.progress(f"reading {paths[0]}") as line:
        for path in paths:
            line.update(f"reading {path}")
            cut: list[str] = []
            try:
                run = read_run(path, cut)
            except RecordError as error:
                failed.append(str(error))
                continue
            found.append(Named(path.stem if stems.count(path.stem) == 1 else str(path), run, tuple(cut)))
    for words in failed:
        show.note(f"onbudget: {words}")
    for one in found:
        for words in one.cut:
            show.warn(words)
    return found, len(failed)
