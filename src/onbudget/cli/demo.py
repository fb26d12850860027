"""`onbudget demo`: the embedded model served, asked, loaded, and compared with the service one writes by hand."""

from __future__ import annotations

import base64
import contextlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onbudget.cli import show
from onbudget.cli.options import options
from onbudget.core import units
from onbudget.core.errors import TargetError, UsageError
from onbudget.core.options import option

if TYPE_CHECKING:
    from onbudget.engine.children import Server
    from onbudget.engine.embedded import Tile
    from onbudget.prove.compare import Comparison, Row

OURS, NAIVE = "onbudget", "by hand"

EXAMPLES = """\b
Examples:
  onbudget demo                   everything, then the server stays up until Ctrl-C
  onbudget demo --once --json     figures for a machine
  onbudget demo --p95 10ms        another budget

"by hand" is FastAPI with pydantic on uvicorn, one request a run, with the same bundle (onbudget/cli/naive.py). It takes
half a minute. Exit code 0: the demo ran, whatever its verdict says.
"""


def _budget(text: str) -> float:
    value = units.seconds(text)
    if value <= 0:
        raise UsageError(f"{text!r}: a budget must be above zero")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1 <= value <= 600:
        raise UsageError(f"{text!r} must be a number of seconds from 1 to 600")
    return value


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the demo judges by and how long it loads each server at each rate, in seconds."""

    p95: float = option("25ms", "The p95 latency budget.", parse=_budget, metavar="DURATION", flag="--p95")
    seconds: float = option("6", "Load for each server at each rate.", parse=_seconds, metavar="N")


@click.command("demo", epilog=EXAMPLES)
@options(DemoOptions)
@click.option("--once", is_flag=True, help="End after the verdict; else the server stays up until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def command(chosen: DemoOptions, once: bool, as_json: bool) -> int:
    """See it work on real satellite tiles.

    Serves the embedded bundle, classifies tiles that it was not trained on, and loads it beside the service that one
    writes by hand.
    """
    from onbudget.engine.children import Server, on_cores, signals_as_ctrl_c, split_cores
    from onbudget.engine.embedded import bundle_path, tiles

    bundle, pictures = bundle_path(), tiles()
    server_core, load_cores = split_cores()
    serve = ("onbudget", "serve", str(bundle), "--port", "0", "--lanes", "1", "--p95", f"{chosen.p95 * 1000:g}ms")
    with signals_as_ctrl_c(), contextlib.ExitStack() as stack:
        with contextlib.ExitStack() as rival:
            with show.progress("starting the server, and the one by hand"):
                ours = stack.enter_context(Server(OURS, serve, server_core))
                naive = rival.enter_context(Server(NAIVE, ("onbudget.cli.naive", str(bundle)), server_core))
                url, other = ours.url(), naive.url()
            answers = classify(url, pictures)
            if not as_json:
                _tell_answers(pictures, answers)
            with show.progress("comparing") as line, on_cores(load_cores):
                found = _compare((url, other), bundle, chosen, line)
        words = verdict(found, chosen.p95)
        if as_json:
            show.data(_as_json(pictures, answers, found, chosen, words))
        else:
            _tell_comparison(found, chosen.p95, bool(server_core), words)
        if not once:
            _stay_up(ours, url, bundle.parent / "tiles")
    return 0


# ---- asking ---------------------------------------------------------------------------------------------------------


def classify(url: str, pictures: tuple[Tile, ...]) -> list[dict[str, Any]]:
    """POST all tiles as base64 PNGs in one request → predictions. TargetError where the server does not answer so."""
    from urllib.error import HTTPError
    from urllib.request import ProxyHandler, Request, build_opener

    body = json.dumps({"tiles": [base64.b64encode(tile.png).decode() for tile in pictures]}).encode()
    request = Request(f"{url}/predict", body, {"Content-Type": "application/json"})  # noqa: S310 - our own child's URL
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=30) as answer:
            predictions: list[dict[str, Any]] = json.load(answer)["predictions"]
    except HTTPError as error:
        raise TargetError(f"{url}/predict answers {error.code}: {error.read(500).decode(errors='replace')}") from error
    except OSError as error:
        raise TargetError(f"{url}/predict does not answer: {error}") from error
    return predictions


def _compare(urls: tuple[str, str], bundle: Path, chosen: DemoOptions, line: show.Progress) -> Comparison:
    import asyncio

    from onbudget.engine.bundle import read_metadata
    from onbudget.prove.compare import compare, open_side
    from onbudget.prove.load import new_loop
    from onbudget.prove.payloads import Shape, from_pictures

    metadata = read_metadata(bundle)
    assert metadata is not None
    assert metadata.recipe is not None  # it ships with us
    shape = Shape(metadata.field, metadata.recipe.shape, metadata.recipe.input_dtype)
    items = from_pictures(bundle.parent / "tiles", "json", shape)

    async def run() -> Comparison:
        sides = (await open_side(OURS, urls[0], items, metrics=True), await open_side(NAIVE, urls[1], items))
        return await compare(sides, chosen.seconds, chosen.p95, line.update)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(run())


# ---- telling --------------------------------------------------------------------------------------------------------


def _tell_answers(pictures: tuple[Tile, ...], answers: list[dict[str, Any]]) -> None:
    rows = [
        (tile.name, tile.truth, answer["label"], f"{answer['confidence']:.1%}")
        for tile, answer in zip(pictures, answers, strict=True)
    ]
    show.table("held-out satellite tiles, over HTTP", ("tile", "it shows", "answer", "confidence"), rows)
    right = sum(tile.truth == answer["label"] for tile, answer in zip(pictures, answers, strict=True))
    show.say(f"{right} of {len(pictures)} right\n")


COLUMNS = ("server", "load", "offered", "p50", "p95", "in budget", "mean batch")


def _tell_comparison(found: Comparison, budget_s: float, pinned: bool, words: str) -> None:
    where = "servers on one core, load from another" if pinned else "servers and load share all cores"
    rows = [_cells(row, budget_s) for row in found.rows()]
    show.table(f"Poisson arrivals, budget p95 ≤ {units.show_seconds(budget_s)}; {where}", COLUMNS, rows)
    show.say(peak_words(found))
    if any(row.rising() for row in found.rows()):
        show.say("↑ was still rising when its window ended: the longer the load, the later the answers.")
    for row in found.rows():
        if row.refused():
            show.say(
                f"{row.side.name}, {row.load}: {_percent(row.refused())} refused at once (429); they count as missed."
            )
    if slipped := next((why for why in (row.slipped(budget_s) for row in found.rows()) if why), ""):
        show.note(f"note: this machine was busy: {slipped}")
    show.say(f"\n{words}")


def _cells(row: Row, budget_s: float) -> tuple[str, ...]:
    spread, mark, batch = row.spread(), " ↑" if row.rising() else "", row.batch()
    share = row.share(budget_s)
    return (
        row.side.name,
        row.load,
        f"{row.rate:.0f}/s",
        _time(spread.p50) + mark,
        _time(spread.p95) + mark,
        _percent(share),
        "1 (never batches)" if batch is None else f"{batch:.1f}",
    )


def _time(seconds: float) -> str:
    return units.show_seconds(seconds) if math.isfinite(seconds) else "no answer"


def _percent(share: float) -> str:
    """Rounded so that only all is 100 % and only none is 0 %."""
    return f"{share:.0%}" if share in (0, 1) else f"{min(0.999, max(0.001, share)):.1%}"


def peak_words(found: Comparison) -> str:
    """Where the peak comes from, in a line."""
    rate, speeds = found.peak[0].rate, found.flat_out
    told = "Flat out they answer " + " and ".join(f"{speed:.0f}/s ({name})" for name, speed in speeds.items())
    if rate > min(speeds.values()):
        return f"{told}: the peak is more than the slower one can do, and less than the faster one can."
    return f"{told}: too alike here for a load that only one of them could bear."


def verdict(found: Comparison, budget_s: float) -> str:
    """The comparison in a sentence, favourable or not."""
    ours, naive = found.peak
    void = ours.void(budget_s) or naive.void(budget_s)
    if void:
        return f"No verdict, since other programs disturbed the measurement: {void}. Close some, and try again."
    words = {"met": "holds {}", "missed": "misses {}", "undecided": "is too close to {} to say"}
    held, other = ours.judge(budget_s).word, naive.judge(budget_s).word
    told = [
        f"At {ours.rate:.0f} requests/s {OURS} {words[held].format('the budget')}: {_percent(ours.share(budget_s))} of "
        f"them were answered within {units.show_seconds(budget_s)}; the service by hand {words[other].format('it')}: "
        f"{_percent(naive.share(budget_s))}."
    ]
    if held == "undecided":
        told.append("The late ones came in a crowd: a longer load decides it, with --seconds 20.")
    elif held == "missed":
        told.append("That is not what onbudget promises: is this machine busy? Try again, or with --p95 50ms.")
    elif other == "met":
        told.append("At this rate there is nothing to choose between them.")
    return " ".join(told)


def _as_json(
    pictures: tuple[Tile, ...],
    answers: list[dict[str, Any]],
    found: Comparison,
    chosen: DemoOptions,
    words: str,
) -> dict[str, Any]:
    from onbudget.engine.machine import facts

    budget = chosen.p95
    return {
        "schema": 1,
        "kind": "demo",
        "tiles": [
            {"tile": tile.name, "truth": tile.truth, **answer} for tile, answer in zip(pictures, answers, strict=True)
        ],
        "budget_ms": budget * 1000,
        "flat_out_per_s": {name: round(speed, 1) for name, speed in found.flat_out.items()},
        "rows": [_row_json(row, budget) for row in found.rows()],
        "verdict": words,
        "machine": facts(),
    }


def _row_json(row: Row, budget_s: float) -> dict[str, Any]:
    spread, batch = row.spread(), row.batch()
    return {
        "server": row.side.name,
        "load": row.load,
        "offered_per_s": round(row.rate, 1),
        "requests": len(row.latency()),
        "p50_ms": round(spread.p50 * 1000, 3) if math.isfinite(spread.p50) else None,
        "p95_ms": round(spread.p95 * 1000, 3) if math.isfinite(spread.p95) else None,
        "still_rising": row.rising(),
        "in_budget": round(row.share(budget_s), 4),
        "refused": round(row.refused(), 4),
        "mean_batch": 1.0 if batch is None else round(batch, 2),
        "budget": row.judge(budget_s).word,
        "slipped": row.slipped(budget_s),
        "void": row.void(budget_s),
    }


def _stay_up(ours: Server, url: str, folder: Path) -> None:
    """Leave the server to the user until Ctrl-C."""
    picture = sorted(folder.glob("*.png"))[0]
    show.note(f"\nThe server is still up: {url}")
    show.note(f"  curl -F file=@{picture} {url}/predict")
    show.note(f"  {url}/docs    stop: Ctrl-C")
    try:
        code = ours.wait()
    except KeyboardInterrupt:
        show.note("stopped")
        return
    raise TargetError(f"the server ended by itself, with exit code {code}: {' '.join(ours.said.split()[-60:])}")
