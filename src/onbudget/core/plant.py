"""The machine that a simulation pretends: what runs and requests cost it, how steady it is, and what breaks."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from onbudget.core.cost import Cost


@dataclass(frozen=True, slots=True)
class Noise:
    """How runs differ from their cost: log-normal with deviation `jitter`, and a share `rare` takes `longer` times."""

    jitter: float = 0.0
    rare: float = 0.0
    longer: float = 3.0

    def factors(self, seed: int) -> Iterator[float]:
        """By how much each run differs, without end; the same for the same seed."""
        if not self.jitter and not self.rare:
            yield from itertools.repeat(1.0)
        draw = np.random.default_rng(seed)
        while True:
            some = np.exp(self.jitter * draw.standard_normal(4096))
            yield from np.where(draw.random(4096) < self.rare, self.longer * some, some).tolist()


@dataclass(frozen=True, slots=True)
class Death:
    """Lane `lane` dies `at` seconds; `seconds` later it is replaced, and what it ran has failed."""

    at: float
    lane: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Plant:
    """The loop takes `accept_s` seconds to read a request that it lets in, `reply_s` to answer it, and `refuse_s` for
    each other one.

    `inline`: one lane, on the loop's own thread; else each lane has a core of its own. In a stall (start, seconds)
    everything stands still. `max_items` is the queue's bound. ValueError for what can't be meant.
    """

    cost: Cost
    lanes: int = 1
    inline: bool = False
    accept_s: float = 0.0
    refuse_s: float = 0.0
    reply_s: float = 0.0
    noise: Noise = Noise()
    stalls: tuple[tuple[float, float], ...] = ()
    deaths: tuple[Death, ...] = ()
    max_items: int = 4096
    _stall_ends: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check it."""
        if self.lanes < 1 or (self.inline and (self.lanes > 1 or self.deaths)):
            raise ValueError("there is at least one lane; an inline one is alone and can't be replaced")
        work = (self.accept_s, self.refuse_s, self.reply_s)
        if not all(seconds >= 0 for seconds in work):
            raise ValueError(f"a loop that takes {work} s to read, refuse and answer a request can't be meant")
        if any(start + seconds > after for (start, seconds), (after, _) in itertools.pairwise(self.stalls)):
            raise ValueError("stalls are told in order and don't overlap")
        if any(not 0 <= death.lane < self.lanes for death in self.deaths):
            raise ValueError(f"a lane that dies is one of 0 to {self.lanes - 1}")
        object.__setattr__(self, "_stall_ends", tuple(start + seconds for start, seconds in self.stalls))

    def after(self, at: float, work: float) -> float:
        """When `work` seconds of work that begin `at` are done; with no work, when the machine next moves."""
        end = at + work
        if not self.stalls:
            return end
        for start, seconds in self.stalls[bisect_right(self._stall_ends, at) :]:
            if start > end:
                break
            end += start + seconds - max(start, at)
        return end
