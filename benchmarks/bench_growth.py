"""How a served bundle's cost grows, on one core: with connections, with items a request, and with the bytes of a body.

    PYTHONPATH=src python benchmarks/bench_growth.py served.onnx --rate 2000/s -o benchmarks/results/growth-….json

`--rate` is the limit for requests of one item in JSON. Every point has two load tests: `over`, at twice its limit,
whose `answered_rate` is the throughput; and `fixed`, at `--share` of the limit, whose p95 is the latency.

* `connections`: 1 to 1,000, all open before the first request and used in turn, at the same total rate. A connection
  carries one request at a time, so a single one can't have more than one answer each round trip.
* `items`: 1 to 32 in one JSON body, at the same rate of items.
* `padded`: one item in JSON and spaces up to 4 MB: what bytes cost by themselves, since they ask for no more work.
* `photo`: one JPEG of 12 KB to 4 MB, with more pixels the more bytes: decoding is what larger pictures cost.

The last two have limits of their own, which `few` looks for first: a few connections are always busy, and hardly
anybody is refused, since refusing large bodies is work too. Rates are requests/s, and `cpu_us_per_request` is the
server's CPU by all requests that it was sent, refused ones too. Every repeat goes through all points, every other one
backwards.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from bodies import contract, padded, photo, several, shape
from live import CLIENT_CORE, SERVER_CORE, claim_core, command, cpu_seconds, keep, opening, resident_mb, server, trial

from onbudget.core import units
from onbudget.prove.payloads import Item, Shape

CONNECTIONS = (1, 10, 100, 1000)
ITEMS = (1, 2, 4, 8, 16, 32)
BYTES = {"12 KB": 12_000, "48 KB": 48_000, "192 KB": 192_000, "1 MB": 1_000_000, "4 MB": 4_000_000}
AXES = ("connections", "items", "padded", "photo")
FILES = 4096  # open at once: a thousand connections and whatever else, on each side
TIMEOUT_S = 2.0  # an answer is waited for: most that are due at the overload of one connection are never sent
WIDE, LARGE, FEW = 256, 32, 4  # connections of the other axes: of large bodies fewer, which hold less memory


@dataclass(frozen=True)
class Point:
    """One value of one axis. `items` are in each request; `own` says that its limit is its own and not known before."""

    axis: str
    value: int
    item: Item
    items: int = 1
    connections: int = WIDE
    clients: int = 0
    own: bool = False


def points(axes: list[str], of: Shape) -> Iterator[Point]:
    """All points, axis by axis; `padded` begins where one item fits, `photo` has the bytes that came out."""
    one = several(of, 1)
    if "connections" in axes:
        yield from (Point("connections", n, one, connections=n, clients=n) for n in CONNECTIONS)
    if "items" in axes:
        yield from (Point("items", n, several(of, n), items=n) for n in ITEMS)
    if "padded" in axes:
        sizes = sorted({max(size, len(one.body)) for size in BYTES.values()})
        yield from (Point("padded", size, padded(of, size), connections=LARGE, own=True) for size in sizes)
    if "photo" in axes:
        pictures = [photo(size) for size in BYTES.values()]
        yield from (Point("photo", len(p.body), p, connections=LARGE, own=True) for p in pictures)


class Measuring:
    """Load tests of points against one server, which remember the limits of points that have their own."""

    def __init__(self, url: str, pid: int, folder: Path, chosen: argparse.Namespace) -> None:
        self._url = url
        self._pid = pid
        self._body = folder / "body"
        self._chosen = chosen
        self._limits: dict[Point, float] = {}

    def point(self, point: Point, before: Point | None, seed: int) -> Iterator[dict[str, Any]]:
        """The rows of a point; `before` is the one of the next smaller size on its axis."""
        chosen = self._chosen
        self._body.write_bytes(point.item.body)
        limit = chosen.rate / point.items
        if point.own:
            guess = self._limits.get(point) or self._limits.get(before, limit)
            few = self._one("few", replace(point, connections=FEW), 2 * guess, seed)
            yield few
            limit = self._limits.setdefault(point, max(few["answered_rate"], 1.0))
        yield self._one("over", point, 2 * limit, seed)
        yield self._one("fixed", point, chosen.share * limit, seed)

    def _one(self, load: str, point: Point, rate: float, seed: int) -> dict[str, Any]:
        before = cpu_seconds(self._pid)
        found = trial(
            self._url,
            rate,
            self._chosen.seconds,
            units.seconds(self._chosen.p95),
            seed=seed,
            body=str(self._body),
            content_type=point.item.kind,
            connections=point.connections,
            clients=point.clients,
            timeout=TIMEOUT_S,
        )
        used = cpu_seconds(self._pid) - before
        return {
            "axis": point.axis,
            "value": point.value,
            "load": load,
            "body_bytes": len(point.item.body),
            "items_per_request": point.items,
            **found.told(),
            "answered_items_rate": round(found.answered_rate * point.items, 1),
            "cpu_us_per_request": round(used / found.sent * 1e6, 1),
            "rss_mb": round(resident_mb(self._pid), 1),
        }


def rows(trials: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Medians of the repeats of each point and load; None counts as infinite, as a p95 has it."""
    groups: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for one in trials:
        groups.setdefault((one["axis"], one["value"], one["load"]), []).append(one)
    told = []
    for (axis, value, load), same in groups.items():
        row: dict[str, Any] = {"axis": axis, "value": value, "load": load, "repeats": len(same)}
        for name in same[0]:
            if name not in ("axis", "value", "load", "void"):
                middle = median(float("inf") if one[name] is None else one[name] for one in same)
                row[name] = None if middle == float("inf") else round(middle, 4)
        row["void"] = sum(one["void"] for one in same)
        told.append(row)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--rate", type=units.per_second, required=True, help="the limit for one item in JSON")
    parser.add_argument("--share", type=float, default=0.6, help="of the limit, for the fixed rates")
    parser.add_argument("--p95", default="25ms", help="the budget that the server is told")
    parser.add_argument("--axes", default=",".join(AXES), type=lambda text: text.split(","))
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load test")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path)
    chosen = parser.parse_args()
    if unknown := set(chosen.axes) - set(AXES):
        parser.error(f"--axes {','.join(unknown)}: there are {', '.join(AXES)}")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES:
        parser.error(
            f"a thousand connections need {FILES} open files; this machine's hard limit is {hard} (ulimit -Hn)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES), hard))  # the server inherits it
    claim_core()
    every = list(points(chosen.axes, shape(contract(chosen.bundle))))
    record = opening(
        "throughput at twice the limit and p95 at a share of it, by connections, items a request and bytes a body",
        chosen.bundle,
        cores={"server": SERVER_CORE, "client": CLIENT_CORE},
        **{name: getattr(chosen, name) for name in ("rate", "share", "p95", "seconds")},
        rows=[],
        trials=[],
    )
    with tempfile.TemporaryDirectory() as folder, server(chosen.bundle, "--p95", chosen.p95) as served:
        measuring = Measuring(served.url(), served.pid, Path(folder), chosen)
        for repeat in range(chosen.repeats):
            for index in range(len(every)) if repeat % 2 == 0 else reversed(range(len(every))):
                before = every[index - 1] if index and every[index - 1].axis == every[index].axis else None
                for row in measuring.point(every[index], before, 1000 * repeat + index):
                    record["trials"].append({"repeat": repeat, **row})
                    record["rows"] = rows(record["trials"])
                    keep(record, chosen.output)
                    print(
                        f"{repeat}  {row['axis']:11} {row['value']:>8} {row['load']:5}  offered {row['rate']:8.1f}/s  "
                        f"answered {row['answered_rate']:8.1f}/s  refused {row['refused']:.3f}  p50 {row['p50_ms']}  "
                        f"p95 {row['p95_ms']} ms  {row['cpu_us_per_request']:.0f} µs  {row['rss_mb']:.0f} MB"
                        f"{'  VOID' if row['void'] else ''}",
                        flush=True,
                    )


if __name__ == "__main__":
    command(main)
