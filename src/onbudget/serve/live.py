"""What a server did lately: figures over the last 10, 60 and 300 seconds, at the price of one record a request.

Rules of this file. It only ever counts up; once a second `roll` keeps a copy of all counts, and a window is what the
counts are now less what they were then. So a request pays for no clock and no window, and reading one disturbs nobody.
One writer: everything is called on the event loop. Times are monotonic seconds, handed in.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onbudget.core.cost import Cost
from onbudget.core.errors import Shed
from onbudget.core.histogram import Histogram, Tally
from onbudget.core.overheads import Spell

if TYPE_CHECKING:
    from onbudget.serve.lanes import Batch

WINDOWS = (10, 60, 300)  # seconds
CELL = 1.0  # seconds between copies


@dataclass(frozen=True, slots=True)
class Counts:
    """All counts of one moment; `failed` are requests by how they ended, answers excepted. CPU in seconds.

    `model` is what the runs would have taken by the curve known at the start.
    """

    at: float
    process_cpu: float
    lanes_cpu: float
    model: float
    accepted: int
    batches: int
    rows: int
    answered: Histogram
    failed: dict[str, int]
    refused: dict[str, int]
    left: dict[str, int]
    demoted: dict[str, int]


class Live:
    """One server's counts, and windows over them; `p95` is the declared budget in seconds."""

    def __init__(self, p95: float | None = None) -> None:
        self.p95 = p95
        self.accepted = 0  # requests that were let in and have ended
        self.lanes_cpu = 0.0  # of the lanes' threads while they worked on batches
        self.cost: Cost | None = None  # of runs, as known at the start
        self.predicted: float | None = None  # requests a second at which p95 reaches the budget, once it is known
        self.steady = 0.0  # from when on the process does nothing but serve
        self._batches = self._rows = 0
        self._model = 0.0
        self._answered = Tally() if p95 is None else Tally(p95)
        self._failed: dict[str, int] = {}
        self._refused: dict[str, int] = {}
        self._left: dict[str, int] = {}
        self.demoted: dict[str, int] = {}  # requests that were sent to the background and have ended, by where
        self._cells: deque[Counts] = deque()

    def request(self, outcome: str, seconds: float) -> None:
        """A request has ended, as `Metrics.request` is told."""
        if outcome == "ok":
            self._answered.record(seconds)
        else:
            self._failed[outcome] = self._failed.get(outcome, 0) + 1

    def refuse(self, reason: str | None) -> None:
        """A request was refused for this reason; None is no refusal. Its end is told to `request` all the same."""
        if reason is not None:
            self._refused[reason] = self._refused.get(reason, 0) + 1

    def demote(self, where: str) -> None:
        """A request has ended that could not be in time and was sent to the background, at the door or in the queue."""
        self.demoted[where] = self.demoted.get(where, 0) + 1

    def batch(self, batch: Batch) -> None:
        """A batch came back from its lane; one that only gave requests up, or that hung, ran no rows."""
        self._left[batch.why] = self._left.get(batch.why, 0) + 1
        self.lanes_cpu += batch.cpu
        if batch.rows:
            self._batches += 1
            self._rows += batch.rows
            if self.cost is not None:
                self._model += self.cost.seconds(batch.rows)

    def fold(self) -> None:
        """Count the answers that were kept for later."""
        self._answered.fold()

    def roll(self, now: float, process_cpu: float) -> None:
        """Keep a copy of the counts, once a second; to be called more often than that."""
        cells = self._cells
        if cells and now - cells[-1].at < CELL:
            return
        cells.append(self.counts(now, process_cpu))
        while len(cells) > 1 and cells[1].at <= now - WINDOWS[-1]:  # the first one begins the longest window
            cells.popleft()

    def counts(self, now: float, process_cpu: float) -> Counts:
        """A copy of everything."""
        return Counts(
            now,
            process_cpu,
            self.lanes_cpu,
            self._model,
            self.accepted,
            self._batches,
            self._rows,
            self._answered.fold().copy(),
            self._failed.copy(),
            self._refused.copy(),
            self._left.copy(),
            self.demoted.copy(),
        )

    @property
    def refused(self) -> int:
        """Requests that were shed, at the door or in the queue."""
        return self._failed.get(Shed.code, 0)

    def windows(self, current: Counts) -> list[dict[str, Any]]:
        """For each of `WINDOWS`, JSON-ready: what happened in it, up to `current`; nothing before the first `roll`."""
        if not self._cells:
            return []
        return [{"window_s": w, **between(self._begin(current.at - w), current, self.p95)} for w in WINDOWS]

    def _begin(self, when: float) -> Counts:
        """The last copy made at `when` or before; else the first that there is."""
        return next((cell for cell in reversed(self._cells) if cell.at <= when), self._cells[0])

    def spells(self, current: Counts) -> list[Spell]:
        """From each copy to the next, over the longest window up to `current`.

        Not the warming that goes on for a moment after the server is ready, until `steady`.
        """
        begin = max(self.steady, current.at - WINDOWS[-1])
        cells = [cell for cell in self._cells if cell.at >= begin]
        return [_spell(then, now) for then, now in itertools.pairwise([*cells, current])]


def _spell(then: Counts, now: Counts) -> Spell:
    lanes = now.lanes_cpu - then.lanes_cpu
    return Spell(
        accepted=now.accepted - then.accepted,
        refused=now.failed.get(Shed.code, 0) - then.failed.get(Shed.code, 0),
        batches=now.batches - then.batches,
        model_s=now.model - then.model,
        lanes_s=lanes,
        other_s=max(0.0, now.process_cpu - then.process_cpu - lanes),
    )


def between(then: Counts, now: Counts, p95: float | None) -> dict[str, Any]:
    """What happened from one moment to the next. Shares are of all requests that ended, however they did."""
    answered = now.answered.since(then.answered)
    failed = _more(then.failed, now.failed)
    offered = answered.count + sum(failed.values())
    batches, rows = now.batches - then.batches, now.rows - then.rows
    in_budget = answered.count if p95 is None else answered.within(p95)
    return {
        "seconds": round(now.at - then.at, 3),
        "offered": offered,
        "answered": answered.count,
        "late": answered.count - in_budget,
        "demoted": sum(_more(then.demoted, now.demoted).values()),
        "latency": _latency(answered),
        "in_budget_share": in_budget / offered if offered and p95 is not None else None,
        "shed_share": failed.get(Shed.code, 0) / offered if offered else None,
        "failed": failed,
        "refused": _more(then.refused, now.refused),
        "batches": batches,
        "mean_batch": rows / batches if batches else None,
        "left": _more(then.left, now.left),
    }


def _latency(answered: Histogram) -> dict[str, Any]:
    """Percentiles of answers in milliseconds, never without the count that they come from."""
    told: dict[str, Any] = {"count": answered.count}
    for name, q in (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99)):
        found = answered.quantile(q)
        told[name] = None if found is None else round(found.value * 1e3, 3)
    return told


def _more(then: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    grown = {key: count - then.get(key, 0) for key, count in now.items()}
    return {key: count for key, count in grown.items() if count}
