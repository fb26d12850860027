"""The shape of a bundle's cost curve: a few timed runs, so that a server start need not measure every size."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from onbudget.core.metadata import Curve
from onbudget.engine.machine import Machine
from onbudget.engine.session import RUNTIME, OrtRunner, example
from onbudget.engine.timing import curve
from onbudget.engine.told import told

SIZES = (1, 2, 4, 8, 16)
BUDGET_S = 0.045  # for runs and their inputs; with reading the machine, bundling takes less than 60 ms longer
clock = time.perf_counter


def timed(runner: OrtRunner, notes: list[str], outputs: Sequence[str] | None, took: float | None) -> Curve | None:
    """Time runs of made-up rows, asking for `outputs` (None: all); None where that tells no shape.

    `took` is what one row was seen to take at most, in seconds (None: it is run once): a model too slow for two sizes
    gets no curve. None too where an axis beside the batch is open, or an input is text: what an item is, nobody knows.
    A run that fails is told in `notes`: made-up rows are no proof against a model.
    """
    for port in runner.inputs:
        if port.dtype in ("", "object") or not port.shape or port.shape[0] is not None or None in port.shape[1:]:
            return None
    rows = {port.name: example(port, 1) for port in runner.inputs}

    def run(size: int) -> float:
        feeds = {name: np.repeat(row, size, axis=0) for name, row in rows.items()}
        began = clock()
        runner.run(feeds, outputs)
        return clock() - began

    try:
        if 2 * (took or run(1)) * sum(SIZES[:2]) > BUDGET_S:
            return None
        points = curve(run, SIZES, BUDGET_S, clock=clock)
    except Exception as error:  # noqa: BLE001 - ONNX Runtime's classes share no base; all mean: it does not run
        notes.append(f"no cost curve, for made-up rows do not run: {told(error)}")
        return None
    if len(points) < 2:
        return None
    rounded = tuple((size, float(f"{seconds:.4g}")) for size, seconds in points.items())
    return Curve(rounded, Machine.read(onnxruntime=RUNTIME).hash())
