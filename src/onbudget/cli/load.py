"""`onbudget load`: an open-loop load test that can't lie."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from onbudget.cli import show
from onbudget.cli.options import options
from onbudget.prove.settings import LoadOptions

EXAMPLES = """\b
Examples:
  onbudget load 127.0.0.1:8000 --rate 200/s --p95 20ms           random items of the model's shape
  onbudget load 127.0.0.1:8000 --data tiles/ --format jpeg       pictures, uploaded as they are
  onbudget load http://10.0.0.5:8080/v1/predict --body one.json  any server, any body
  onbudget load 127.0.0.1:8000 --trace monday.txt -o run.jsonl   recorded arrivals, every hit kept

Exit codes: 0 the budget was met, or there was none; 10 missed; 11 void, not steady or undecided; 1 the server cannot be
tested; 130 stopped with Ctrl-C (what was measured is still told).
"""


@click.command("load", epilog=EXAMPLES)
@options(LoadOptions)
@click.argument("url")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write every request's record to this file.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def command(chosen: LoadOptions, url: str, output: Path | None, as_json: bool) -> int:
    """Send requests when they are due, whatever the answers do, and judge the p95 from those moments.

    URL is where to POST; a bare HOST:PORT means its /predict.
    """
    from onbudget.prove.load import run_load
    from onbudget.prove.report import COLUMNS, progress_words, rows, title, to_json, verdict_words, write_run

    if output is not None and not output.parent.is_dir():
        raise click.UsageError(f"-o {output}: there is no folder {output.parent}")
    with show.progress("asking the server what it takes") as line:
        run = run_load(dataclasses.replace(chosen, url=url), lambda now: line.update(progress_words(now, chosen.p95)))
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
