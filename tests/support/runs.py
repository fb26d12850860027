"""Runs of load tests made up of numbers, for what judges and shows them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from onbudget.core.records import Ending, Header, Hits, Outcome
from onbudget.prove.load import Run

HEADER = Header(
    command="onbudget load 127.0.0.1:8000 --rate 100/s --p95 20ms",
    target="http://127.0.0.1:8000/predict",
    arrivals="poisson",
    rate=100.0,
    seed=7,
    warmup_s=1.0,
    duration_s=10.0,
    timeout_s=10.0,
    connections=512,
    p95_s=0.02,
    payload={"count": 64, "format": "json", "source": "random", "sha256": "beef" * 16},
    model={"name": "tiles", "sha256": "feed" * 16},
    machine={"hash": "cafe", "cpu": "Good CPU", "cores": 2.0, "system": "Debian", "notes": ["a machine's note"]},
    started="2026-01-02T03:04:05+00:00",
    made_by="onbudget 9.9",
    hash="f00d",
)
OUTCOMES = (Outcome(0, "pending"), Outcome(200), Outcome(429, "queue full"), Outcome(500), Outcome(0, "timed out"))
ENDING = Ending(seconds=11.0, connections=3, batches={"runs": 8, "items": 20, "sizes": [[1, 1, 2], [3, 4, 6]]})


def made(
    latency: float = 0.01,
    *,
    count: int = 1100,
    seed: int = 0,
    refused: int = 0,
    silent: int = 0,
    ending: Ending = ENDING,
    **header: Any,
) -> Run:
    """`count` requests evenly over 11 s, of about `latency` (exponential above half of it) by `seed`.

    So many of the judged ones are refused or never answered, evenly spread. `header` replaces fields of HEADER.
    """
    due = (np.arange(count) + 0.5) / (count / 11)
    done = latency * (0.5 + 0.1 * np.random.default_rng(seed).standard_exponential(count))
    outcome = np.ones(count, np.int16)
    for code, many in ((2, refused), (4, silent)):
        places = count // 10 + code + np.arange(many) * ((count - count // 10 - 10) // max(1, many))
        outcome[places] = code
        done[places] = 0.001 if code == 2 else math.nan
    lag = np.full(count, 0.00005)
    told = dataclasses.replace(HEADER, **header)
    return Run(told, Hits(due, lag, lag, done, outcome, OUTCOMES), ending)
