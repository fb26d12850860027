"""The first runs of a model: they warm it, prove that its batch axis is open, and tell what a run costs just now."""

from __future__ import annotations

import time
from statistics import median

from onbudget.core.errors import BundleError
from onbudget.engine.told import told
from onbudget.serve.job import Job

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
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
            try:
                took = job.rehearse(size)
            except Exception as error:  # ONNX Runtime's classes share no base; all mean: it does not run
                made_up = any(None in shape for shape in job.contract.shapes)
                if not first and (made_up or any(port.dtype == "object" for port in job.contract.inputs)):
                    return {}  # made-up sizes and texts are no proof that the model is broken
                ran = f"it runs with {sorted(first)} items but not with {size}" if first else "its first run failed"
                hint = "`onbudget check` says which node, and --max-batch 1 serves it one at a time"
                raise BundleError(f"{ran}: {told(error)}" + (f"; {hint}" if first else "")) from error
            if size in first:
                later.setdefault(size, []).append(took)
            else:
                first[size] = took
