"""What a run costs by its batch size, as measured (`Cost`) and as it is just now (`Online`).

Rules of this file. Plain lists and floats, no arrays: a policy asks for one number at a time, thousands of times a
second. No clock: times come in. L(b) is never one straight line: past the cache it bends upwards (a line fitted up to 8
was 40 % off at 32), so it is interpolated between the sizes that were measured, and cautious beyond them.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_GOOD_ENOUGH = 0.95  # of the best items/s: a batch that is four times as large for the last 5 % only costs latency


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds a run by batch size, from measured `points` (batch, seconds) in ascending order.

    Between the points it is linear; where a larger batch was measured as cheaper, which is noise, both become their
    mean, so that it never falls. Above the last point every further item costs the larger of the last slope and the
    last point's average: no batch is promised to be cheaper an item than the largest that was seen. Below the first
    point it is linear towards the fixed part, or constant where there is one point only (a file with a fixed batch axis
    costs the same however many of its rows are filled).

    An item's `size` is in units of the item that was measured (tokens, pixels): b items of size s cost what b·s items
    cost. Fixed shapes have size 1. ValueError for points that cannot be meant.
    """

    points: tuple[tuple[int, float], ...]
    _batches: list[float] = field(init=False, repr=False, compare=False)
    _seconds: list[float] = field(init=False, repr=False, compare=False)
    _table: list[float] = field(init=False, repr=False, compare=False)  # by whole batch, for the hot path
    _fixed: float = field(init=False, repr=False, compare=False)  # at batch 0
    _slope: float = field(init=False, repr=False, compare=False)  # above the last point

    def __post_init__(self) -> None:
        """Check the points and prepare the table."""
        if not self.points:
            raise ValueError("a cost needs at least one measured point")
        for batch, seconds in self.points:
            if batch < 1 or not 0 < seconds < math.inf:
                raise ValueError(f"batch {batch} at {seconds} s is not a measured cost")
        if any(a >= b for (a, _), (b, _) in zip(self.points, self.points[1:], strict=False)):
            raise ValueError("a cost's points must be in ascending order of batch, each batch once")
        batches = [float(batch) for batch, _ in self.points]
        seconds_ = _never_falling([seconds for _, seconds in self.points])
        fixed, slope = seconds_[0], seconds_[-1] / batches[-1]
        if len(batches) > 1:
            first = (seconds_[1] - seconds_[0]) / (batches[1] - batches[0])
            fixed = max(0.0, seconds_[0] - first * batches[0])
            slope = max(slope, (seconds_[-1] - seconds_[-2]) / (batches[-1] - batches[-2]))
        for name, value in (("_batches", batches), ("_seconds", seconds_), ("_fixed", fixed), ("_slope", slope)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_table", [0.0, *(self._at(float(b)) for b in range(1, self.points[-1][0] + 1))])

    @classmethod
    def of(cls, points: Mapping[int, float]) -> Cost:
        """From {batch: seconds}, in any order."""
        return cls(tuple(sorted(points.items())))

    def seconds(self, batch: int, size: float = 1.0) -> float:
        """What a run of `batch` items takes; ValueError for less than one item, or a size that is not above 0."""
        if size == 1.0 and 0 < batch < len(self._table):
            return self._table[batch]
        if batch < 1 or not size > 0:
            raise ValueError(f"a batch of {batch} items of size {size} costs nothing that can be told")
        return self._at(batch * size)

    def _at(self, x: float) -> float:
        batches, seconds = self._batches, self._seconds
        if x >= batches[-1]:
            return seconds[-1] + (x - batches[-1]) * self._slope
        if x < batches[0]:
            return self._fixed + (seconds[0] - self._fixed) * x / batches[0]
        i = bisect_right(batches, x) - 1
        return seconds[i] + (seconds[i + 1] - seconds[i]) * (x - batches[i]) / (batches[i + 1] - batches[i])

    def capacity(self, max_batch: int, size: float = 1.0) -> float:
        """The most items a second that one lane does in batches up to `max_batch`."""
        return max(b / self.seconds(b, size) for b in range(1, max_batch + 1))

    def best_batch(self, max_batch: int, size: float = 1.0) -> int:
        """The smallest batch, up to `max_batch`, that gives at least 95 % of the best items a second."""
        wanted = _GOOD_ENOUGH * self.capacity(max_batch, size)
        return next(b for b in range(1, max_batch + 1) if b / self.seconds(b, size) >= wanted)

    def largest_within(self, seconds: float, max_batch: int, size: float = 1.0) -> int:
        """The largest batch, up to `max_batch`, whose run takes at most `seconds`; 0 where not even one item does."""
        low, high = 0, max_batch  # the cost never falls, so halving finds it
        while low < high:
            middle = (low + high + 1) // 2
            if self.seconds(middle, size) <= seconds:
                low = middle
            else:
                high = middle - 1
        return low

    def scaled(self, factor: float) -> Cost:
        """The same shape on a machine that takes `factor` times as long."""
        return Cost(tuple((batch, seconds * factor) for batch, seconds in self.points))

    def scale_of(self, measured: Mapping[int, float]) -> float:
        """The factor that a few fresh runs {batch: seconds} suggest: the median of their ratios to this curve."""
        return statistics.median(seconds / self.seconds(batch) for batch, seconds in measured.items())

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"points": [[batch, seconds] for batch, seconds in self.points]}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Cost:
        """What `to_dict` gave; ValueError names what is wrong with anything else."""
        points = told.get("points")
        if not isinstance(points, list) or not all(_is_point(point) for point in points):
            raise ValueError(f"a cost's points must be a list of [batch, seconds], not {str(points)[:60]}")
        return cls(tuple((batch, float(seconds)) for batch, seconds in points))


