"""What freezing garbage after the warm-up saves: a full collection in a served process, before and after, in one run.

    python benchmarks/bench_gc.py [-o benchmarks/results/NAME.json]

A collection stops every thread that wants the interpreter. Medians of 20 passes in a process that serves the embedded
bundle.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from onbudget.engine.embedded import bundle_path
from onbudget.serve.server import tame
from onbudget.serve.service import Service
from onbudget.serve.settings import Settings


def passes() -> float:
    taken = []
    for _ in range(20):
        began = time.perf_counter()
        gc.collect()
        taken.append(time.perf_counter() - began)
    return median(taken) * 1e3


async def measured() -> dict[str, object]:
    service = Service(bundle_path(), Settings(p95=0.025))
    await service.start()
    objects, before = len(gc.get_objects()), passes()
    began = time.perf_counter()
    tame()
    once = time.perf_counter() - began
    after = passes()
    await service.stop()
    return {
        "what": "a full garbage collection in a process that serves, ms, median of 20",
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "objects": objects,
        "before_ms": round(before, 4),
        "after_ms": round(after, 4),
        "freezing_itself_ms": round(once * 1e3, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    record = json.dumps(asyncio.run(measured()), indent=1)
    print(record)
    if options.output:
        partial = options.output.with_suffix(".partial")
        partial.write_text(record + "\n")
        partial.replace(options.output)


if __name__ == "__main__":
    main()
