"""`onbudget load`: an open-loop load test that can't lie."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from onbudget.cli import show
from onbudget.cli.options import Parsed, options
from onbudget.core import units
from onbudget.prove.settings import LoadOptions

EXAMPLES = """\b
Examples:
  onbudget load 127.0.0.1:8000 --rate 200/s --p95 20ms           random items of the model's shape
  onbudget load 127.0.0.1:8000 --data tiles/ --format jpeg       pictures, uploaded as they are
  onbudget load http://10.0.0.5:8080/v1/predict --body one.json  any server, any body
  onbudget load 127.0.0.1:8000 --trace monday.txt -o run.jsonl   recorded arrivals, every hit kept
  onbudget load --compare before.jsonl after.jsonl               did it get worse?
  onbudget load --compare a.jsonl b.jsonl --p95 25ms --json      judged by another budget, for machines

Then: onbudget report run.jsonl -o report.html

Exit codes: 0 the budget was met, or there was none; 10 missed; 11 void, not steady or undecided; 1 the server cannot be
tested; 130 stopped with Ctrl-C (what was measured is still told).

Exit codes of --compare: 0 the second run is better, or no worse than the margin; 10 it is worse; 11 the runs cannot
tell, or one of them is void or not steady; 1 a file is no record.
"""


@click.command("load", epilog=EXAMPLES)
@options(LoadOptions)
@click.argument("url", required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write every request's record to this file.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.option(
    "--compare",
    nargs=2,
    type=click.Path(path_type=Path),
    metavar="A B",
    help="Send nothing; tell how the record B differs from A.",
)
@click.option(
    "--margin",
    type=Parsed(units.share, "share"),
    default="10%",
    show_default=True,
    metavar="SHARE",
    help="With --compare: how much higher a p95 may be that counts as no worse.",
)
def command(
    chosen: LoadOptions,
    url: str | None,
    output: Path | None,
    as_json: bool,
    compare: tuple[Path, Path] | None,
    margin: float,
) -> int:
    """Send requests when they are due, whatever the answers do, and judge the p95 from those moments.

    URL is where to POST; a bare HOST:PORT means its /predict. With --compare two records of such tests are compared.
    """
    if compare is not None:
        if url is not None or output is not None:
            raise click.UsageError("--compare sends nothing and writes nothing; leave out URL and -o")
        return _compare(compare, chosen.p95, margin, as_json)
    if url is None:
        raise click.UsageError("Missing argument 'URL': where to send, such as 127.0.0.1:8000 (or --compare A B).")
    return _load(dataclasses.replace(chosen, url=url), output, as_json)


def _load(chosen: LoadOptions, output: Path | None, as_json: bool) -> int:
    from onbudget.prove.load import run_load
    from onbudget.prove.report import COLUMNS, progress_words, rows, title, to_json, verdict_words, write_run

    if output is not None and not output.absolute().parent.is_dir():
        raise click.UsageError(f"-o {output}: there is no folder {output.parent}")
    with show.progress("asking the server what it takes") as line:
        run = run_load(chosen, lambda now: line.update(progress_words(now, chosen.p95)))
    told = run.summary()
    if output is not None:
        write_run(run, output)
    if as_json:
        show.data(to_json(run))
    else:
        show.table(title(run.header), COLUMNS, rows(run))
    for text in told.notes:
        show.note(f"note: {text}")
    words = verdict_words(run.header, told)
    show.note(words) if as_json else show.say(words)
    return told.exit_code


def _compare(paths: tuple[Path, Path], p95_s: float | None, margin: float, as_json: bool) -> int:
    from onbudget.prove import versus
    from onbudget.prove.load import Run
    from onbudget.prove.report import read_run

    cut: list[str] = []
    runs: list[Run] = []
    with show.progress(f"reading {paths[0]}") as line:
        for path in paths:
            line.update(f"reading {path}")
            runs.append(read_run(path, cut))
    if p95_s is not None:
        runs = [dataclasses.replace(run, header=dataclasses.replace(run.header, p95_s=p95_s)) for run in runs]
    before, after = runs
    told = versus.compare(before, after, margin)
    if as_json:
        show.data(versus.to_json(before, after, told, margin))
    else:
        show.table(f"{paths[0]} and {paths[1]}", versus.COLUMNS, versus.rows(before, after, told))
    for text in (*cut, *versus.warnings(before, after, told)):
        show.warn(text)
    words = versus.words(told, margin)
    show.note(words) if as_json else show.say(words)
    return told.exit_code