def _is_point(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], int)
        and isinstance(value[1], int | float)
        and not any(isinstance(v, bool) for v in value)
    )


def _never_falling(values: Sequence[float]) -> list[float]:
    """Isotonic regression: the nearest sequence, by squares, that never falls (pool adjacent violators)."""
    pools: list[tuple[float, int]] = []  # (mean, how many)
    for value in values:
        mean, count = value, 1
        while pools and pools[-1][0] > mean:
            before, many = pools.pop()
            mean = (before * many + mean * count) / (many + count)
            count += many
        pools.append((mean, count))
    return [mean for mean, count in pools for _ in range(count)]


_CLIP = math.log(2.0)  # how far, in logarithms, one run may seem to be from what is believed
_MOST = math.log(16.0)  # either factor stays within 1/16 and 16


class Online:
    """The cost as it is just now: a prior curve times two factors, one of CPU time and one of waiting.

    Both are shared by all batch sizes, so that a size which has not been run lately is known all the same. They learn
    from runs that ran (`observe`); what was refused teaches nothing. One run moves each factor by at most
    2 ** `weight` (7 % by default), however long it stalled; a lasting change by anything up to 16 is known to 5 % after
    60 runs. Unobserved for longer than `grace_s`, both return to 1, half of the way (in logarithms) every
    `half_life_s`: whatever a policy refuses because of a bad minute, it does not refuse for ever.

    `cpu` is the prior of CPU seconds a run as the calling thread's `thread_time` tells it; None: the wall's. Not
    thread-safe: whoever owns the policy owns it. `now` is in monotonic seconds. `most` is what `scale` can at most be
    until the next run is observed.
    """

    __slots__ = ("_cpu", "_grace", "_half_life", "_seen", "_wait", "_weight", "cpu_prior", "most", "prior")

    def __init__(
        self,
        prior: Cost,
        cpu: Cost | None = None,
        *,
        weight: float = 0.1,
        half_life_s: float = 10.0,
        grace_s: float = 5.0,
    ) -> None:
        if not 0 < weight <= 1 or not half_life_s > 0 or not grace_s >= 0:
            raise ValueError(f"weight {weight}, half-life {half_life_s} s or grace {grace_s} s cannot be meant")
        self.prior = prior
        self.cpu_prior = cpu or prior
        self._weight, self._half_life, self._grace = weight, half_life_s, grace_s
        self._cpu = self._wait = 0.0  # logarithms of the factors at `_seen`
        self._seen = -math.inf
        self.most = 1.0

    def observe(self, batch: int, cpu_s: float, wall_s: float, now: float, size: float = 1.0) -> None:
        """A run of `batch` items ended at `now`: CPU seconds of its thread, and seconds by the wall.

        Where no CPU time was told (0: a coarse clock) all counts as waiting. ValueError for a run that took no time.
        """
        if not 0 < wall_s < math.inf or not cpu_s >= 0:
            raise ValueError(f"a run of {wall_s} s by the wall and {cpu_s} s of CPU did not run")
        left = self._left(now)
        self._cpu, self._wait = self._cpu * left, self._wait * left
        all_of_it = math.log(wall_s / self.prior.seconds(batch, size))
        cpu = math.log(cpu_s / self.cpu_prior.seconds(batch, size)) if cpu_s > 0 else self._cpu
        self._cpu = self._moved(self._cpu, cpu)
        self._wait = self._moved(self._wait, all_of_it - cpu)
        self._seen = max(now, self._seen)
        self.most = math.exp(max(0.0, self._cpu + self._wait))  # both only return to 1

    def _moved(self, believed: float, seen: float) -> float:
        moved = believed + self._weight * max(-_CLIP, min(_CLIP, seen - believed))
        return max(-_MOST, min(_MOST, moved))

    def _left(self, now: float) -> float:
        """The share of the factors' logarithms that has not decayed at `now`."""
        idle = now - self._seen - self._grace
        return 1.0 if idle <= 0 else 0.5 ** (idle / self._half_life)

    def factors(self, now: float) -> tuple[float, float]:
        """(CPU, waiting): how many times the prior's."""
        left = self._left(now)
        return math.exp(self._cpu * left), math.exp(self._wait * left)

    def scale(self, now: float) -> float:
        """Both factors together: how many times as long as the prior a run takes now."""
        return math.exp((self._cpu + self._wait) * self._left(now))

    def estimate(self, batch: int, now: float, size: float = 1.0) -> float:
        """Seconds by the wall that a run of `batch` items takes now."""
        return self.prior.seconds(batch, size) * self.scale(now)

    def largest_within(self, seconds: float, max_batch: int, now: float, size: float = 1.0) -> int:
        """The largest batch, up to `max_batch`, whose run takes at most `seconds` now; 0 where none does."""
        return self.prior.largest_within(seconds / self.scale(now), max_batch, size)

    def to_dict(self, now: float) -> dict[str, Any]:
        """JSON-ready: the priors, and the factors as of `now`."""
        cpu, wait = self.factors(now)
        return {
            "prior": self.prior.to_dict(),
            "cpu_prior": self.cpu_prior.to_dict(),
            "cpu_factor": cpu,
            "wait_factor": wait,
            "weight": self._weight,
            "half_life_s": self._half_life,
            "grace_s": self._grace,
        }

    @classmethod
    def from_dict(cls, told: Mapping[str, Any], now: float) -> Online:
        """What `to_dict` gave, as if its last run had ended at `now`; ValueError names what is wrong."""
        try:
            made = cls(
                Cost.from_dict(told["prior"]),
                Cost.from_dict(told["cpu_prior"]),
                weight=told["weight"],
                half_life_s=told["half_life_s"],
                grace_s=told["grace_s"],
            )
            made._cpu = max(-_MOST, min(_MOST, math.log(told["cpu_factor"])))
            made._wait = max(-_MOST, min(_MOST, math.log(told["wait_factor"])))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"an online cost is damaged: {error!r}") from error
        made._seen = now
        made.most = math.exp(max(0.0, made._cpu + made._wait))
        return made
