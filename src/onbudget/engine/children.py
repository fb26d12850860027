"""Servers as child processes for a command that needs some: on cores of their own, and never left behind.

They are ended when the block is left in any way. On Linux the kernel ends them too where this process is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import TracebackType

from onbudget.core.errors import TargetError, UsageError

START_S = 60.0  # a cold disk and a busy machine; 1 s is usual
STOP_S = 10.0
_PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>


class Server:
    """`python -m …` that says `http://host:port` on stderr once it listens; a context manager.

    `cores` are the CPUs that it may use, all of this process's where there are none or the system has no such thing.
    """

    def __init__(self, name: str, arguments: Sequence[str], cores: Collection[int] = ()) -> None:
        self.name = name
        self._folder = tempfile.TemporaryDirectory(prefix="onbudget-", ignore_cleanup_errors=True)
        self._said = Path(self._folder.name, "said")
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and our own modules
                [sys.executable, "-P", "-m", *arguments],  # -P: no module of the current folder comes between
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=_environment(),
                start_new_session=True,  # Ctrl-C is ours to pass on
                preexec_fn=_end_with_parent(),
            )
        if cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(self._process.pid, cores)  # before it has counted its CPUs

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    @property
    def said(self) -> str:
        """All that it wrote so far."""
        return self._said.read_bytes().decode(errors="replace")

    def url(self) -> str:
        """Wait until it listens → its address. TargetError where it ends before, with its last words."""
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            ended = self._process.poll()
            for line in self.said.splitlines(keepends=True):
                if line.startswith("http://") and line.endswith("\n"):
                    return line.split()[0]
            if ended is not None:
                last = " ".join(self.said.split()[-60:]) or "nothing"
                raise TargetError(f"{self.name} ended with exit code {ended} before it listened; it said: {last}")
            time.sleep(0.02)
        raise TargetError(f"{self.name} does not listen after {START_S:g} s; is this machine very busy?")

    def wait(self) -> int:
        """Wait until it ends by itself → its exit code."""
        return self._process.wait()

    def stop(self) -> None:
        """End it, gently first; once is enough."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._folder.cleanup()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _environment() -> dict[str, str]:
    """Ours without our settings: a child is told all of its own, or it would not be the server that was asked for."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("ONBUDGET_")}
    return ours | {"ONBUDGET_CONFIG": os.devnull}  # nor does a file in this folder count


def _end_with_parent() -> Callable[[], object] | None:
    if sys.platform != "linux":
        return None
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def split_cores(count: int = 1) -> tuple[frozenset[int], frozenset[int]]:
    """(`count` CPUs for a server, the others for who asks it); both empty where no other is left, or none is told."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) <= count:
        return frozenset(), frozenset()
    return frozenset(cores[-count:]), frozenset(cores[:-count])


def asked_cores(count: int) -> tuple[frozenset[int], frozenset[int]]:
    """`split_cores` for a `--cores` that a person gave, 0 being all; UsageError where so many can't be set apart."""
    from onbudget.engine.machine import Machine

    if not count or count == (allowed := Machine.read().threads()):
        return frozenset(), frozenset()
    if not hasattr(os, "sched_setaffinity"):
        raise UsageError(f"--cores {count}: {sys.platform} does not let a program choose its cores; leave it out")
    server, others = split_cores(count)
    if not server:
        raise UsageError(f"--cores {count}: this process may use {allowed}, so give fewer")
    return server, others


@contextlib.contextmanager
def on_cores(cores: Collection[int]) -> Iterator[None]:
    """This thread runs on these CPUs inside the block; nothing happens where there are none."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def signals_as_ctrl_c() -> Iterator[None]:
    """SIGTERM, and SIGHUP of a closed terminal, end this process as Ctrl-C does: blocks are left, children ended."""
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
