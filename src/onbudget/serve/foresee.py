"""The limit rate, predicted in a process of its own: a thread would share the interpreter's lock with every answer.

Beside such a thread a round of the event loop took up to 0.19 s (benchmarks/bench_foresee.py). So `/status` starts
`python -m onbudget.serve.foresee`, the least urgent of all processes, with the forecast as JSON on stdin; it prints the
rate.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from typing import Any

from onbudget.core.cost import Cost
from onbudget.core.forecast import Forecast
from onbudget.core.overheads import Overheads
from onbudget.core.plan import Configuration

LEAST_URGENT = 19
TIMEOUT_S = 120.0  # of a core that a busy server leaves nothing of


def limit_rate(forecast: Forecast) -> float:
    """`forecast.quick_limit_rate()`, from a child; RuntimeError with its last words where it fails."""
    asked = json.dumps(told(forecast))
    command = [sys.executable, "-P", "-m", "onbudget.serve.foresee"]  # -P: no module of the current folder
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)  # noqa: S603 - our own interpreter and our own module
    if done.returncode:
        raise RuntimeError(f"the forecast's process ended with {done.returncode}: {done.stderr[-500:]}")
    return float(done.stdout)


def told(forecast: Forecast) -> dict[str, Any]:
    """A forecast as JSON's values."""
    return {
        "cost": forecast.cost.to_dict(),
        "overheads": asdict(forecast.overheads),
        "configuration": asdict(forecast.configuration),
        **{name: getattr(forecast, name) for name in ("budget_s", "inline", "demote", "cores")},
    }


def read(values: dict[str, Any]) -> Forecast:
    """What `told` gave."""
    return Forecast(
        **values
        | {
            "cost": Cost.from_dict(values["cost"]),
            "overheads": Overheads(**values["overheads"]),
            "configuration": Configuration(**values["configuration"]),
        }
    )


if __name__ == "__main__":
    if hasattr(os, "nice"):
        os.nice(LEAST_URGENT)
    sys.stdout.write(repr(read(json.load(sys.stdin)).quick_limit_rate()))
