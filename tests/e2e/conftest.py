"""`start` and `tiles`: a real server and what it serves; `serve`: one that misbehaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.children import Child, Start
from tests.support.stubs import STUB, Serve, Stub
from tests.support.tiles import Tiles


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """`start(path, *flags)` → a ready server; all are ended after the test."""
    children: list[Child] = []

    def go(path: Path | None = None, *flags: str, wait: bool = True) -> Child:
        children.append(Child(path, *flags, folder=tmp_path))
        return children[-1].ready() if wait else children[-1]

    yield go
    for child in children:
        if child.process.poll() is None:
            os.kill(child.process.pid, signal.SIGCONT)
            child.process.kill()
            child.process.wait(10)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """`serve(mode, seconds)` → a running stub; all are ended after the test."""
    running: list[subprocess.Popen[str]] = []

    def go(mode: str, seconds: float = 0.0) -> Stub:
        process = subprocess.Popen([sys.executable, str(STUB), mode, str(seconds)], stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout is not None
        return Stub(process, int(process.stdout.readline()))

    yield go
    for process in running:
        process.kill()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture(scope="session")
def tiles(tmp_path_factory: pytest.TempPathFactory) -> Tiles:
    """The bundle that the e2e tests serve."""
    return Tiles(tmp_path_factory.mktemp("tiles"))
