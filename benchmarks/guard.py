"""What a request costs in Python, counted and not timed: bytecode instructions, and bytes of memory asked for.

    python benchmarks/guard.py [KIND …] [--json]    print the counts beside the stored ones; exit code 1 where one moved
    python benchmarks/guard.py --store              keep the counts of this Python's minor version in guard.json

A request goes as bytes into `Protocol.data_received` and leaves as bytes through `transport.write`, in one process and
without sockets. Two things are pretended: the clock, which moves by a microsecond with every look at it and by what a
run takes with every run, and with it the model, which answers the same scores to everybody. So every decision is the
same in each process and on each machine, and the counts are exact: they change when the code does.

* instructions: executed by Python code, ours and the libraries' (uvicorn, python-multipart, json), but not asyncio's,
  which uvloop replaces in a server. Work inside C is not seen.
* bytes: by how much each instruction raised what tracemalloc has seen, added up. A copy counts though it is freed at
  once; what stood there before the request, its own bytes too, does not.

A picture's decoding is pretended as well: it is Pillow's, and not Python.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import gc
import io
import json
import os
import selectors
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from pathlib import Path
from statistics import median_low
from types import CodeType, FrameType
from typing import Any

STORED = Path(__file__).with_name("guard.json")
MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
MOST = 0.05  # of a stored count: who moves more must say so by storing the new one
WARM, REPEATS = 20, 5  # requests of a kind before counting, and counted ones, of which the median is told
SMALL = 512  # bytes: smaller rises are objects of Python, the counter's own among them, and not copies
SIDE = 64
BUDGET_S = 0.025
GAP_S = 0.01  # between requests that find an idle server
PIECE = 64 * 1024  # bytes that a large body comes in

Counts = dict[str, int]  # by what is counted: instructions, bytes


class Clock:
    """Time that passes when somebody looks, and when a run takes it. In seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 1e-6
        return self.now


CLOCK = Clock()
NOT_COUNTED = (Clock.__call__.__code__.co_filename, selectors.__file__, asyncio.__path__[0])  # files and a folder


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

        _pretend_model()
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


def _pretend_model() -> None:
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


# ---- the kinds of requests ------------------------------------------------------------------------------------------


def _request(body: bytes, kind: bytes) -> bytes:
    lines = (
        b"POST /predict HTTP/1.1",
        b"host: 127.0.0.1:8000",
        b"user-agent: guard",
        b"accept: */*",
        b"content-type: " + kind,
        b"content-length: %d" % len(body),
    )
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@cache
def _tile(number: int) -> bytes:
    return bytes((number + 7 * i) % 256 for i in range(SIDE * SIDE * 3))


@cache
def _json(tiles: int = 1) -> bytes:
    items = b'", "'.join(base64.b64encode(_tile(n)) for n in range(tiles))
    return _request(b'{"tiles": ["%b"]}' % items, b"application/json")


@cache
def _octets() -> bytes:
    return _request(_tile(0), b"application/octet-stream")


@cache
def _jpeg() -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.frombytes("RGB", (SIDE, SIDE), _tile(0)).save(file, "JPEG", quality=90)
    lines = (
        b"--edge",
        b'content-disposition: form-data; name="file"; filename="tile.jpg"',
        b"content-type: image/jpeg",
        b"",
        file.getvalue(),
        b"--edge--",
        b"",
    )
    return _request(b"\r\n".join(lines), b"multipart/form-data; boundary=edge")


async def _alone(server: Server, sent: bytes, lines: int = 1) -> Counts:
    """An idle server gets the same request on each of so many connections, in one round of its loop."""
    CLOCK.now += GAP_S
    pieces = [sent[at : at + PIECE] for at in range(0, len(sent), PIECE)]
    pairs = server.lines(lines)
    wires = [wire for _, wire in pairs]
    for wire in wires:
        wire.written = b""
    server.counter.start()
    for line, _ in pairs:
        for piece in pieces:
            line.data_received(piece)
    await server.answered(wires)
    counted = server.counter.stop()
    for wire in wires:
        _expect(wire, b"200")
    return counted


async def _crowd(server: Server, sent: bytes, known: bool) -> Counts:
    """More come in one round than can be in time, until some are refused; then one, whose refusal is `known` or new."""
    CLOCK.now += GAP_S
    waiting: list[Wire] = []
    full = False
    for line, wire in server.lines(400):
        wire.written = b""
        if full and not known:
            server.forget()
        if full:
            server.counter.start()
        line.data_received(sent)
        counted = server.counter.stop()
        if not wire.written:
            waiting.append(wire)  # let in, or sent to the background
            continue
        _expect(wire, b"429")
        if full:
            await server.answered(waiting)
            return counted
        full = True
    raise SystemExit("guard: 400 requests at once, and no two are refused; has the gate been left open?")


