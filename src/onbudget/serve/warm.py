"""The first runs of a model: they warm it, prove that its batch axis is open, and tell what a run costs just now."""

from __future__ import annotations

import time
from collections.abc import Collection
from statistics import median

from onbudget.core.cost import Cost
from onbudget.core.errors import BundleError
from onbudget.engine.told import told
from onbudget.serve.job import Job

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
QUICK_S = 0.1  # seconds of runs for scaling a curve that is known already
REPEATS = 5
clock = time.perf_counter


def warm(job: Job, budget: float) -> dict[int, float]:
    """Run batch 1 and the largest, then what `budget` seconds allow of the sizes between → seconds a run by size.

    Empty where a made-up item can't be run, because its open axes or its text were guessed. BundleError names a size
    that fails.
    """
    largest = job.max_batch
    between = [] if job.run_rows else [n for n in SIZES if 1 < n < largest]
    order = [*dict.fromkeys((1, largest)), *between]
    first: dict[int, float] = {}
    later: dict[int, list[float]] = {}
    end = clock() + budget
    while True:
        for size in order:
            if clock() > end and len(first) >= min(2, len(order)):
                return {size: median(later.get(size, [seconds])) for size, seconds in first.items()}
            took = _ran(job, size, first)
            if took is None:
                return {}
            if size in first:
                later.setdefault(size, []).append(took)
            else:
                first[size] = took


def quick(job: Job, shape: Cost, budget: float = QUICK_S) -> dict[int, float]:
    """Batch 1 and the largest that `shape`, once scaled, says fits in `budget` seconds of runs → seconds a run by size.

    The first run of a size allocates, so it counts only for a batch of 1 that `budget` does not pay for twice. Empty
    and BundleError as in `warm`.
    """
    found: dict[int, float] = {}
    spent, size = 0.0, 1
    while size and size not in found:
        took = _ran(job, size, found)
        if took is None:
            return {}
        spent += took
        later: list[float] = []
        while len(later) < REPEATS and spent + took <= budget:
            took = _ran(job, size, found)
            if took is None:
                return {}
            later.append(took)
            spent += took
        if not later and found:
            break  # an allocation is no measure of a run
        found[size] = median(later or [took])
        if len(found) > 1:
            break
        # A quarter of what is left: its first run may take three times as long as the one that is timed.
        size = shape.largest_within((budget - spent) / 4 * shape.seconds(1) / found[1], job.max_batch)
    return found


def _ran(job: Job, size: int, done: Collection[int]) -> float | None:
    """Seconds of one run; None where it failed because what it was fed was made up; BundleError where it failed."""
    try:
        return job.rehearse(size)
    except Exception as error:  # ONNX Runtime's classes share no base; all mean: it does not run
        made_up = any(None in shape for shape in job.contract.shapes)
        if not done and (made_up or any(port.dtype == "object" for port in job.contract.inputs)):
            return None  # made-up sizes and texts are no proof that the model is broken
        ran = f"it runs with {sorted(done)} items but not with {size}" if done else "its first run failed"
        hint = "`onbudget check` says which node, and --max-batch 1 serves it one at a time"
        raise BundleError(f"{ran}: {told(error)}" + (f"; {hint}" if done else "")) from error
