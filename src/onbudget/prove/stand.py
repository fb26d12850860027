"""Candidates' servers as child processes, side by side, and the load that they are judged by.

They are all up at once, and only one of them is loaded at a time: so a machine that drifts is as fast for all of them.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from onbudget.core.budget import Budget, p95_interval
from onbudget.core.confidence import Interval
from onbudget.core.cost import Cost
from onbudget.core.errors import TargetError
from onbudget.core.histogram import percentile
from onbudget.core.overheads import Overheads
from onbudget.core.plan import Configuration, Trial
from onbudget.core.traffic import Floats
from onbudget.engine.children import Server, on_cores
from onbudget.prove.load import LoadOptions, Run, run_load

SETTLE_S = 0.4  # of each load test: sent, and not judged
GIVE_UP = 20.0  # budgets: how long an answer is waited for, and at least a second
IDLE_S = 5.0  # how long a server may take to work off what nobody waits for any more
CROWDED = 0.1  # of the server's cores: from here on the load test itself slows the server


@dataclass(frozen=True, slots=True)
class Payload:
    """What is sent: the options of `onbudget load` that say so."""

    data: str = ""
    format: str = "json"
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Learnt:
    """What a server in service tells: overheads, and how many times the profile's its runs take."""

    overheads: Overheads
    factor: float


class Stand:
    """A context manager; `cores` are the servers' CPUs and `ours` those of the load, both empty where they share all.

    `count` is how many cores the servers have.
    """

    def __init__(
        self, budget_s: float, payload: Payload, cores: frozenset[int], ours: frozenset[int], count: float
    ) -> None:
        self.budget_s, self.payload = budget_s, payload
        self.cores, self.ours, self.count = cores, ours, count
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Stand:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def close(self) -> None:
        """End all servers."""
        self._stack.close()

    def serve(self, model: Path, configuration: Configuration) -> str:
        """Start a server → its address. TargetError with its last words where it does not start."""
        flags = [f"--{name.replace('_', '-')}={getattr(configuration, name)}" for name in configuration.__slots__]
        arguments = ("onbudget", "serve", str(model), "--port=0", f"--p95={self.budget_s}s", *flags)
        return self._stack.enter_context(Server(f"{model.name}, {configuration}", arguments, self.cores)).url()

    def load(self, url: str, seconds: float, *, rate: float, seed: int = 0) -> Run:
        """Offer `rate` a second for so long, after a moment that is not judged; `seed` is added to the payload's."""
        seed += self.payload.seed
        return self._load(LoadOptions(url=url, rate=rate, duration=seconds, warmup=SETTLE_S, seed=seed))

    def replay(self, url: str, moments: Floats) -> Run:
        """Send requests at these moments, in seconds from the start."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "trace.txt"
            file.write_text("".join(f"{moment:.6f}\n" for moment in moments))
            return self._load(LoadOptions(url=url, trace=str(file), warmup=0.0, seed=self.payload.seed))

    def _load(self, options: LoadOptions) -> Run:
        options = replace(
            options,
            p95=self.budget_s,
            data=self.payload.data,
            format=self.payload.format,
            timeout=max(1.0, GIVE_UP * self.budget_s),
        )
        with on_cores(self.ours):
            run = run_load(options)
        if run.ending.partial:
            raise KeyboardInterrupt
        self._drained(options.url)
        return run

    def trial(self, runs: Sequence[Run]) -> Trial:
        """What one load test says, or several of the same load together."""
        hits = [run.hits.after(run.header.warmup_s) for run in runs]
        latency = np.concatenate([one.latency() for one in hits])
        told = runs[0].summary()
        word = Budget(self.budget_s).judge(latency).word if len(runs) > 1 else told.word
        spread = p95_interval(latency) or Interval(0.0, float("inf"))
        return Trial(
            rate=runs[0].header.rate,
            offered=len(latency),
            in_budget=float((latency <= self.budget_s).mean()),
            refused=float(np.isinf(latency).mean()),
            p95_s=percentile(latency, 95),
            low_s=spread.low,
            high_s=spread.high,
            word=word,
            doubt=next((why for why in map(self._doubt, runs) if why), ""),
        )

    def _doubt(self, run: Run) -> str:
        """Why a load test may say less of the server than of itself."""
        if void := run.summary().void:
            return void
        used = run.ending.cpu_s / max(run.ending.seconds, 1e-9)
        if not self.ours and used > CROWDED * self.count:
            return (
                f"the load test itself used {used:.2f} of the {self.count:g} cores that the server has; with --cores "
                "fewer it gets its own"
            )
        return ""

    def learn(self, url: str, profile: Cost) -> Learnt | None:
        """What a server that has been loaded tells at /status; None where it was too few requests to tell.

        `profile` is what its runs were timed at before.
        """
        told = _get(url, "/status")
        over, cost = told["overheads"], told["cost"]
        if over is None or cost is None:
            return None
        scale = cost["cpu_factor"] * cost["wait_factor"]
        factors = [ms / 1e3 / scale / profile.seconds(int(batch)) for batch, ms in cost["run_ms"].items()]
        overheads = Overheads(*(over[f"{name}_ms"] / 1e3 for name in ("accept", "refuse", "batch")))
        return Learnt(overheads, over["run_factor"] * median(factors))

    def _drained(self, url: str) -> None:
        """Wait until it has nothing in flight: the next load test shall not pay for this one."""
        end = time.monotonic() + IDLE_S
        while _get(url, "/status")["queue"]["in_flight_items"] and time.monotonic() < end:
            time.sleep(0.05)


def _get(url: str, path: str) -> dict[str, Any]:
    """JSON from a server of ours; TargetError where it does not answer."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        told: dict[str, Any] = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise TargetError(f"{url}{path} does not answer: {error}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise TargetError(f"{url}{path} answers {answer.status}: {told.get('detail', told)}")
    return told
