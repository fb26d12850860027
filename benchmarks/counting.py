"""What the guard counts with: a clock and a model that are pretended, a server without sockets, and the counter.

`pretend_time` comes before anything of onbudget is imported.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

BUDGET_S = 0.025
SMALL = 512  # bytes: smaller rises are objects of Python, the counter's own among them, and not copies

Counts = dict[str, int]  # by what is counted: instructions, bytes


class Clock:
    """Time that passes when somebody looks, and when a run takes it. In seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 1e-6
        return self.now


CLOCK = Clock()
NOT_COUNTED = (str(Path(__file__).parent), selectors.__file__, asyncio.__path__[0])  # this folder, a file, a folder


def pretend_time() -> None:
    """For the whole process, and before anything of onbudget is imported, because its modules keep the function."""
    assert "onbudget" not in sys.modules
    time.monotonic = time.perf_counter = time.thread_time = time.process_time = CLOCK


class Counter:
    """Counts what happens on this thread between `start` and `stop`, once it is `armed`: counting is slow."""

    def __init__(self) -> None:
        self.armed = False
        self.instructions = self.bytes = self._stood = 0
        if sys.version_info >= (3, 12):  # there `settrace` misses instructions of code that ran untraced before
            sys.monitoring.use_tool_id(sys.monitoring.PROFILER_ID, "guard")
            sys.monitoring.register_callback(
                sys.monitoring.PROFILER_ID, sys.monitoring.events.INSTRUCTION, self._instruction
            )

    def start(self) -> None:
        self.instructions = self.bytes = 0
        tracemalloc.reset_peak()
        self._stood = tracemalloc.get_traced_memory()[0]
        if self.armed:
            self._listen(True)

    def stop(self) -> Counts:
        self._listen(False)
        self._rise()
        return {"instructions": self.instructions, "bytes": self.bytes}

    def _listen(self, on: bool) -> None:
        if sys.version_info >= (3, 12):
            sys.monitoring.set_events(sys.monitoring.PROFILER_ID, sys.monitoring.events.INSTRUCTION if on else 0)
        else:
            sys.settrace(self._called if on else None)

    def _instruction(self, code: CodeType, offset: int) -> Any:
        if code.co_filename.startswith(NOT_COUNTED):
            return sys.monitoring.DISABLE
        self.instructions += 1
        self._rise()
        return None

    def _called(self, frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code.co_filename.startswith(NOT_COUNTED):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self._stepped

    def _stepped(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "opcode":
            self.instructions += 1
            self._rise()
        return self._stepped

    def _rise(self) -> None:
        rise = tracemalloc.get_traced_memory()[1] - self._stood
        if rise > SMALL:
            self.bytes += rise
        tracemalloc.reset_peak()
        self._stood = tracemalloc.get_traced_memory()[0]


class Wire(asyncio.Transport):
    """A transport that keeps the last thing that was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: Any) -> None:
        self.written = data

    def is_closing(self) -> bool:
        return False


class Server:
    """The embedded bundle behind real protocols; must be made on a running loop. `idle` are open connections."""

    def __init__(self) -> None:
        self.counter = Counter()
        self._connect: Callable[[], Any] = lambda: None
        self._lines: list[Any] = []
        self._stop: Callable[[], Awaitable[None]]
        self.forget: Callable[[], None]  # what a batch that comes back tells the gate

    async def start(self) -> None:
        """Load it as `onbudget serve` does for one core, with what a guard must pretend in place."""
        import uvicorn
        from uvicorn.server import ServerState

        from onbudget.engine.embedded import bundle_path
        from onbudget.serve.app import Front
        from onbudget.serve.protocol import Protocol
        from onbudget.serve.server import tame
        from onbudget.serve.service import Service
        from onbudget.serve.settings import Settings

        pretend_model()
        service = Service(bundle_path(), Settings(p95=BUDGET_S, lanes=1))
        config = uvicorn.Config(Front(service), ws="none", lifespan="off", log_config=None)
        config.load()
        state = ServerState()
        state.default_headers = [(b"date", b"Thu, 03 Dec 2026 12:00:00 GMT")]
        kind = type("OneProtocol", (Protocol,), {"service": service})
        self._connect = lambda: kind(config, state, {}, asyncio.get_running_loop())
        self._stop = service.stop
        await service.start()
        assert service._gate is not None
        self.forget = service._gate.forget
        tame()

    async def stop(self) -> None:
        await self._stop()

    def lines(self, count: int) -> list[Any]:
        """So many open connections, each with the transport that it writes to."""
        while len(self._lines) < count:
            line, wire = self._connect(), Wire()
            line.connection_made(wire)
            self._lines.append((line, wire))
        return self._lines[:count]

    async def answered(self, wires: list[Wire]) -> None:
        """Let the loop go on until each of them was written to."""
        for _ in range(100):
            if all(wire.written for wire in wires):
                return
            await asyncio.sleep(0)
        raise SystemExit("guard: a request got no answer in 100 rounds of the loop; is there a test that fails too?")


def pretend_model() -> None:
    """The same scores for everybody, a run of b rows takes 1 + b/5 ms of the clock, one lane on the loop's thread."""
    import numpy as np

    from onbudget.engine.session import OrtRunner
    from onbudget.serve import inline, job
    from onbudget.serve.models import Model

    scores = np.tile(np.array([0.1, 0.2, 0.6, 0.1], np.float32), (64, 1))

    def run(self: Any, feeds: Any, outputs: Any = None, stop: Any = None) -> list[Any]:
        rows = len(next(iter(feeds.values())))
        CLOCK.now += 1e-3 + rows * 2e-4
        return [scores[:rows] for _ in (self.outputs if outputs is None else outputs)]

    def decode(data: Any, recipe: Any, out: Any = None, **limits: Any) -> Any:
        out[...] = 7
        return out

    OrtRunner.run = run  # type: ignore[method-assign]
    job.decode = decode
    Model._fits_inline = lambda model: True  # type: ignore[method-assign]
    inline.GUARD = 1e6  # seconds: a thread that wakes up would be counted, now and then
