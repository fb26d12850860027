"""`onbudget profile`: measure what a run of the bare model costs on this machine, by batch, threads and lanes.

Rules of this file. All points are measured in every round, in a new random order, so that a machine that drifts spoils
none of them alone. All lanes are busy while one is timed (`prove.corun`). Sizes that the time budget cannot pay for are
left out and named, never guessed.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onbudget import __version__
from onbudget.core import units
from onbudget.core.errors import BundleError, UsageError
from onbudget.core.options import option
from onbudget.core.profile import Point, Profile, check_origin, parse, shape
from onbudget.engine.files import write_atomically
from onbudget.engine.machine import Machine
from onbudget.engine.told import told
from onbudget.prove.corun import Clocks, Taken, corun
from onbudget.prove.items import SIZES, Items

if TYPE_CHECKING:  # importing session costs onnxruntime, which --help does not need
    from onbudget.engine.session import OrtRunner

_LEAST, _MOST = 3, 12  # rounds
_VISIT_S = 0.02  # a point is run for about so long in each round, or once
_RUNS = 50  # at most so many runs a visit
_BUSY = 0.9  # below this share of CPU in a run's time, somebody else wanted the core
_STOLEN = 0.01  # above this share of the machine's ticks, the host wanted it


def counts(text: str) -> tuple[int, ...]:
    """`1,2` → (1, 2), ascending; UsageError for anything but whole numbers from 1 to 256. Empty: choose."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdigit() and 1 <= int(part) <= 256 for part in parts):
        raise UsageError(f"{text!r} must be whole numbers from 1 to 256 with commas between, such as 1,2")
    return tuple(sorted({int(part) for part in parts}))


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """What to measure. Empty `threads` and `lanes` mean: what fits the CPUs that this process may use."""

    threads: tuple[int, ...] = option("", "Threads inside a run to try, such as 1,2.", parse=counts, metavar="LIST")
    lanes: tuple[int, ...] = option("", "Lanes (runs at once) to try, such as 1,2.", parse=counts, metavar="LIST")
    max_batch: int = option(32, "Largest batch to measure.", metavar="N")
    time_budget: float = option("20s", "How long it may take, about.", parse=units.seconds, metavar="DURATION")
    open_axis: int = option(32, "Size of open axes other than the batch (tokens, edges of pictures).", metavar="N")
    provider: str = option("cpu", "Execution providers in order; the first must be active.", metavar="A[,B]")
    seed: int = option(0, "Of the made-up items, and of the order in which points are measured.", metavar="N")

    def __post_init__(self) -> None:
        """UsageError for numbers that cannot be meant."""
        if not 1 <= self.max_batch <= SIZES[-1]:
            raise UsageError(f"--max-batch must be from 1 to {SIZES[-1]}, not {self.max_batch}")
        if self.open_axis < 1:
            raise UsageError(f"--open-axis must be at least 1, not {self.open_axis}")
        if self.time_budget <= 0:
            raise UsageError("--time-budget must be above zero")


@dataclass(slots=True)
class _Spot:
    """A point being measured: its lanes' runs, a first idea of its seconds, and what was taken so far."""

    threads: int
    lanes: int
    batch: int
    runs: list[Callable[[], Any]]
    visit: float  # seconds to be run in each round
    guess: float
    taken: list[Taken] = field(default_factory=list)

    @property
    def warm(self) -> bool:
        """Whether a visit begins with an untimed run; a long run fills the caches on its own time."""
        return self.guess < self.visit

    @property
    def count(self) -> int:
        """Timed runs of the first lane in a visit."""
        return max(1, min(_RUNS, round(self.visit / self.guess)))

    @property
    def seconds(self) -> float:
        """What a visit takes."""
        return self.guess * (self.count + self.warm)

    def point(self) -> Point:
        """The statistics of what was taken."""
        wall, cpu = [one.wall for one in self.taken], [one.cpu for one in self.taken]
        q90 = statistics.quantiles(wall, n=10, method="inclusive")[-1] if len(wall) > 1 else wall[0]
        return Point(
            threads=self.threads,
            lanes=self.lanes,
            batch=self.batch,
            runs=len(wall),
            median_s=statistics.median(wall),
            q90_s=q90,
            cpu_s=statistics.median(cpu),
        )


