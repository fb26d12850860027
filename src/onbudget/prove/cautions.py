"""What a run itself gives to doubt it by: sentences beside its figures, the graver ones marked."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterator
from urllib.parse import urlsplit

from onbudget.core.summary import LATE_SEND_S
from onbudget.core.units import show_seconds
from onbudget.prove.load import Run

_TAIL = 10  # values beyond a percentile, below which it is one request's story
_STARVED = 0.05  # of its time in which the load test wanted a CPU and got none

Caution = tuple[str, bool]
"""A sentence, and whether it puts the figures in doubt."""


def cautions(run: Run) -> Iterator[Caution]:
    """What to know before believing this run."""
    header, ending, told = run.header, run.ending, run.summary()
    if told.void:
        yield f"void: {told.void}", True
    if told.word == "unsteady":
        yield "latency moved all through the run: any percentile would only tell how long it lasted", True
    if not told.offered:
        yield "no request was judged", True
    elif told.p95_range is None:
        yield f"only {told.offered} requests were judged: too few to say how far their p95 can be trusted", True
    elif told.p95_range.high == math.inf and math.isfinite(told.latency.p95):
        yield f"{told.offered:,} requests in crowds are too few to bound the p95 from above", True
    if told.verdict is not None and told.verdict.word == "undecided" and told.verdict.more:
        yield f"about {told.verdict.more:,} more requests would decide it (a longer --duration)", False
    if told.offered >= _TAIL and told.offered * 0.01 < _TAIL:
        yield f"p99 rests on {math.ceil(told.offered * 0.01)} of {told.offered:,} requests", False
    if ending.partial:
        yield "the run was stopped early, or its record is cut short: what is told is of its first part", True
    if told.late_sends:
        share = told.late_sends / told.offered
        words = (
            f"{told.late_sends:,} requests ({share:.2%}) were sent over {show_seconds(LATE_SEND_S)} late by the load"
        )
        yield f"{words} test itself; its own lag is {show_seconds(told.lag.p99)} at p99", bool(told.void)
    if ending.starved is not None and ending.starved > _STARVED:
        yield f"the load test wanted a CPU {ending.starved:.0%} of the time and got none", True
    if _here(header.target):
        yield "server and load test shared a machine: what one took of its cores the other lacked", False
    if not header.warmup_s:
        yield "there was no warm-up: the first answers count", False
    if header.p95_s is None:
        yield "no budget was given (--p95): nothing was judged", False
    for note in (*told.notes, *_machine_notes(run)):
        yield note, False


def _machine_notes(run: Run) -> Iterator[str]:
    found = run.header.machine.get("notes")
    if isinstance(found, list):
        yield from (str(note) for note in found)
    stolen = run.header.machine.get("steal_share_since_boot")
    if isinstance(stolen, float) and stolen > 0.01:
        yield f"other guests of its host have taken {stolen:.1%} of this machine's time since it booted"


def _here(target: str) -> bool:
    try:
        host = urlsplit(target).hostname or ""
    except ValueError:
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
