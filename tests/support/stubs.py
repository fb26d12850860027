"""A server that misbehaves as a process, and short load tests against it."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onbudget.core.records import Outcome
from onbudget.prove.load import LoadOptions, Progress, Run, run_load

STUB = Path(__file__).parents[1] / "e2e" / "stub_server.py"
Serve = Callable[..., "Stub"]


@dataclasses.dataclass
class Stub:
    """A stub server as a process."""

    process: subprocess.Popen[str]
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/predict"

    def pause(self, seconds: float) -> None:
        """SIGSTOP it, and SIGCONT it after so long."""
        os.kill(self.process.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self.process.pid, signal.SIGCONT)


def load(stub: Stub, on_progress: Callable[[Progress], None] | None = None, **given: Any) -> Run:
    """A short run at 100/s, without warm-up."""
    usual = {"url": stub.url, "rate": 100.0, "duration": 0.6, "warmup": 0.0, "timeout": 5.0}
    return run_load(LoadOptions(**{**usual, **given}), on_progress)


def outcomes(run: Run) -> Counter[Outcome]:
    return Counter(run.hits.outcomes[i] for i in run.hits.outcome)
