"""Two servers under the same load in the same minute: what each can do flat out, then both at the same rates.

Rules of this file. A machine drifts within minutes, so the two take turns: A B B A, one window of load each, and what
is compared is what all of a server's windows say together. The peak is chosen between what the two can do, so that it
tells them apart on any machine; it is never chosen by how well one of them does at it. A window is measured again only
where this program itself was late in it, whatever the server did, and once at most.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from onbudget.core.budget import Budget, Verdict, steadiness
from onbudget.core.errors import TargetError
from onbudget.core.histogram import percentile
from onbudget.core.records import Hits
from onbudget.core.summary import Percentiles, allowed_lag, judge_lag
from onbudget.prove.arrivals import poisson
from onbudget.prove.client import Connection, Target, ask, parse_target, resolve
from onbudget.prove.generator import Generator
from onbudget.prove.payloads import Item, assemble, head

SETTLE_S = 0.3  # of each window: sent, and not judged
CONNECTIONS = 16  # flat out: enough for a batch to form, few enough to be answered in turn
ABOVE = 1.2  # times what the slower one answers flat out: it can't keep up, whatever it does
HEADROOM = 0.8  # of what the faster one answers flat out: there a queue under Poisson arrivals is still short
SLACK = 0.2  # of the budget: a program that is later than this itself offers another load than it says
GIVE_UP_S, DRAIN_S = 3.0, 30.0  # how long one answer, and the end of all work, are waited for
QUIET = 50.0  # requests a second
FLAT_OUT_S, FLAT_OUT_SETTLE_S = 0.5, 0.2  # three times each; the best counts, since others only ever slow it down
BACK_OFF_S = 0.02  # callers who ask again at once would measure how fast they are refused
AGAIN = 1  # window, of all of them: the demo has a minute

Floats = npt.NDArray[np.float64]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two: its name, and where to ask it."""

    name: str
    target: Target
    address: tuple[str, int]
    requests: tuple[bytes, ...]
    metrics: bool  # it tells its batch sizes at /metrics


Pair = tuple[Side, Side]


@dataclass(frozen=True, slots=True)
class Window:
    """What became of one stretch of load: every request, and how many items and batches ran meanwhile.

    `starved` is the share of the time in which this program wanted a CPU and got none; None where it is not told.
    """

    hits: Hits
    items: float
    batches: float
    starved: float | None = None

    def slipped(self, budget_s: float) -> str:
        """Whether this program itself was late, in a sentence; "" where it was not."""
        return judge_lag(self.hits.lag, allowed_lag(budget_s, math.inf), self.starved)


