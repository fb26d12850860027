"""Makes this interpreter, and each one that it starts, one of another system: `ELSEWHERE` is `darwin` or `win32`.

Python imports it at its start where this folder is on PYTHONPATH. What that system lacks is taken away: modules can't
be imported, functions are not there, and /proc and /sys are not read. What the standard library and others decide by
`sys.platform` when they are imported stays Linux's, since their own code for the other system can't run here: they
are imported first.
"""

import asyncio
import ctypes
import functools
import os
import pathlib
import signal
import socket
import subprocess
import sys
import urllib.request

import click
import fastapi
import httptools
import onnxruntime
import PIL.Image
import uvicorn
import uvicorn.protocols.http.httptools_impl

_FIRST = (asyncio, click, fastapi, httptools, onnxruntime, PIL.Image, subprocess, urllib.request, uvicorn)
_LACKS = {
    "darwin": ((), ("sched_getaffinity", "sched_setaffinity", "sched_setscheduler", "posix_fadvise", "setresuid")),
    "win32": (
        ("uvloop", "fcntl", "resource", "termios", "pwd", "grp"),
        (
            *("sched_getaffinity", "sched_setaffinity", "sched_setscheduler", "pread", "pwrite", "nice", "getpriority"),
            *("setpriority", "fork", "getuid", "geteuid", "getpgid", "killpg", "setsid", "uname", "getloadavg"),
            *("sysconf", "register_at_fork", "mkfifo", "chown", "fchmod", "fchown", "statvfs", "O_CLOEXEC"),
        ),
    ),
}


class _Gone:
    """A finder that knows only what is not there."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _without_kernel_files() -> None:
    """Linux's files are not there: opening one is as opening any other missing file."""
    opened = pathlib.Path.open

    def elsewhere(self: pathlib.Path, *args: object, **given: object) -> object:
        if self.as_posix().startswith(("/proc", "/sys/")):
            raise FileNotFoundError(2, "No such file or directory", str(self))
        return opened(self, *args, **given)

    pathlib.Path.open = elsewhere


def _become(system: str) -> None:
    modules, functions = _LACKS[system]
    sys.meta_path.insert(0, _Gone(modules))
    for name in modules:
        sys.modules.pop(name, None)
    for name in functions:
        if hasattr(os, name):
            delattr(os, name)
    if system == "win32":
        for name in ("SIGHUP", "SIGKILL", "SIGALRM", "SIGUSR1", "SIGSTOP", "SIGCONT", "setitimer", "pthread_kill"):
            delattr(signal, name)
        socket.socketpair = functools.partial(socket.socketpair, socket.AF_UNIX)  # Windows makes one of AF_INET
        del socket.AF_UNIX
        asyncio.ProactorEventLoop = asyncio.SelectorEventLoop  # what others ask for there
        asyncio.unix_events._UnixSelectorEventLoop.add_signal_handler = _not_there
        popen = subprocess.Popen.__init__

        def checked(self: subprocess.Popen, *args: object, **given: object) -> None:
            if given.get("preexec_fn") is not None:
                raise ValueError("preexec_fn is not supported on Windows platforms")
            popen(self, *args, **given)

        subprocess.Popen.__init__ = checked
    ctypes.CDLL = _no_library
    _without_kernel_files()
    sys.platform = system


def _not_there(*_: object) -> None:
    raise NotImplementedError


def _no_library(name: object, *_: object, **__: object) -> None:
    raise OSError(f"this is no system to load {name} on")


_become(os.environ["ELSEWHERE"])
