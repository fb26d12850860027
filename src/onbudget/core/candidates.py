"""Which configurations a tuner considers, what it expects of them, and in which order it would try them.

Rules of this file. Nothing is measured here: runs' costs and overheads come in, and `core.forecast` predicts. A limit
rate never exceeds the capacity, so whoever has less capacity than another's limit rate needs no simulation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from onbudget.core.cost import Cost
from onbudget.core.deadline import batch_for, fits_inline
from onbudget.core.forecast import Forecast
from onbudget.core.overheads import Overheads
from onbudget.core.pick import Loads
from onbudget.core.plan import Configuration
from onbudget.core.profile import shape
from onbudget.core.traffic import Floats
from onbudget.core.units import show_rate, show_seconds

WORTH = 0.05  # greedy keeps nothing beyond its limit, so it must be better by more than a prediction errs
ALIKE = 0.02  # limit rates that differ by less are told apart by latency
_SHARE = 0.7  # of a limit rate, where latency is compared
SHARES = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.05)  # of the limit rate: the rates of a curve

Shape = tuple[int, int]  # threads, lanes


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no one truth
class Demand:
    """What a server will be asked: `quiet` and `peak` requests a second, or recorded `moments` in seconds.

    Neither: as much as it can hold.
    """

    quiet: float | None = None
    peak: float | None = None
    moments: Floats | None = None

    @property
    def open(self) -> bool:
        """Whether no load is given."""
        return self.peak is None and self.moments is None

    def expected(self, forecast: Forecast) -> Loads | None:
        """Its p95 under these loads, of a trace's moments both times the same; None where no load is given."""
        if self.moments is not None:
            p95 = forecast.replayed(self.moments).p95
            return Loads(p95, p95)
        if self.quiet is None or self.peak is None:
            return None
        return Loads(forecast.p95(self.quiet), forecast.p95(self.peak))


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is expected of one configuration of the model `model`; `limit_rate` is None where it was not computed."""

    model: str
    forecast: Forecast
    loads: Loads | None = None
    limit_rate: float | None = None

    @property
    def configuration(self) -> Configuration:
        """How the server would run."""
        return self.forecast.configuration

    def limited(self) -> Outlook:
        """With its limit rate."""
        return self if self.limit_rate is not None else replace(self, limit_rate=self.forecast.limit_rate())

    def curve(self) -> tuple[tuple[float, float], ...]:
        """(rate, p95 in seconds) around the limit rate; nothing where that is 0 or not known."""
        rates = [share * self.limit_rate for share in SHARES] if self.limit_rate else []
        return tuple((rate, self.forecast.p95(rate)) for rate in rates)


def batches(cost: Cost, most: int) -> list[int]:
    """Largest batches to try: powers of two within what was measured, and the largest that was."""
    sizes = [batch for batch, _ in cost.points if batch <= most] or [cost.points[0][0]]
    return [n for n in (2**i for i in range(sizes[-1].bit_length())) if sizes[0] <= n < sizes[-1]] + [sizes[-1]]


def outlooks(
    model: str,
    costs: Mapping[Shape, Cost],
    budget_s: float,
    cores: float,
    overheads: Overheads,
    policies: Sequence[str],
    most: int,
    requests: int,
) -> list[Outlook]:
    """Every configuration of a model, as a server would build it; one that only another's flags would give comes once.

    `costs` are seconds a run with all lanes busy, `requests` how many are simulated at a rate.
    """
    found: dict[Configuration, Outlook] = {}
    for (threads, lanes), cost in costs.items():
        for policy in policies:
            for wanted in batches(cost, most):
                size = batch_for(cost, budget_s, wanted) if policy == "deadline" else wanted
                made = Configuration(lanes, threads, size, policy)
                inline = lanes == threads == 1 and cores < 2 and fits_inline(cost, size, budget_s)
                forecast = Forecast(cost, overheads, made, budget_s, inline, cores=cores, requests=requests)
                found.setdefault(made, Outlook(model, forecast))
    return list(found.values())


def ranked(found: Iterable[Outlook], budget_s: float) -> list[Outlook]:
    """Best first: the lowest p95 at peak of those within the budget; without loads the highest limit rate.

    Limit rates that are alike are ordered by p95 at one rate, what is equal as it came. Greedy is left out where a
    deadline is as good but for WORTH: beyond its limit rate greedy answers nobody in time.
    """
    every = list(found)
    best = max((one.limit_rate or 0.0 for one in every), default=0.0)
    order = {id(one): _by_loads(one, budget_s) if one.loads else _by_limit(one, best) for one in every}
    careful = [one for one in every if one.configuration.policy == "deadline"]
    return sorted(
        (o for o in every if o in careful or not any(_as_good(c, o, budget_s) for c in careful)),
        key=lambda one: order[id(one)],
    )


def _as_good(careful: Outlook, greedy: Outlook, budget_s: float) -> bool:
    """Whether a deadline holds what greedy holds, but for WORTH."""
    if careful.loads and greedy.loads:
        return careful.loads.within(budget_s) and careful.loads.peak_s <= greedy.loads.peak_s * (1 + WORTH)
    return (careful.limit_rate or 0.0) * (1 + WORTH) >= (greedy.limit_rate or 0.0) > 0


def _by_loads(one: Outlook, budget_s: float) -> tuple[float, float]:
    assert one.loads is not None
    if one.loads.within(budget_s):
        return 0.0, one.loads.peak_s
    return 1.0, max(one.loads.quiet_s, one.loads.peak_s)


def _by_limit(one: Outlook, best: float) -> tuple[float, float]:
    """In steps of ALIKE below the best, and inside a step by latency."""
    if not one.limit_rate or not best:
        return math.inf, math.inf
    return math.floor((1 - one.limit_rate / best) / ALIKE), one.forecast.p95(_SHARE * best)


def wall(found: Sequence[Outlook], budget_s: float, demand: Demand) -> str:
    """Why no configuration holds the budget under the loads, and the nearest budget and rate that one would, in words.

    All are predictions; `found` are all configurations that were considered, at least one.
    """
    fastest = min(found, key=lambda one: one.forecast.loaded.seconds(1))
    alone, run = fastest.forecast.loaded.seconds(1), fastest.forecast.cost.seconds(1)
    budget = show_seconds(budget_s)
    if alone > budget_s:
        part, mend = "the model's run", "a smaller or quantised model would come nearer"
        if run < alone / 2:
            part, mend = "reading, forming a batch and answering", "a cheaper body than this (--format octet) may help"
        return (
            f"one item alone takes {show_seconds(alone)} ({_shape(fastest)}), of which {show_seconds(run)} is the "
            f"model's run: {part} is the wall. The nearest budget is {show_seconds(_rounded(_lone(fastest)))}, for few "
            f"requests; {mend}"
        )
    best = max(found, key=lambda one: one.limit_rate or 0.0)
    if best.limit_rate:
        rate = f"within {budget} at most {show_rate(best.limit_rate)} requests/s ({best.configuration}, predicted)"
    else:
        rate = f"within {budget} no rate holds"
    if demand.peak is None:
        return f"no configuration holds the loads within {budget}; the nearest rate: {rate}"
    roomy = max(found, key=lambda one: one.forecast.capacity)
    if roomy.forecast.capacity <= demand.peak:
        return (
            f"this machine is predicted to run at most {show_rate(roomy.forecast.capacity)} requests/s whatever the "
            f"budget ({_shape(roomy)}), and the peak is {show_rate(demand.peak)}/s: throughput is the wall. The "
            f"nearest rate: {rate}"
        )
    near, seconds = min(((one, _needed(one, demand)) for one in found), key=lambda told: told[1])
    if not math.isfinite(seconds):
        return (
            f"the peak of {show_rate(demand.peak)}/s is at the edge of what this machine runs; the nearest rate: {rate}"
        )
    share = demand.peak / near.forecast.capacity
    return (
        f"at {show_rate(demand.peak)}/s p95 is predicted to be {show_seconds(seconds)} at best "
        f"({near.configuration}), where one item alone takes {show_seconds(near.forecast.loaded.seconds(1))}: "
        f"at {share:.0%} of the capacity waiting is the wall. "
        f"The nearest budget is {show_seconds(_rounded(seconds))}; the nearest rate: {rate}"
    )


def _shape(one: Outlook) -> str:
    return shape(one.configuration.threads, one.configuration.lanes)


def _needed(one: Outlook, demand: Demand) -> float:
    """The smallest budget under both loads, where nobody is refused."""
    assert demand.quiet is not None
    assert demand.peak is not None
    greedy = replace(one.configuration, policy="greedy")
    forecast = replace(one.forecast, configuration=greedy)
    if demand.peak >= forecast.capacity:
        return math.inf
    return max(forecast.p95(demand.quiet), forecast.p95(demand.peak))


def _lone(one: Outlook) -> float:
    """A budget for a request that comes while another's run is on, now and then."""
    return 1.25 * one.forecast.loaded.seconds(1)


def _rounded(seconds: float) -> float:
    """Up, to two digits: nobody declares a budget of 33.7183 ms."""
    step: float = 10.0 ** (math.floor(math.log10(seconds)) - 1)
    return math.ceil(seconds / step) * step
