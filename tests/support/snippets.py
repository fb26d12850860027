"""Run the fenced blocks of a Markdown page that carry a marker, as a reader would, from top to bottom.

    <!-- test -->              the `sh` or `python` block below is run; it must succeed
    <!-- test: exit 0 10 -->   it must end with one of these exit codes (a verdict depends on the machine)
    <!-- test: background -->  it starts a server, after the one before it was stopped; the next block waits for /ready
    <!-- no test: why -->      it is not run; every block of these languages carries either marker
    <!-- notebook -->          a notebook's cell: tests/serve/test_notebook.py runs it
    <!-- setup                 what follows, up to the comment's end, is run as `sh`: what the reader has already

All blocks of a page share one empty folder. A `python` block whose first line is `# name.py` is saved under that name
instead of being run. Pages say port 8000; a free port takes its place.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2 as httpx

_BLOCK = re.compile(
    r"^<!-- test(?:: (?P<how>[^>]*?))? -->\n```(?P<language>\w+)\n(?P<text>.*?)^```$|^<!-- setup\n(?P<setup>.*?)^-->$",
    re.MULTILINE | re.DOTALL,
)
_RUNNABLE = re.compile(r"^(?P<above>[^\n]*)\n```(?:python|sh|bash|console|shell)\b", re.MULTILINE)
_NOT_RUN = re.compile(r"<!-- (?:no test: \S[^>]*|notebook) -->")
_FILE = re.compile(r"# (?P<name>[\w.-]+\.py)\n")
_START_S = 60.0


@dataclass(frozen=True)
class Block:
    """One marked block: `how` is what follows `test:` in the marker, `line` where the block begins on its page."""

    language: str
    how: str
    text: str
    line: int


def blocks(page: str) -> list[Block]:
    """The marked blocks of a page's text, in order."""
    return [
        Block(
            language=found["language"] or "sh",
            how=found["how"] or "",
            text=found["text"] or found["setup"],
            line=page.count("\n", 0, found.start()) + 2,
        )
        for found in _BLOCK.finditer(page)
    ]


def unmarked(page: str) -> list[int]:
    """The lines of `python` and shell blocks that carry no marker: neither run, nor said why they are not."""
    marked = {block.line for block in blocks(page)}
    found = ((page.count("\n", 0, match.end()) + 1, match["above"]) for match in _RUNNABLE.finditer(page))
    return [line for line, above in found if line not in marked and not _NOT_RUN.fullmatch(above)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Reader:
    """Somebody who follows a page in `folder`; a context manager that ends the servers that the page started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        self._servers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        """End the server that the page started before, if any; a reader presses Ctrl-C."""
        while self._servers:
            server = self._servers.pop()
            os.killpg(server.pid, signal.SIGKILL)
            server.wait(10)

    def follow(self, block: Block) -> str:
        """Do what the block says → what it printed; AssertionError with that where it ends otherwise than promised."""
        text = block.text.replace("8000", str(self.port))
        named = _FILE.match(text)
        if block.language == "python" and named:
            (self.folder / named["name"]).write_text(text)
        elif block.how == "background":
            self._start(text)
        else:
            want = block.how.removeprefix("exit ").split() or ["0"]
            ran = subprocess.run(
                self._command(block.language, text),
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            told = f"line {block.line} ended with {ran.returncode}, not {' or '.join(want)}:\n{ran.stdout}"
            assert str(ran.returncode) in want, told
            return ran.stdout
        return ""

    def _command(self, language: str, text: str) -> list[str]:
        return [sys.executable, "-c", text] if language == "python" else ["bash", "-euo", "pipefail", "-c", text]

    def _environment(self) -> dict[str, str]:
        here = str(Path(sys.executable).parent)
        return os.environ | {"PATH": f"{here}{os.pathsep}{os.environ['PATH']}", "ONBUDGET_PORT": str(self.port)}

    def _start(self, text: str) -> None:
        self._stop()
        log = self.folder / "server.log"
        with log.open("wb") as out:
            server = subprocess.Popen(
                self._command("sh", text),
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._servers.append(server)
        end = time.monotonic() + _START_S
        while not self._ready():
            assert server.poll() is None, f"the server ended with {server.returncode}: {log.read_text()}"
            assert time.monotonic() < end, f"not ready after {_START_S:g} s: {log.read_text()}"
            time.sleep(0.05)

    def _ready(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/ready").status_code == 200
        except httpx.TransportError:
            return False


def pages(root: Path) -> Iterator[Path]:
    """The pages that readers see: README and CONTRIBUTING, docs, benchmarks, and each example's own."""
    yield from sorted(root.glob("*.md"))
    yield from sorted((root / "docs").rglob("*.md"))
    yield root / "benchmarks" / "README.md"
    yield from sorted((root / "examples").glob("*/README.md"))
