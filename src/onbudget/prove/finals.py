"""The finals of a tuning: the best few configurations, served side by side, under the loads that they are meant for.

They take turns, A B C then C B A, so that what drifts evenly weighs on all alike. With loads each is offered quiet and
peak; without, each looks for its own limit rate, where one that proves predictions too high or too low on this machine
tells the next one where to begin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from onbudget.core.bracket import holds, limit_of, next_rate
from onbudget.core.candidates import Demand, Outlook
from onbudget.core.confidence import FEWEST
from onbudget.core.pick import Loads
from onbudget.core.plan import Trial
from onbudget.core.traffic import Floats
from onbudget.core.units import show_seconds
from onbudget.prove.load import Run
from onbudget.prove.stand import SETTLE_S, Stand

Say = Callable[[str], None]
Left = Callable[[], float]

STEPS = 4  # load tests in the search for one limit rate
BEGIN = 0.9  # of the predicted limit rate
LEAST_S, MOST_S = 1.0, 15.0  # of one load test
QUIET_SHARE = 0.3  # of the time for the loads; few requests need long to tell a p95, and all agree at quiet
QUIETEST = 2.0  # requests a second: fewer tell nothing in MOST_S
_FEW = 140  # requests that tell a p95, at the least


@dataclass(eq=False, slots=True)
class Finalist:
    """One of them: where it listens, and what its load tests said."""

    outlook: Outlook
    url: str
    trials: list[Trial] = field(default_factory=list)
    measured: Loads | None = None
    measured_limit: float | None = None

    def words(self) -> str:
        """What was measured, in words."""
        return "; ".join(
            f"p95 {show_seconds(one.p95_s) if one.p95_s < float('inf') else 'without bound'} at {one.rate:,.0f}/s"
            for one in self.trials
        )


def play(finalists: Sequence[Finalist], stand: Stand, demand: Demand, left: Left, say: Say) -> None:
    """Fill in what each of them does; `left` tells the seconds that are left."""
    if demand.open:
        _limits(finalists, stand, left, say)
    elif demand.moments is not None:
        _replay(finalists, stand, demand.moments, say)
    else:
        assert demand.quiet is not None
        assert demand.peak is not None
        _loads(finalists, stand, (demand.quiet, demand.peak), left, say)


def _loads(finalists: Sequence[Finalist], stand: Stand, rates: tuple[float, float], left: Left, say: Say) -> None:
    whole = max(0.0, left()) / len(finalists)
    found: dict[float, dict[Finalist, Trial]] = {}
    for rate, share, rounds in zip(rates, (QUIET_SHARE, 1 - QUIET_SHARE), (1, 2), strict=True):
        if rate in found:
            continue  # quiet and peak are one
        enough = min(_FEW / rate, 2 * whole * share)  # a p95 wants requests, but not all the time that there is
        least = max(LEAST_S, FEWEST / rate)
        seconds = min(MOST_S, max(least, enough / rounds, whole * share / rounds - SETTLE_S))
        runs: dict[Finalist, list[Run]] = {one: [] for one in finalists}
        for turn in range(rounds):
            for one in (finalists, finalists[::-1])[turn]:
                say(f"{one.outlook.model}, {one.outlook.configuration}: {rate:g} requests/s for {seconds:.1f} s")
                runs[one].append(stand.load(one.url, seconds, rate=rate, seed=turn))
        found[rate] = {one: stand.trial(runs[one]) for one in finalists}
    for one in finalists:
        quiet, peak = (found[rate][one] for rate in rates)
        one.trials = list({id(trial): trial for trial in (quiet, peak)}.values())
        one.measured = Loads(quiet.p95_s, peak.p95_s)


def _replay(finalists: Sequence[Finalist], stand: Stand, moments: Floats, say: Say) -> None:
    for one in finalists:
        say(f"{one.outlook.model}, {one.outlook.configuration}: {len(moments)} requests of the trace")
        trial = stand.trial([stand.replay(one.url, moments)])
        one.trials, one.measured = [trial], Loads(trial.p95_s, trial.p95_s)


def _limits(finalists: Sequence[Finalist], stand: Stand, left: Left, say: Say) -> None:
    seconds = min(MOST_S, max(LEAST_S, left() / (STEPS * len(finalists)) - SETTLE_S - 0.1))
    scale = BEGIN
    for step in range(STEPS):
        for one in (finalists, finalists[::-1])[step % 2]:
            expected = one.outlook.limit_rate or one.outlook.forecast.capacity
            rate = next_rate(one.trials, scale * expected)
            say(f"{one.outlook.model}, {one.outlook.configuration}: {rate:,.0f} requests/s for {seconds:.1f} s")
            one.trials.append(stand.trial([stand.load(one.url, seconds, rate=rate, seed=step)]))
            if step == 0 and not holds(one.trials[0]):
                scale = min(scale, next_rate(one.trials, rate) / expected)
    for one in finalists:
        one.measured_limit = limit_of(one.trials) if any(map(holds, one.trials)) else 0.0
