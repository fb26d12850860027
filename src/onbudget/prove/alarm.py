"""Waking at a moment, as exactly as the system can without burning a core.

The event loop's own timers count whole milliseconds, too coarse for a load test's pace. Linux has timers of nanoseconds
that are files (timerfd), which the loop can wait for like for a socket. Measured at 1,000 requests a second: as late as
spinning (p50 5 µs) at a tenth of its CPU, and on a busy machine four times less late, because who sleeps is let in
first and who spins has used up its turn. Elsewhere: sleep in milliseconds while the moment is far, spin when near.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import Protocol

from onbudget.prove.arrivals import pause

clock = time.monotonic

_CLOCK_MONOTONIC, _ABSOLUTE = 1, 1  # of <time.h> and <sys/timerfd.h>
_FILE_EARLY_S, _FILE_SHORTEST_S = 60e-6, 60e-6
_LOOP_EARLY_S, _LOOP_SHORTEST_S = 1.5e-3, 1e-3


class Alarm(Protocol):
    """Calls back near a moment, early rather than late; one moment at a time."""

    def set(self, moment: float) -> None:
        """Ring at `moment` (monotonic seconds), or a little before."""

    def close(self) -> None:
        """Never ring again."""


def make_alarm(loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> Alarm:
    """The most exact one of this system."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError, ImportError):  # no libc to ask: the loop's own timers do
            return FileAlarm(loop, ring)
    return LoopAlarm(loop, ring)


class LoopAlarm:
    """Anywhere: the loop's timer while the moment is far, one turn of the loop after another when it is near."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._handle: asyncio.Handle | None = None

    def set(self, moment: float) -> None:
        self.close()
        wait = pause(moment - clock(), _LOOP_EARLY_S, _LOOP_SHORTEST_S)
        self._handle = self._loop.call_later(wait, self._ring) if wait else self._loop.call_soon(self._ring)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()


class FileAlarm:
    """Linux: a timerfd that the loop waits for. OSError or AttributeError where there is none to be had."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        import ctypes

        if ctypes.sizeof(ctypes.c_long) != 8:
            raise OSError("the C library's time_t may not be a long here")
        library = ctypes.CDLL(None, use_errno=True)
        self._settime = library.timerfd_settime
        self._file: int = library.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        self._spec = (ctypes.c_long * 4)()  # struct itimerspec: interval, value; each seconds, nanoseconds
        self._loop = loop
        self._ring = ring
        self._handle: asyncio.Handle | None = None
        loop.add_reader(self._file, self._rang)

    def set(self, moment: float) -> None:
        if self._handle is not None:
            self._handle.cancel()  # else a timer that rang meanwhile would leave two of them going round
        wait = pause(moment - clock(), _FILE_EARLY_S, _FILE_SHORTEST_S)
        if not wait:
            self._handle = self._loop.call_soon(self._ring)
            return
        at = moment - _FILE_EARLY_S
        self._spec[2] = int(at)
        self._spec[3] = int((at - int(at)) * 1e9)
        self._settime(self._file, _ABSOLUTE, self._spec, None)

    def _rang(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it was set anew meanwhile
            os.read(self._file, 8)
        self._ring()

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        if self._file >= 0:
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = -1