@dataclass(slots=True)
class Row:
    """One server under one load, in one window or more. Times in seconds, `rate` a second."""

    side: Side
    load: str
    rate: float
    windows: list[Window] = field(default_factory=list)

    def latency(self) -> Floats:
        """Of every request offered, in the order in which they were due; infinite where no answer came."""
        return np.concatenate([window.hits.latency() for window in self.windows])

    def spread(self) -> Percentiles:
        """Percentiles from the due moment."""
        return Percentiles.of(self.latency())

    def share(self, budget_s: float) -> float:
        """How much of what was offered was answered within the budget."""
        return float((self.latency() <= budget_s).mean())

    def refused(self) -> float:
        """How much of what was offered was refused for now (429, 503)."""
        found = [np.array([o.refused for o in w.hits.outcomes])[w.hits.outcome] for w in self.windows]
        return float(np.concatenate(found).mean())

    def batch(self) -> float | None:
        """Items that ran together, on average; None where the server does not tell."""
        batches = sum(window.batches for window in self.windows)
        return sum(window.items for window in self.windows) / batches if batches else None

    def rising(self) -> bool:
        """Whether latency rose all through a window: then its percentiles only tell how long the window was."""
        return any(steadiness(window.hits.latency()).word == "rising" for window in self.windows)

    def judge(self, budget_s: float) -> Verdict:
        """Whether the budget was met."""
        return Budget(budget_s).judge(self.latency())

    def slipped(self, budget_s: float) -> str:
        """Whether this program itself was late, in a sentence; "" where it was not."""
        return next((why for why in (window.slipped(budget_s) for window in self.windows) if why), "")

    def void(self, budget_s: float) -> str:
        """Why the verdict cannot be believed; "" where it can.

        Latency includes our own lateness. Where the verdict is the same without it, and it was small, it stands.
        """
        why = self.slipped(budget_s)
        if why:
            lag = np.concatenate([window.hits.lag for window in self.windows])
            freed = Budget(budget_s).judge(self.latency() - lag).word
            if freed == self.judge(budget_s).word and percentile(lag, 99) <= SLACK * budget_s:
                return ""
        return why


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two servers did: answers a second `flat_out` by name, and a row for each load and server."""

    flat_out: dict[str, float]
    quiet: tuple[Row, Row]
    peak: tuple[Row, Row]

    def rows(self) -> tuple[Row, ...]:
        """All rows, in the order of a table."""
        return (*self.quiet, *self.peak)


async def compare(sides: Pair, seconds: float, budget_s: float, tell: Callable[[str], None]) -> Comparison:
    """Measure both: flat out, then `seconds` of judged load for each server, quiet and at the peak.

    TargetError where one of them does not answer.
    """
    speeds = {side.name: 0.0 for side in sides}
    for side in (*_turns(sides), *sides):
        tell(f"{side.name}: what it answers flat out")
        speeds[side.name] = max(speeds[side.name], await flat_out(side, FLAT_OUT_S))
    quiet, peak = min(QUIET, min(speeds.values()) / 4), choose_peak(*speeds.values())
    again = AGAIN
    rows: list[tuple[Row, Row]] = []
    for load, rate in (("quiet", quiet), ("peak", peak)):
        pair = (Row(sides[0], load, rate), Row(sides[1], load, rate))
        for turn, row in enumerate(_turns(pair)):
            tell(f"{row.side.name}: {load}, {rate:.0f} requests/s for {seconds / 2:g} s")
            window = await offer(row.side, rate, seconds / 2, seed=turn // 2)
            while again and window.slipped(budget_s):
                again -= 1
                tell(f"{row.side.name}: {load} again, since this program itself was late")
                window = await offer(row.side, rate, seconds / 2, seed=turn // 2)
            row.windows.append(window)
        rows.append(pair)
    return Comparison(speeds, *rows)


def _turns(pair: tuple[T, T]) -> tuple[T, T, T, T]:
    """A B B A: what drifts evenly weighs on both alike."""
    return (*pair, *pair[::-1])


async def open_side(name: str, url: str, items: Sequence[Item], *, metrics: bool = False) -> Side:
    """A server and the requests that it will be sent."""
    target = parse_target(f"{url}/predict")
    requests = assemble(items, target, (), "tiles").requests
    return Side(name, target, await resolve(target), requests, metrics)


def choose_peak(one: float, other: float) -> float:
    """A rate that tells two servers apart, from what each answers a second flat out, whichever is ours.

    ABOVE what the slower one can do, as far as HEADROOM of the faster one allows.
    """
    return min(ABOVE * min(one, other), HEADROOM * max(one, other))


# ---- flat out -------------------------------------------------------------------------------------------------------


class _FlatOut:
    """Every connection sends its next request as soon as it has its answer, or BACK_OFF_S after a refusal."""

    def __init__(self, requests: Sequence[bytes], done: asyncio.Future[None]) -> None:
        self.answered_so_far = 0
        self._requests = requests
        self._done = done
        self._sent = 0

    def opened(self, connection: Connection) -> None:
        self._next(connection)

    def _next(self, connection: Connection) -> None:
        if self._done.done() or connection.closing:
            return
        connection.send(self._sent, self._requests[self._sent % len(self._requests)])
        self._sent += 1

    def answered(self, connection: Connection, hit: int, arrived: float) -> None:
        if connection.status not in (200, 429):
            self._fail(f"answered {connection.status}: {connection.body[:200].decode(errors='replace')}")
        elif connection.status == 200:
            self.answered_so_far += 1
            self._next(connection)
        else:
            asyncio.get_running_loop().call_later(BACK_OFF_S, self._next, connection)

    def lost(self, connection: Connection, hit: int, word: str) -> None:
        self._fail(word)

    def _fail(self, why: str) -> None:
        if not self._done.done():
            self._done.set_exception(TargetError(why))


async def flat_out(side: Side, seconds: float) -> float:
    """Answers a second with CONNECTIONS callers who never pause, refusals not counted.

    TargetError where a caller gets no answer, or all get none but refusals.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    owner = _FlatOut(side.requests, done)
    made = [Connection(owner) for _ in range(CONNECTIONS)]
    try:
        for connection in made:
            await loop.create_connection(lambda c=connection: c, *side.address)  # type: ignore[misc]  # bound at once
        await _unless(done, FLAT_OUT_SETTLE_S)
        before, began = owner.answered_so_far, loop.time()
        await _unless(done, seconds)
        if owner.answered_so_far == before:
            raise TargetError("refused every request")
        return (owner.answered_so_far - before) / (loop.time() - began)
    except (OSError, TargetError) as error:
        raise TargetError(f"{side.name}, {side.target.url}: {error}") from error
    finally:
        done.cancel()
        for connection in made:
            connection.abort()


async def _unless(done: asyncio.Future[None], seconds: float) -> None:
    """Wait so long, or raise what ended it before."""
    await asyncio.wait([done], timeout=seconds)
    if done.done():
        done.result()


# ---- one window of load ---------------------------------------------------------------------------------------------


async def offer(side: Side, rate: float, seconds: float, seed: int) -> Window:
    """Poisson arrivals at `rate` for `seconds`, after SETTLE_S that are not judged."""
    before = await _batch_sizes(side)
    schedule = poisson(rate, seconds, SETTLE_S, seed)
    generator = Generator(side.address, side.requests, schedule, timeout_s=GIVE_UP_S)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, told: generator.fail(told.get("exception") or RuntimeError(told["message"])))
    try:
        hits, ending = await generator.run()
    finally:
        loop.set_exception_handler(None)
    # An overloaded server still works off what nobody waits for any more; the other one's turn comes after that.
    await ask(side.target, side.address, head("GET", side.target, "/health"), DRAIN_S)
    after = await _batch_sizes(side)
    return Window(hits.after(SETTLE_S), after[0] - before[0], after[1] - before[1], ending.starved)


async def _batch_sizes(side: Side) -> tuple[float, float]:
    """(items, batches) that ran so far, as the server's /metrics tell."""
    if not side.metrics:
        return 0.0, 0.0
    answer = await ask(side.target, side.address, head("GET", side.target, "/metrics"), 10.0)
    return read_batches(answer.body.decode())


def read_batches(text: str) -> tuple[float, float]:
    """The sum and the count of onbudget_batch_size in Prometheus' text; TargetError where it is not there."""
    found = {word: re.search(rf"^onbudget_batch_size_{word} (\S+)$", text, re.MULTILINE) for word in ("sum", "count")}
    if not found["sum"] or not found["count"]:
        raise TargetError("the server's /metrics say nothing of onbudget_batch_size")
    return float(found["sum"][1]), float(found["count"][1])
