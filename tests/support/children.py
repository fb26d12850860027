"""Real servers as child processes: `onbudget serve` on a free port, ended by SIGTERM."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

_URL = re.compile(r"^(https?(?:\+unix)?://\S+?(?::(\d+))?)\s.*\n", re.MULTILINE)


class Child:
    """A running `onbudget serve`; `url` is its address, `log` what it said on stderr so far."""

    def __init__(self, path: Path | None, *flags: str, folder: Path) -> None:
        self._log = folder / f"serve-{time.monotonic_ns()}.log"
        command = [sys.executable, "-W", "error", "-m", "onbudget", "serve", *([str(path)] if path else []), *flags]
        if "--port" not in flags:
            command += ["--port", "0"]
        with self._log.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def ready(self) -> Child:
        """Wait for the line that says where it listens."""
        end = time.monotonic() + 60
        while (found := _URL.search(self.log)) is None:
            assert self.process.poll() is None, f"the server ended with {self.process.returncode}: {self.log}"
            assert time.monotonic() < end, f"not ready after 60 s: {self.log}"
            time.sleep(0.02)
        self.url = found[1]
        self.port = int(found[2] or 0)
        return self

    def end(self, sig: int = signal.SIGTERM) -> int:
        """Send a signal and wait → the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(sig)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


Start = Callable[..., Child]
