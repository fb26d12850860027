"""`onbudget tune`: which configuration holds a budget on this machine: predicted for all, proved live for the best.

Rules of this file. Four steps, each with its share of the time budget: runs are timed, a server under load tells what
requests cost beside them, every configuration is predicted by simulation, and the best few are served and loaded.
What is picked is picked by what was measured live. A step that runs out of time says what it left out.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from onbudget import __version__
from onbudget.core import units
from onbudget.core.candidates import Demand, Outlook, Shape, outlooks, ranked, wall
from onbudget.core.confidence import FEWEST
from onbudget.core.cost import Cost
from onbudget.core.errors import Infeasible, MeasurementInvalid, UsageError
from onbudget.core.options import option
from onbudget.core.overheads import ENOUGH, Overheads, usual
from onbudget.core.plan import POLICIES, Candidate, Plan
from onbudget.core.profile import Profile
from onbudget.core.traffic import Floats
from onbudget.engine.children import asked_cores, on_cores
from onbudget.engine.machine import Machine
from onbudget.prove.finals import QUIETEST, Finalist, play
from onbudget.prove.load import LoadOptions, plan
from onbudget.prove.profile import ProfileOptions, counts, profile_file
from onbudget.prove.settings import above_zero, whole
from onbudget.prove.stand import Payload, Stand

Say = Callable[[str], None]

# of the time budget, when each step ends
PROFILED, LEARNT, PREDICTED, FINISHED = 0.2, 0.3, 0.45, 0.94
PROFILE_LEAST_S = 2.0
LEARN_S = 4.0  # of load, at most
LEARN_AT = 0.4  # of the predicted limit rate
REQUESTS = 6_000  # simulated at a rate, to rank by
SHORTLIST = 8  # configurations whose limit rate is computed where loads are given
NEAR = 1.2  # times the budget: a prediction that much too late may still be wrong


def _policies(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    bad = [name for name in names if name not in POLICIES]
    if bad or not names:
        raise UsageError(f"{text!r}: policies are {', '.join(POLICIES)}" + (f", not {bad[0]!r}" if bad else ""))
    return names


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """What to tune for, and within which bounds. Times are seconds, rates a second; 0 for `cores` means all."""

    p95: float | None = option(
        None, "The p95 latency budget, such as 20ms.", parse=above_zero, metavar="DURATION", flag="--p95"
    )
    quiet: float | None = option(
        None, "A quiet load that the budget must hold under, such as 20/s.", parse=units.per_second, metavar="RATE"
    )
    peak: float | None = option(
        None,
        "The peak load. Without loads: the highest rate that holds.",
        parse=units.per_second,
        metavar="RATE",
    )
    trace: str = option("", "Recorded arrivals instead: an offset in seconds a line, or a run file.", metavar="FILE")
    time_budget: float = option("60s", "How long it may take, about.", parse=above_zero, metavar="DURATION")
    cores: int = option(
        "0",
        "Cores that the server will have; the load tests get the others. 0: all, shared with the load tests.",
        parse=whole(0, 1024),
        metavar="N",
    )
    lanes: tuple[int, ...] = option("", "Lanes to try, such as 1,2.  [default: by cores]", parse=counts, metavar="LIST")
    threads: tuple[int, ...] = option(
        "", "Threads inside a run to try.  [default: by cores]", parse=counts, metavar="LIST"
    )
    max_batch: int = option("32", "Largest batch to try.", parse=whole(1, 1024), metavar="N")
    policies: tuple[str, ...] = option(
        ",".join(POLICIES),
        "Policies to try. greedy is taken only where it is better by 5 %: it answers nobody in time beyond its limit.",
        parse=_policies,
        metavar="LIST",
    )
    finalists: int = option("3", "How many of the best are served and loaded.", parse=whole(1, 16), metavar="N")
    data: str = option("", "What to send: a folder of pictures, or a bundle (its samples).", metavar="DIR|BUNDLE")
    format: str = option("json", "How an item is sent.", choices=("json", "octet", "jpeg", "png"))
    seed: int = option("0", "Of arrivals and of random items.", parse=whole(0, 2**32 - 1), metavar="N")

    def __post_init__(self) -> None:
        """UsageError for options that need each other, or contradict."""
        if (self.quiet is None) != (self.peak is None):
            raise UsageError("--quiet and --peak belong together: give both, or none for the highest rate that holds")
        if self.quiet is not None and self.peak is not None and self.quiet > self.peak:
            raise UsageError(f"--quiet {self.quiet:g}/s is more than --peak {self.peak:g}/s; change them over")
        if self.trace and self.peak is not None:
            raise UsageError("--trace has its own times; leave out --quiet and --peak")
        if self.quiet is not None and self.quiet < QUIETEST:
            raise UsageError(
                f"--quiet {self.quiet:g}/s is too few requests to tell a p95 by: give {QUIETEST:g}/s or more, "
                "under which hardly any waits for another either"
            )


@dataclass(slots=True)
class _Variant:
    """A model file: its name in the plan, what its runs cost, and what a server of it told."""

    path: Path
    name: str
    profile: Profile
    costs: dict[Shape, Cost]


@dataclass(slots=True)
class Tuning:
    """One tuning on its way."""

    options: TuneOptions
    say: Say
    stand: Stand
    machine: Machine  # as the server sees it
    demand: Demand
    began: float
    notes: list[str] = field(default_factory=list)

    @property
    def budget_s(self) -> float:
        """The budget."""
        assert self.options.p95 is not None
        return self.options.p95

    def left(self, share: float) -> float:
        """Seconds until this share of the time budget is used."""
        return self.began + share * self.options.time_budget - time.monotonic()

    # ---- 1. runs ------------------------------------------------------------------------------------------------

    def profiled(self, paths: Sequence[Path]) -> list[_Variant]:
        """Time the runs of every variant, on the server's cores."""
        names = [path.name for path in paths]
        found = []
        for index, path in enumerate(paths):
            chosen = ProfileOptions(
                threads=self.options.threads,
                lanes=self.options.lanes,
                max_batch=self.options.max_batch,
                time_budget=max(PROFILE_LEAST_S, self.left(PROFILED) / (len(paths) - index)),
            )
            with on_cores(self.stand.cores):
                profile = profile_file(path, chosen, self.say)
            self.notes += profile.notes
            costs = {shape: profile.cost(*shape) for shape in profile.configurations()}
            name = path.name if names.count(path.name) == 1 else str(path)
            found.append(_Variant(path, name, profile, costs))
        return found

    # ---- 2. what requests cost beside runs ------------------------------------------------------------------------

    def learnt(self, variants: Sequence[_Variant]) -> Overheads:
        """Serve and load the first variant for a few seconds; all costs become those of runs in service."""
        variant = variants[0]
        shape = max((shape for shape in variant.costs if shape[0] == 1), key=lambda one: one[1], default=None)
        if shape is None:
            self.notes.append("with one thread a run nothing was tried, so requests are taken to cost what is usual")
            return usual()
        first = max(self.outlooks_of(variant, usual(), only=shape), key=lambda one: one.forecast.capacity)
        rate = LEARN_AT * (first.forecast.quick_limit_rate() or first.forecast.capacity)
        seconds = min(LEARN_S, max(1.0, self.left(LEARNT) - 1.0))
        if rate * seconds < 1.2 * ENOUGH:
            self.notes.append(
                f"at {rate:.3g} requests/s too few came to tell what one costs beside its run, so the usual is taken: "
                f"{usual().accept_s * 1e3:.2f} ms"
            )
            return usual()
        self.say(f"{variant.name}: {rate:,.0f} requests/s for {seconds:.0f} s, to learn what one costs beside its run")
        url = self.stand.serve(variant.path, first.configuration)
        self.stand.load(url, seconds, rate=rate)
        found = self.stand.learn(url, variant.costs[shape])
        self.stand.close()
        if found is None:
            self.notes.append("the server could not tell what a request costs beside its run, so the usual is taken")
            return usual()
        for every in variants:
            every.costs = {one: cost.scaled(found.factor) for one, cost in every.costs.items()}
        return found.overheads

    # ---- 3. predictions -------------------------------------------------------------------------------------------

    def outlooks_of(self, variant: _Variant, overheads: Overheads, only: Shape | None = None) -> list[Outlook]:
        """Its configurations; `only` those of one shape, to learn with."""
        costs = {shape: cost for shape, cost in variant.costs.items() if only in (None, shape)}
        policies = self.options.policies if only is None else POLICIES[:1]
        most = 1 if variant.profile.alone else self.options.max_batch
        cores = self.machine.cores()
        return outlooks(variant.name, costs, self.budget_s, cores, overheads, policies, most, REQUESTS)

    def predicted(self, every: Sequence[Outlook]) -> list[Outlook]:
        """What was predicted, the best first. Infeasible where nothing comes near the budget."""
        if self.demand.open:
            found = self._limits(every)
            if not any(one.limit_rate for one in found):
                raise Infeasible(wall(found, self.budget_s, self.demand))
            return ranked(found, self.budget_s)
        found = []
        for index, one in enumerate(_in_turns(every)):
            if self._out_of_time(len(found), len(every) - index):
                break
            self.say(f"predicting {one.model}: {one.configuration}")
            found.append(replace(one, loads=self.demand.expected(one.forecast)))
        best = [one.limited() for one in ranked(found, self.budget_s)[:SHORTLIST]]
        if not any(one.loads and one.loads.within(NEAR * self.budget_s) for one in best):
            raise Infeasible(wall(best, self.budget_s, self.demand))
        return best

    def _limits(self, every: Sequence[Outlook]) -> list[Outlook]:
        """Limit rates; whoever has less capacity than the finalists' limit rates is left out."""
        found: list[Outlook] = []
        for index, one in enumerate(_in_turns(every)):
            bars = sorted((o.limit_rate or 0.0 for o in found), reverse=True)[: self.options.finalists]
            if len(bars) == self.options.finalists and one.forecast.capacity < bars[-1]:
                continue
            if self._out_of_time(len(found), len(every) - index):
                break
            self.say(f"predicting {one.model}: {one.configuration}")
            found.append(one.limited())
        return found

    def _out_of_time(self, done: int, left: int) -> bool:
        """Whether predictions end here; there is always time for as many as go to the finals."""
        if done < self.options.finalists or self.left(PREDICTED) >= 0:
            return False
        self.notes.append(f"{left} configurations were not simulated: --time-budget was used up")
        return True

    # ---- 4. live --------------------------------------------------------------------------------------------------

    def proved(self, best: Sequence[Outlook], variants: Sequence[_Variant]) -> list[Finalist]:
        """Serve the best few side by side and load them."""
        files = {variant.name: variant.path for variant in variants}
        finalists = []
        for one in best[: self.options.finalists]:
            self.say(f"starting {one.model}: {one.configuration}")
            finalists.append(Finalist(one, self.stand.serve(files[one.model], one.configuration)))
        play(finalists, self.stand, self.demand, lambda: self.left(FINISHED), self.say)
        return finalists


