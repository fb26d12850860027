"""Real servers as child processes: `onbudget serve` on a free port, ended by SIGTERM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


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
        while "http://" not in self.log or "\n" not in self.log:
            assert self.process.poll() is None, f"the server ended with {self.process.returncode}: {self.log}"
            assert time.monotonic() < end, f"not ready after 60 s: {self.log}"
            time.sleep(0.02)
        self.url = self.log[self.log.index("http://") :].split()[0]
        self.port = int(self.url.rsplit(":", 1)[1])
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


@pytest.fixture()
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


class Tiles:
    """A small picture bundle, made by `onbudget bundle`'s own function, and its numpy reference."""

    def __init__(self, folder: Path) -> None:
        from onbudget.core.recipe import Recipe
        from onbudget.engine.session import load_runner

        self.labels = ("water", "town", "wood", "field")
        self.recipe = Recipe(
            kind="picture",
            shape=(16, 16, 3),
            resize="stretch",
            size=(16, 16),
            resample="bilinear",
            scale=1 / 255,
            mean=(0.485, 0.456, 0.406),
            std=(0.229, 0.224, 0.225),
        )
        self.source = folder / "tiles.onnx"
        self.bundle = folder / "served.onnx"
        build_tiles(self.source, self.bundle, self.recipe, self.labels)
        self._bare = load_runner(self.source)

    def some(self, count: int, seed: int = 1) -> np.ndarray[Any, Any]:
        """Distinct uint8 tiles, (count, 16, 16, 3)."""
        return np.random.default_rng(seed).integers(0, 256, (count, 16, 16, 3), dtype=np.uint8)

    def expect(self, tiles: np.ndarray[Any, Any]) -> list[tuple[str, float]]:
        """Label and probability by the numpy recipe, the unfused model one row at a time, and softmax."""
        from onbudget.core.tasks import softmax

        answers = []
        for tile in tiles:
            feeds = {self._bare.inputs[0].name: self.recipe.tensor(tile[None])}
            row = softmax(self._bare.run(feeds)[0])[0]
            answers.append((self.labels[int(row.argmax())], float(row.max())))
        return answers


@pytest.fixture(scope="session")
def tiles(tmp_path_factory: pytest.TempPathFactory) -> Tiles:
    """The bundle that the e2e tests serve."""
    return Tiles(tmp_path_factory.mktemp("tiles"))
