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


class Foresight:
    """Asks the child, one at a time; `limit_rate` blocks its thread, `stop` may come from another."""

    def __init__(self) -> None:
        self.stopped = False
        self._child: subprocess.Popen[str] | None = None

    def limit_rate(self, forecast: Forecast) -> float:
        """`forecast.quick_limit_rate()`, from a child; RuntimeError, with its last words, where it fails or ends."""
        asked = json.dumps(told(forecast))
        pipe = subprocess.PIPE
        with subprocess.Popen(
            [sys.executable, "-P", "-m", "onbudget.serve.foresee"],  # -P: no module of the current folder
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            start_new_session=True,  # Ctrl-C is ours
        ) as child:
            self._child = child
            if self.stopped:
                child.kill()
            try:
                answer, said = child.communicate(asked, TIMEOUT_S)
            except subprocess.TimeoutExpired:
                child.kill()
                raise
        if child.returncode:
            raise RuntimeError(f"the forecast's process ended with {child.returncode}: {said[-500:]}")
        return float(answer)

    def stop(self) -> None:
        """End it: a server that stops waits for nobody who only predicts."""
        self.stopped = True
        if self._child is not None and self._child.poll() is None:
            self._child.kill()


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