def _in_turns(every: Sequence[Outlook]) -> list[Outlook]:
    """The order to predict in, since time may run out: of each variant in turn, deadlines first, the roomiest first."""
    order = sorted(every, key=lambda one: (one.configuration.policy == "greedy", -one.forecast.capacity))
    ranks: Counter[str] = Counter()
    placed: list[tuple[int, int, Outlook]] = []
    for one in order:
        placed.append((ranks[one.model], len(placed), one))
        ranks[one.model] += 1
    return [one for _, _, one in sorted(placed, key=lambda told: told[:2])]


def tune(paths: Sequence[Path], options: TuneOptions, say: Say, notes: list[str] | None = None) -> Plan:
    """Tune the model in `paths`, or the best of several variants of it, for this machine.

    `notes` is filled with what a reader should know, also where there is no plan in the end.
    Infeasible names the wall and the nearest budget and rate; UsageError, BundleError and TargetError as in the steps.
    """
    if twice := [str(path) for path, count in Counter(paths).items() if count > 1]:
        raise UsageError(f"{twice[0]} is given twice; variants are different files")
    if options.p95 is None:
        raise UsageError("tune holds a budget, so it needs one: add --p95 20ms")
    began, started = time.monotonic(), datetime.now(UTC)
    cores, ours = asked_cores(options.cores)
    moments, stretch = _window(options)
    demand = Demand(options.quiet, options.peak, moments)
    with on_cores(cores):
        machine = Machine.read()
    payload = Payload(options.data, options.format, options.seed)
    with Stand(options.p95, payload, cores, ours, machine.cores()) as stand:
        work = Tuning(options, say, stand, machine, demand, began, [] if notes is None else notes)
        variants = work.profiled(paths)
        overheads = work.learnt(variants)
        if stretch:
            work.notes.append(stretch)
        every = [one for variant in variants for one in work.outlooks_of(variant, overheads)]
        best = work.predicted(every)
        finalists = work.proved(best, variants)
    chosen = _picked(finalists, work)
    return _plan(work, variants, best, finalists, chosen, overheads, started)


