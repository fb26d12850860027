"""`onbudget tune`: the configuration that holds a budget on this machine."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onbudget.cli import show
from onbudget.cli.options import options
from onbudget.core.errors import UsageError
from onbudget.core.units import show_seconds
from onbudget.prove.tune import TuneOptions

if TYPE_CHECKING:
    from onbudget.core.plan import Candidate, Plan

EXAMPLES = """\b
Examples:
  onbudget tune served.onnx --p95 20ms -o plan.json                       the highest rate that holds
  onbudget tune served.onnx --p95 20ms --quiet 20/s --peak 800/s -o plan.json
  onbudget tune served.onnx --p95 20ms --trace monday.txt --report tune.html
  onbudget tune fp32.onnx int8.onnx --p95 20ms -o plan.json               the better one of two variants
  onbudget tune served.onnx --p95 20ms --cores 1 -o plan.json             one core serves, the others load it

Then: onbudget serve served.onnx --plan plan.json

Exit codes: 0 a plan was found; 11 the load tests can't be believed; 13 infeasible: it says what stands in the way, and
the nearest budget or rate.
"""
COLUMNS = ("configuration", "limit", "quiet p95", "peak p95", "limit, live", "quiet p95, live", "peak p95, live", "")


@click.command("tune", epilog=EXAMPLES)
@options(TuneOptions)
@click.argument("models", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="MODEL...")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Where to write the plan (JSON).")
@click.option("--report", type=click.Path(path_type=Path), help="Where to write a page that shows it (HTML).")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def command(chosen: TuneOptions, models: tuple[Path, ...], out: Path | None, report: Path | None, as_json: bool) -> int:
    """Find how to serve MODEL within a p95 budget on this machine, and prove it live; several MODELs are variants.

    Runs are timed, every configuration is predicted, and the best few are served and loaded over HTTP.
    """
    from onbudget.engine.children import signals_as_ctrl_c
    from onbudget.engine.plans import write_plan
    from onbudget.prove.tune import tune

    for path in (out, report):
        if path is not None and not path.absolute().parent.is_dir():  # told before the measurement, not after it
            raise UsageError(f"{path} cannot be written: there is no folder {path.parent}")
    notes: list[str] = []
    try:
        with signals_as_ctrl_c(), show.progress(f"tuning {', '.join(map(str, models))}") as line:
            plan = tune(models, chosen, line.update, notes)
    finally:  # where there is no plan they may say why
        for text in notes:
            show.warn(text)
    if out is not None:
        write_plan(plan, out)
        show.note(f"written: {out}")
    if report is not None:
        from onbudget.engine.files import write_atomically
        from onbudget.prove.page import page

        write_atomically(report, page(plan, str(out or "plan.json")).encode())
        show.note(f"written: {report}")
    if as_json:
        show.data(plan.to_dict())
    else:
        _tell(plan, next(path for path in models if path.name == plan.model or str(path) == plan.model), out)
    doubts = [trial.doubt for one in plan.candidates for trial in one.trials if trial.doubt]
    if doubts:
        count = sum(len(one.trials) for one in plan.candidates)
        show.warn(f"{len(doubts)} of {count} load tests in doubt, the first because {doubts[0]}")
    return 0


def _tell(plan: Plan, model: Path, out: Path | None) -> None:
    cores, cpu = plan.machine["cores"], plan.machine["cpu"]
    on = f"{cores:g} core{'' if cores == 1 else 's'} ({cpu})"
    title = f"{plan.model}, p95 ≤ {show_seconds(plan.p95_s)} on {on}"
    show.table(title, *_used(COLUMNS, list(_rows(plan))))
    show.say(words(plan))
    show.say(
        f"next: onbudget serve {model} --plan {out or 'plan.json'}" + ("" if out else "   (-o plan.json keeps it)")
    )


def _used(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Without the columns that nobody fills."""
    kept = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    return tuple(columns[i] for i in kept), [tuple(row[i] for i in kept) for row in rows]


def _rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    for one in plan.candidates:
        predicted, measured = one.predicted, one.measured
        yield (
            f"{one.model}: {one.configuration}" if one.model else str(one.configuration),
            f"{one.limit_rate:,.0f}/s",
            _time(predicted.quiet_s) if predicted and not plan.trace else "",
            _time(predicted.peak_s) if predicted else "",
            "" if one.measured_limit is None else f"{one.measured_limit:,.0f}/s",
            _time(measured.quiet_s) if measured and not plan.trace else "",
            _time(measured.peak_s) if measured else "",
            "← chosen" if one is plan.choice else "",
        )


def _time(seconds: float) -> str:
    return show_seconds(seconds) if math.isfinite(seconds) else "no bound"


def words(plan: Plan) -> str:
    """What was chosen and why, in a sentence or two."""
    one: Candidate = plan.choice
    told = f"chosen: {one.configuration}"
    if one.measured_limit is not None:
        return f"{told}: it held up to {one.measured_limit:,.0f} requests/s live (predicted: {one.limit_rate:,.0f}/s)"
    assert one.measured is not None
    if plan.trace:
        told += f": p95 {_time(one.measured.peak_s)} under {plan.trace}"
    else:
        quiet, peak = _time(one.measured.quiet_s), _time(one.measured.peak_s)
        told += f": p95 {quiet} at {plan.quiet:g}/s and {peak} at {plan.peak:g}/s"
    unsure = [trial for trial in one.trials if trial.word != "met"]
    if unsure:
        told += "; " + ", ".join(f"at {t.rate:.4g}/s the verdict is {t.word} ({t.offered} requests)" for t in unsure)
    return f"{told}. Its limit is predicted at {one.limit_rate:,.0f} requests/s"
