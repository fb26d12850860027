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
import sys
import tempfile
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from pathlib import Path
from statistics import median_low

from counting import CLOCK, Counts, Server, Wire, pretend_time

STORED = Path(__file__).with_name("guard.json")
MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
MOST = 0.05  # of a stored count: who moves more must say so by storing the new one
WARM, REPEATS = 20, 5  # requests of a kind before counting, and counted ones, of which the median is told
SIDE = 64
GAP_S = 0.01  # between requests that find an idle server
PIECE = 64 * 1024  # bytes that a large body comes in


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