def _window(options: TuneOptions) -> tuple[Floats | None, str]:
    """When a trace's requests come in its busiest stretch that a load test can last, and what it is; None without one.

    The stretch with the most requests, counted from its first one.
    """
    if not options.trace:
        return None, ""
    longest = options.time_budget * (FINISHED - PREDICTED) / options.finalists
    offsets = np.array(plan(LoadOptions(trace=options.trace, warmup=0.0)).offsets)
    ends = np.searchsorted(offsets, offsets + longest, side="right")
    first = int(np.argmax(ends - np.arange(len(offsets))))
    found: Floats = offsets[first : ends[first]]
    if len(found) < FEWEST:
        raise UsageError(
            f"{options.trace}: its busiest {longest:.3g} s have {len(found)} requests, and a p95 wants {FEWEST}; give "
            "a busier trace, or a longer --time-budget"
        )
    told = f"of {options.trace} the busiest {longest:.3g} s were used, from {found[0]:.4g} s on: {len(found)} requests"
    return found - found[0], told if len(found) < len(offsets) else ""


def _picked(finalists: Sequence[Finalist], work: Tuning) -> Finalist:
    """The finalist to serve with. Infeasible where none held what was asked, with what was measured."""
    found = _best(finalists, work)
    if found is not None:
        return found
    told = "; ".join(f"{one.outlook.configuration}: {one.words()}" for one in finalists)
    if doubt := next((trial.doubt for one in finalists for trial in one.trials if trial.doubt), ""):
        raise MeasurementInvalid(f"no configuration held the budget live ({told}), but {doubt}")
    raise Infeasible(
        f"predicted to hold {units.show_seconds(work.budget_s)}, but live none did: {told}. Try a larger --p95 or a "
        "lower --peak, or try again when this machine is quieter"
    )