def configurations(options: ProfileOptions, cores: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(threads, lanes) to measure, and those that were asked for but want more than `cores`; UsageError for none."""
    threads = options.threads or tuple(2**i for i in range(cores.bit_length()))
    wanted = [(t, n) for t in threads for n in options.lanes or sorted({1, max(1, cores // t)})]
    fit = [(t, n) for t, n in wanted if t * n <= cores]
    if not fit:
        raise UsageError(
            f"{shape(*wanted[0])} wants {wanted[0][0] * wanted[0][1]} cores, and this process may use {cores}; "
            "give --threads and --lanes whose product fits"
        )
    return fit, [one for one in wanted if one not in fit]


class _Measuring:
    """One profile on its way: the items, the clocks, whom to tell, and the notes so far."""

    def __init__(self, name: str, options: ProfileOptions, say: Callable[[str], None], clocks: Clocks) -> None:
        self.name, self.options, self.say, self.clocks = name, options, say, clocks
        self.end = clocks.wall() + options.time_budget
        self.notes: list[str] = []

    def scout(self, items: Items, runner: OrtRunner, threads: int, lanes: int, share_s: float) -> Iterator[_Spot]:
        """Run each size once, smallest first, for as long as three rounds of all of them fit into `share_s`."""
        outputs = list(items.outputs)
        visit = min(_VISIT_S, share_s / (2 * _LEAST * len(items.sizes)))
        used, each = 0.0, 0.0
        for batch in items.sizes:
            guess = each * batch
            if used + 2 * guess + _LEAST * max(guess, visit) > share_s and each:
                self.notes.append(
                    f"{shape(threads, lanes)}: batches from {batch} were not measured, "
                    f"they do not fit in --time-budget {self.options.time_budget:g}s"
                )
                return
            self.say(f"a first look: {shape(threads, lanes)}, batch {batch}")
            seeds = range(self.options.seed, self.options.seed + lanes)
            runs = [partial(runner.run, items.feeds(batch, seed), outputs) for seed in seeds]
            spot = _Spot(threads, lanes, batch, [*runs], visit, self.look(runs, batch))
            used += 2 * spot.guess + _LEAST * spot.seconds
            each = spot.guess / batch
            yield spot

    def look(self, runs: Sequence[Callable[[], Any]], batch: int) -> float:
        """Seconds of one run after an untimed one; BundleError where the model does not run."""
        try:
            taken = corun(runs, 1, warm=True, clocks=self.clocks)
        except Exception as error:  # any runtime's own class; whatever it is, the model did not run
            raise BundleError(
                f"{self.name} does not run with made-up items in a batch of {batch}: {told(error)}; `onbudget check` "
                "says more, and --open-axis sets the size of axes that the file leaves open"
            ) from error
        return max(statistics.median(one.wall for one in taken), 1e-9)

    def rounds(self, spots: Sequence[_Spot]) -> int:
        """Visit all spots in random order until the time is used up, three times at least → how often."""
        each = sum(spot.seconds for spot in spots)
        planned = max(_LEAST, min(_MOST, int((self.end - self.clocks.wall()) / each)))
        order = list(spots)
        shuffle = random.Random(self.options.seed).shuffle
        for done in range(planned):
            if done >= _LEAST and self.clocks.wall() + each > self.end:
                return done
            shuffle(order)
            for spot in order:
                self.say(f"round {done + 1} of {planned}: {shape(spot.threads, spot.lanes)}, batch {spot.batch}")
                spot.taken += corun(spot.runs, spot.count, warm=spot.warm, clocks=self.clocks)
        return planned


def measure(
    open_runner: Callable[[int], OrtRunner],
    options: ProfileOptions,
    say: Callable[[str], None],
    *,
    name: str = "the model",
    machine: Machine | None = None,
    clocks: Clocks | None = None,
) -> Profile:
    """Measure a model; `open_runner(threads)` opens it with so many threads in a run, `say` hears of progress.

    Takes about `options.time_budget`, longer only where even three runs of single items do. UsageError where nothing
    that was asked for fits this machine, BundleError where the model does not run.
    """
    machine, clocks = machine or Machine.read(), clocks or Clocks()
    work = _Measuring(name, options, say, clocks)
    began, started, before = clocks.wall(), datetime.now(UTC), _disturbances(machine)
    wanted, left_out = configurations(options, machine.threads())
    work.notes += [f"{shape(*one)} was left out: this process may use {machine.threads()} cores" for one in left_out]
    runners = {threads: open_runner(threads) for threads in sorted({threads for threads, _ in wanted})}
    model = runners[wanted[0][0]]
    items = Items(name, model, model.metadata, options.max_batch, options.open_axis)
    spots: list[_Spot] = []
    for threads, lanes in wanted:
        spots += work.scout(items, runners[threads], threads, lanes, options.time_budget / len(wanted))
    rounds = work.rounds(spots)
    points = tuple(spot.point() for spot in spots)
    return Profile(
        model=name,
        sha256=model.sha256,
        items=items.shapes,
        alone=items.alone,
        providers=model.providers,
        machine=machine.facts(),
        points=points,
        notes=(*work.notes, *_doubts(points), *_disturbed(before, _disturbances(machine))),
        started=started.isoformat(timespec="seconds"),
        seconds=clocks.wall() - began,
        rounds=rounds,
        made_by=f"onbudget {__version__}",
    )


def _doubts(points: Sequence[Point]) -> Iterator[str]:
    """What the numbers themselves say against the measurement, or against a configuration."""
    shares: dict[tuple[int, int], list[float]] = {}
    for p in points:
        if p.threads == 1:  # else the lane's own thread does a part of the work only
            shares.setdefault((p.threads, p.lanes), []).append(p.cpu_s / p.median_s)
    worst = min((statistics.median(found) for found in shares.values()), default=1.0)
    if worst < _BUSY:
        yield (
            f"runs had their core for {worst:.0%} of their time: other work ran beside them; "
            "measure again when the machine is quiet"
        )
    best: dict[tuple[int, int], float] = {}
    for p in points:
        best[p.threads, p.lanes] = max(p.items_per_s, best.get((p.threads, p.lanes), 0.0))
    for (threads, lanes), rate in best.items():
        alone = best.get((threads, 1))
        if lanes > 1 and alone and rate < alone * (1 + 0.3 * (lanes - 1)):
            yield (
                f"{shape(threads, lanes)} do {rate / alone:.2f} times what one lane does: "
                "runs wait for each other, or for the memory"
            )


def _disturbances(machine: Machine) -> tuple[int, int, int]:
    """(periods in which the quota stopped us, stolen ticks, all ticks) so far; zeros where the system does not tell."""
    throttling, steal = machine.throttling(), machine.steal_ticks()
    return (throttling.throttled if throttling else 0, *(steal or (0, 0)))


def _disturbed(before: Sequence[int], after: Sequence[int]) -> Iterator[str]:
    throttled, stolen, ticks = (b - a for a, b in zip(before, after, strict=True))
    if throttled > 0:
        yield f"the CPU quota stopped this process in {throttled} periods: what was slow may have been that"
    if ticks > 0 and stolen / ticks > _STOLEN:
        yield f"the host took {stolen / ticks:.1%} of this machine's CPU time meanwhile: other guests compete with it"


def profile_file(path: Path, options: ProfileOptions, say: Callable[[str], None]) -> Profile:
    """Measure a model file on this machine; what `measure` and `engine.session.load_runner` raise."""
    from onbudget.engine.session import SessionOptions, load_runner, provider_names

    providers = provider_names(options.provider)
    say(f"opening {path}")
    return measure(
        lambda threads: load_runner(path, SessionOptions(threads=threads, providers=providers)),
        options,
        say,
        name=path.name,
    )


def write_profile(profile: Profile, path: Path) -> None:
    """Write the record; UsageError where the file cannot be written."""
    text = json.dumps(profile.to_dict(), ensure_ascii=False, allow_nan=False, indent=1)
    write_atomically(path, (text + "\n").encode())


def read_profile(path: Path) -> Profile:
    """A profile from wherever it was made; UsageError where there is no file, RecordError for damage."""
    try:
        return parse(path.read_bytes(), str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def load_profile(path: Path, *, sha256: str, machine: Machine | None = None) -> Profile:
    """The profile of the model with this hash on this machine (read now when None).

    UsageError, naming both, where it was made of another model or on another machine; RecordError for damage.
    """
    found = read_profile(path)
    check_origin(found, str(path), sha256=sha256, machine=(machine or Machine.read()).facts())
    return found