def _expect(wire: Wire, status: bytes) -> None:
    if wire.written.split(b" ", 2)[1] != status:
        raise SystemExit(f"guard: {status.decode()} was to be counted, but the answer is {wire.written[:300]!r}")


KINDS: dict[str, Callable[[Server], Awaitable[Counts]]] = {
    "json": lambda server: _alone(server, _json()),
    "octet-stream": lambda server: _alone(server, _octets()),
    "multipart": lambda server: _alone(server, _jpeg()),
    "json-32-items": lambda server: _alone(server, _json(32)),
    "batch-of-4": lambda server: _alone(server, _json(), lines=4),
    "first-refusal": lambda server: _crowd(server, _json(), known=False),
    "next-refusal": lambda server: _crowd(server, _json(), known=True),
}


# ---- counting, storing, comparing -----------------------------------------------------------------------------------


async def _counted(kinds: list[str]) -> dict[str, Counts]:
    server = Server()
    await server.start()
    tracemalloc.start()
    gc.disable()
    told = {}
    for kind in kinds:
        server.counter.armed = False
        for _ in range(WARM):
            await KINDS[kind](server)
        server.counter.armed = True
        some = [await KINDS[kind](server) for _ in range(REPEATS)]
        told[kind] = {name: median_low(one[name] for one in some) for name in some[0]}
    gc.enable()
    tracemalloc.stop()
    await server.stop()
    return told


def counted(kinds: list[str]) -> dict[str, Counts]:
    """Counts by kind, in this process; `pretend_time` comes first."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache  # what runs cost on this machine is of no concern here
        return asyncio.run(_counted(kinds))


def stored() -> dict[str, dict[str, Counts]]:
    """Python's minor version → kind → counts; empty where nothing is stored."""
    return json.loads(STORED.read_text()) if STORED.exists() else {}


def moved(before: dict[str, Counts], now: dict[str, Counts]) -> list[str]:
    """A sentence for each count that is not within `MOST` of the stored one, and for kinds that only one side has."""
    told = [f"{kind}: nothing is stored for it" for kind in now if kind not in before]
    told += [f"{kind}: stored, but no longer counted" for kind in before if kind not in now]
    for kind, name, then, count in _pairs(before, now):
        if abs(count - then) > MOST * then:
            way = "dearer" if count > then else "cheaper, which is good news"
            told.append(f"{kind}: {count:,} {name}, {count / then - 1:+.1%} from {then:,}: {way}")
    if told:
        told.append("If that is meant, store the new counts with the change: python benchmarks/guard.py --store")
    return told


def _pairs(before: dict[str, Counts], now: dict[str, Counts]) -> Iterator[tuple[str, str, int, int]]:
    for kind, counts in now.items():
        for name, count in counts.items():
            if kind in before:
                yield kind, name, before[kind][name], count


def main(arguments: list[str] | None = None) -> int:
    """The command; `pretend_time` comes first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; all where none is named")
    parser.add_argument("--json", action="store_true", help="the counts as JSON, compared with nothing")
    parser.add_argument("--store", action="store_true", help=f"keep them in {STORED.name}")
    options = parser.parse_args(arguments)
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"no such kind: {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    if options.store and options.kinds:
        parser.error("--store keeps all kinds, so name none")
    now = counted(options.kinds or list(KINDS))
    if options.json:
        print(json.dumps(now))
        return 0
    all_stored = stored()
    before = all_stored.get(MINOR, {})
    print(f"{'a request of kind':20} {'count':14} {'now':>10} {'stored':>10} {'change':>8}   Python {MINOR}")
    for kind, counts in now.items():
        for name, count in counts.items():
            then = before.get(kind, {}).get(name)
            told = f"{then:10,} {count / then - 1:+8.1%}" if then else f"{'none':>10}"
            print(f"{kind:20} {name:14} {count:10,} {told}")
    if options.store:
        from onbudget.engine.files import write_atomically

        write_atomically(STORED, (json.dumps({**all_stored, MINOR: now}, indent=1, sort_keys=True) + "\n").encode())
        return 0
    told = moved({kind: before[kind] for kind in now if kind in before} if options.kinds else before, now)
    print("\n".join(told), file=sys.stderr, end="\n" if told else "")
    return 1 if told else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # an order that depends on hashes is the same each time
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606 - itself
    pretend_time()
    sys.exit(main())
