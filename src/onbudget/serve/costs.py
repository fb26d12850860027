"""What runs cost at the start of a server: from a curve that is known already and a few fresh runs, or from many runs.

A curve may be known from an earlier start on this machine (the cache, trusted to 30 %) or from the bundle (its shape
only: it may have been made elsewhere). Fresh runs always have the last word.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from onbudget.core.cost import Cost
from onbudget.core.errors import UsageError
from onbudget.core.metadata import Curve
from onbudget.engine.files import write_atomically
from onbudget.serve.job import Job
from onbudget.serve.warm import QUICK_S, quick, warm

LOW, HIGH = 0.77, 1.3  # a curve that fresh runs put outside of this is not the one that was measured
log = logging.getLogger("onbudget")


@dataclass(frozen=True, slots=True)
class Learnt:
    """`cost` is None where nothing could be run; `warmed` are the sizes that were; `source` is where the shape is from.

    `source`: cache, bundle or measured.
    """

    cost: Cost | None
    warmed: tuple[int, ...]
    source: str


def learn(job: Job, warm_up: float, cached: Cost | None, carried: Cost | None) -> Learnt:
    """Scale the first known curve that fits a few fresh runs, or run all sizes for `warm_up` seconds.

    BundleError names a size that fails.
    """
    known = cached or carried
    fresh: dict[int, float] = {}
    if known is not None:
        fresh = quick(job, known, min(QUICK_S, warm_up))
        if not fresh:
            return Learnt(None, (), "measured")
    for curve, source in ((cached, "cache"), (carried, "bundle")):
        if curve is None:
            continue
        factor = curve.scale_of(fresh)
        if _fits(curve if source == "cache" else curve.scaled(factor), fresh):
            return Learnt(curve.scaled(factor), tuple(sorted(fresh)), source)
        log.info("the costs of the %s do not fit this start: %.2f times as long; measuring anew", source, factor)
    costs = warm(job, warm_up)
    return Learnt(Cost.of(costs) if costs else None, tuple(sorted(costs)), "measured")


def _fits(curve: Cost, fresh: Mapping[int, float]) -> bool:
    return all(LOW <= seconds / curve.seconds(batch) <= HIGH for batch, seconds in fresh.items())


@dataclass(frozen=True, slots=True)
class Cache:
    """One model's costs on one machine, kept between starts in a file; `how` is what else they depend on.

    A file that can't be read or written is told in the log and never stops a start.
    """

    path: Path | None  # None: there is no home
    machine: str
    how: Mapping[str, Any]

    @classmethod
    def of(cls, sha256: str, machine: str, how: Mapping[str, Any]) -> Cache:
        """The file's place: under $XDG_CACHE_HOME where that is absolute, as its specification wants, else ~/.cache."""
        root = Path(os.environ.get("XDG_CACHE_HOME", ""))
        if not root.is_absolute():
            try:
                root = Path.home() / ".cache"
            except RuntimeError:  # a container's user without a name
                return cls(None, machine, how)
        return cls(root / "onbudget" / "costs" / f"{sha256}-{machine}.json", machine, how)

    def read(self) -> Cost | None:
        """What an earlier start measured in the same way; None where there is nothing to trust."""
        if self.path is None:
            return None
        try:
            told = json.loads(self.path.read_bytes())
            if not isinstance(told, dict):
                raise ValueError("not a JSON object")
            curve = Curve.from_dict(told)
        except FileNotFoundError:
            log.debug("no costs are kept in %s yet", self.path)
            return None
        except (OSError, ValueError) as error:
            log.warning("the costs kept in %s can't be read, so they are measured anew: %s", self.path, error)
            return None
        if curve.machine != self.machine or told.get("how") != self.how:
            log.debug("the costs kept in %s were measured otherwise", self.path)
            return None
        return Cost(curve.points)

    def write(self, cost: Cost) -> None:
        """Keep `cost`, with the date."""
        if self.path is None:
            log.debug("costs are not kept: there is no home folder and no XDG_CACHE_HOME")
            return
        curve = Curve(cost.points, self.machine).to_dict()
        told = {**curve, "how": self.how, "measured": datetime.now(UTC).isoformat(timespec="seconds")}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, json.dumps(told).encode())
        except (OSError, UsageError) as error:  # UsageError is write_atomically's word for an OSError
            log.warning("costs can't be kept in %s, so the next start measures anew: %s", self.path, error)