def _best(finalists: Sequence[Finalist], work: Tuning) -> Finalist | None:
    from onbudget.core.pick import pick

    if work.demand.open:
        held = [one for one in finalists if one.measured_limit]
        return max(held, key=lambda one: one.measured_limit or 0.0, default=None)
    return pick({one: one.measured for one in finalists if one.measured}, work.budget_s)


def _far_off(chosen: Finalist) -> list[str]:
    """A sentence where what was measured is not what was predicted."""
    one, loads = chosen.outlook, chosen.outlook.loads
    if chosen.measured_limit and one.limit_rate and not 0.5 < chosen.measured_limit / one.limit_rate < 2:
        return [
            f"live it held {chosen.measured_limit:,.0f} requests/s where {one.limit_rate:,.0f} were predicted: "
            "on shared cores, or on a busy machine, predictions are too high"
        ]
    if chosen.measured and loads and chosen.measured.peak_s > 2 * loads.peak_s:
        told = f"{units.show_seconds(chosen.measured.peak_s)} where {units.show_seconds(loads.peak_s)} was predicted"
        return [f"live the p95 at peak was {told}: the limit rate is likely to be too high as well"]
    return []


def _plan(
    work: Tuning,
    variants: Sequence[_Variant],
    best: Sequence[Outlook],
    finalists: Sequence[Finalist],
    chosen: Finalist,
    overheads: Overheads,
    started: datetime,
) -> Plan:
    own = next(variant for variant in variants if variant.name == chosen.outlook.model)
    live = {id(one.outlook): one for one in finalists}

    def told(one: Outlook) -> Candidate:
        name = "" if one.model == own.name else one.model
        made = Candidate(one.configuration, one.limit_rate or 0.0, one.loads, model=name)
        if (seen := live.get(id(one))) is None:
            return made
        return replace(
            made,
            measured=seen.measured,
            measured_limit=seen.measured_limit,
            curve=one.curve(),
            trials=tuple(seen.trials),
        )

    work.notes += _far_off(chosen)
    return Plan(
        model=own.name,
        sha256=own.profile.sha256,
        machine=work.machine.facts(),
        p95_s=work.budget_s,
        quiet=work.options.quiet,
        peak=work.options.peak,
        chosen=chosen.outlook.configuration,
        candidates=tuple(told(one) for one in best),
        notes=tuple(work.notes),
        started=started.isoformat(timespec="seconds"),
        seconds=time.monotonic() - work.began,
        made_by=f"onbudget {__version__}",
        trace=work.options.trace,
        costs=own.profile.points,
        overheads=overheads,
    )
