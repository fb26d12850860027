"""What is measured, how often and in which order; with a clock that only moves when a run says so."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onbudget.core.errors import BundleError, UsageError
from onbudget.core.metadata import Metadata
from onbudget.core.profile import Point, Profile
from onbudget.engine.machine import Machine
from onbudget.engine.session import Port, load_runner
from onbudget.prove import profile as module
from onbudget.prove.corun import Clocks
from onbudget.prove.profile import (
    ProfileOptions,
    configurations,
    counts,
    load_profile,
    measure,
    profile_file,
    read_profile,
    write_profile,
)
from tests import models

OPEN = (Port("x", "float32", (None, 4)),)
LINE = (0.002, 0.001)  # seconds a run, and an item


class Fake:
    """A model whose runs move the clocks: the wall for everybody, CPU time for the thread that runs."""

    def __init__(
        self,
        cost: Callable[[int], float] = lambda rows: LINE[0] + LINE[1] * rows,
        inputs: tuple[Port, ...] = OPEN,
        metadata: Metadata | None = None,
        cpu_share: float = 1.0,
    ) -> None:
        self.inputs, self.outputs = inputs, (Port("y", "float32", (None, 2)), Port("z", "float32", (None, 2)))
        self.metadata, self.sha256, self.providers = metadata, "f" * 64, ("CPUExecutionProvider",)
        self.cost, self.cpu_share = cost, cpu_share
        self.now = 0.0
        self.lock, self.own = threading.Lock(), threading.local()
        self.log: list[tuple[int, int]] = []  # (rows, thread)
        self.feeds: list[Mapping[str, Any]] = []
        self.asked: list[Any] = []
        self.threads: list[int] = []
        self.clocks = Clocks(lambda: self.now, lambda: getattr(self.own, "cpu", 0.0))

    def open(self, threads: int) -> Any:
        self.threads.append(threads)
        return self

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, stop: Any = None) -> list[Any]:
        first = next(iter(feeds.values()))
        rows = first.shape[0] if first.ndim else 1
        seconds = self.cost(rows)
        with self.lock:
            self.now += seconds
            self.log.append((rows, threading.get_ident()))
            self.feeds.append(feeds)
            self.asked.append(outputs)
        self.own.cpu = getattr(self.own, "cpu", 0.0) + seconds * self.cpu_share
        return [np.zeros((rows, 2), np.float32)]


def machine(root: Path, cores: int = 2) -> Machine:
    """A fixture machine with so many cores, of which nothing else is known."""
    status = root / "proc/self/status"
    status.parent.mkdir(parents=True, exist_ok=True)
    status.write_text(f"Name:\tx\nCpus_allowed_list:\t0-{cores - 1}\n")
    return Machine.read(root, onnxruntime="1.0")


def profiled(fake: Fake, tmp_path: Path, *, cores: int = 1, said: list[str] | None = None, **options: Any) -> Profile:
    told = [] if said is None else said
    return measure(
        fake.open, ProfileOptions(**options), told.append, machine=machine(tmp_path, cores), clocks=fake.clocks
    )


def test_each_batch_size_gets_its_seconds(tmp_path: Path) -> None:
    """Median, q90 and CPU of a model whose cost is known are that cost, and so is the cost made of them."""
    found = profiled(Fake(cpu_share=0.95), tmp_path, max_batch=20)
    assert [p.batch for p in found.points] == [1, 2, 3, 4, 6, 8, 12, 16, 20]
    for p in found.points:
        assert (p.median_s, p.q90_s) == pytest.approx((0.002 + 0.001 * p.batch,) * 2)
        assert p.cpu_s == pytest.approx(0.95 * p.median_s)
        assert p.runs >= 3
    assert found.cost().seconds(10) == pytest.approx(0.012)
    assert (found.sha256, found.items, found.providers) == ("f" * 64, {"x": [4]}, ("CPUExecutionProvider",))
    assert found.pays(1, 1).startswith("batching pays up to 16 here")
    assert found.notes == ()


def test_every_round_visits_every_point_in_an_order_of_its_own(tmp_path: Path) -> None:
    """So that drift spoils no point alone; the seed gives the order back."""
    said: list[str] = []
    found = profiled(Fake(), tmp_path, max_batch=16, said=said)
    rounds = [
        [text.split(", ")[-1] for text in said if text.startswith(f"round {n + 1} of")] for n in range(found.rounds)
    ]
    assert all(sorted(r) == sorted(rounds[0]) and len(r) == 8 for r in rounds)
    assert len({tuple(r) for r in rounds}) > found.rounds / 2
    again: list[str] = []
    profiled(Fake(), tmp_path, max_batch=16, said=again)
    assert again == said
    other: list[str] = []
    profiled(Fake(), tmp_path, max_batch=16, said=other, seed=1)
    assert other != said


def test_the_first_run_of_a_size_is_not_timed(tmp_path: Path) -> None:
    """It allocates, and costs a hundred times as much; nothing of that is in the figures."""
    seen: set[int] = set()

    def cost(rows: int) -> float:
        first = rows not in seen
        seen.add(rows)
        return 0.001 * rows * (100 if first else 1)

    found = profiled(Fake(cost), tmp_path, max_batch=8, time_budget=60.0)
    assert [p.q90_s for p in found.points] == pytest.approx([0.001 * p.batch for p in found.points])


@pytest.mark.parametrize("each", [1e-5, 3e-4, 0.003, 0.05, 0.4])
@pytest.mark.parametrize("budget", [1.0, 5.0, 20.0])
def test_it_stops_at_sizes_that_the_time_does_not_allow(tmp_path: Path, each: float, budget: float) -> None:
    """Every point has three rounds or more, sizes too large are named, and the time is kept where one item fits."""
    fake = Fake(lambda rows: each * rows)
    found = profiled(fake, tmp_path, time_budget=budget)
    assert found.rounds >= 3
    assert all(p.runs >= 3 for p in found.points)
    assert [p.batch for p in found.points] == [b for b in module.SIZES if b <= found.points[-1].batch]
    assert found.seconds <= max(1.2 * budget, 5 * each + 1e-9)
    left_out = [note for note in found.notes if "were not measured" in note]
    assert bool(left_out) == (found.points[-1].batch < 32)
    if left_out:
        following = module.SIZES[module.SIZES.index(found.points[-1].batch) + 1]
        assert f"batches from {following} were not measured" in left_out[0]
        assert f"--time-budget {budget:g}s" in left_out[0]


def test_all_lanes_run_while_one_is_timed(tmp_path: Path) -> None:
    """Two lanes run on two threads with items of their own; CPU seconds a run stay each thread's own."""
    fake = Fake(lambda rows: 0.01 * rows)
    found = profiled(fake, tmp_path, cores=2, threads=(1,), lanes=(2,), max_batch=2, time_budget=1.0)
    assert found.configurations() == [(1, 2)]
    assert [p.cpu_s for p in found.points] == pytest.approx([0.01, 0.02])
    calls = list(zip(fake.feeds, fake.log, strict=True))
    for batch in (1, 2):
        mine = [feeds["x"] for feeds, (rows, who) in calls if rows == batch and who == threading.get_ident()]
        others = [feeds["x"] for feeds, (rows, who) in calls if rows == batch and who != threading.get_ident()]
        assert len(mine) >= 4
        assert len(others) >= 4
        assert not np.array_equal(mine[0], others[0])
        assert all(x is mine[0] for x in mine)
        assert all(x is others[0] for x in others)


def test_each_number_of_threads_is_opened_once(tmp_path: Path) -> None:
    """What fits two cores: one lane with 1 and with 2 threads, and two lanes."""
    fake = Fake()
    found = profiled(fake, tmp_path, cores=2, max_batch=2, time_budget=0.5)
    assert fake.threads == [1, 2]
    assert found.configurations() == [(1, 1), (1, 2), (2, 1)]


def test_only_what_the_task_reads_is_asked_for(tmp_path: Path) -> None:
    """A bundle's own output, as in service; a plain file's outputs are all its task's."""
    passport = Metadata(task="classify", labels=("a", "b"), output="z")
    for metadata, outputs in ((passport, ["z"]), (None, ["y", "z"])):
        fake = Fake(metadata=metadata)
        profiled(fake, tmp_path, max_batch=1, time_budget=0.1)
        assert all(asked == outputs for asked in fake.asked)


@pytest.mark.parametrize(
    ("inputs", "unbatchable", "batches", "rows", "alone"),
    [
        ((Port("x", "float32", (8, 4)),), "", [8], {8}, ""),
        ((Port("x", "float32", (1, 4)),), "", [1], {1}, "fixes the batch axis at 1"),
        ((Port("x", "float32", (8, 4)),), "it mixes its rows", [1], {8}, "it mixes its rows"),
        (OPEN, "it mixes its rows", [1], {1}, "it mixes its rows"),
        ((Port("x", "float32", (3, 4)), Port("s", "int64", ())), "", [1], {3}, "has no axes"),
        ((Port("x", "float32", (5, 4)), Port("s", "int64", (2,))), "", [1], {5}, "do not share"),
    ],
)
def test_sizes_that_the_file_does_not_allow_are_not_tried(
    tmp_path: Path, inputs: tuple[Port, ...], unbatchable: str, batches: list[int], rows: set[int], alone: str
) -> None:
    """A frozen batch is run whole; what must not share a run is measured one at a time, and the sentence says why."""
    fake = Fake(inputs=inputs, metadata=Metadata(unbatchable=unbatchable) if unbatchable else None)
    found = profiled(fake, tmp_path, time_budget=1.0)
    assert [p.batch for p in found.points] == batches
    assert {seen for seen, _ in fake.log} == rows
    assert alone in found.alone
    assert bool(found.alone) == bool(alone)
    assert found.alone in found.pays(1, 1)


def test_open_axes_are_filled_and_told(tmp_path: Path) -> None:
    """Tokens by 16: the cost is that of such an item, and the record says so."""
    fake = Fake(inputs=(Port("ids", "int64", (None, None)), Port("mask", "int64", (None, None, 2))))
    found = profiled(fake, tmp_path, max_batch=2, open_axis=16, time_budget=1.0)
    assert found.items == {"ids": [16], "mask": [16, 2]}
    assert {feeds["mask"].shape[1:] for feeds in fake.feeds} == {(16, 2)}


def test_a_sequence_is_no_tensor(tmp_path: Path) -> None:
    """BundleError with the input's name."""
    with pytest.raises(BundleError, match="input 's' is a sequence or a map"):
        profiled(Fake(inputs=(Port("s", "", (None,)),)), tmp_path)


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_model_that_does_not_run_is_one_message(tmp_path: Path, lanes: int) -> None:
    """The batch at which it failed, the runtime's reason, and what to try."""

    def cost(rows: int) -> float:
        if rows > 2:
            raise RuntimeError("shape mismatch")
        return 0.001

    with pytest.raises(BundleError, match=r"in a batch of 3: shape mismatch.*--open-axis"):
        profiled(Fake(cost), tmp_path, cores=2, threads=(1,), lanes=(lanes,))


@pytest.mark.parametrize(
    ("cores", "given", "fit", "over"),
    [
        (1, {}, [(1, 1)], []),
        (2, {}, [(1, 1), (1, 2), (2, 1)], []),
        (3, {}, [(1, 1), (1, 3), (2, 1)], []),
        (4, {}, [(1, 1), (1, 4), (2, 1), (2, 2), (4, 1)], []),
        (2, {"threads": (1, 2), "lanes": (1, 2)}, [(1, 1), (1, 2), (2, 1)], [(2, 2)]),
        (8, {"lanes": (4,)}, [(1, 4), (2, 4)], [(4, 4), (8, 4)]),
        (8, {"threads": (3,)}, [(3, 1), (3, 2)], []),
    ],
)
def test_what_is_tried_fits_the_cores(
    cores: int, given: dict[str, Any], fit: list[tuple[int, int]], over: list[tuple[int, int]]
) -> None:
    """Threads times lanes never exceed the whole cores of this process; what was asked for beyond them is told."""
    assert configurations(ProfileOptions(**given), cores) == (fit, over)


def test_what_wants_more_cores_is_left_out_and_noted(tmp_path: Path) -> None:
    """A note for each; where nothing is left that is a mistake."""
    options = {"threads": (1, 2), "lanes": (1, 2), "max_batch": 1, "time_budget": 0.5}
    found = profiled(Fake(), tmp_path, cores=2, **options)
    assert "2 lanes × 2 threads was left out: this process may use 2 cores" in found.notes
    with pytest.raises(UsageError, match="4 lanes × 2 threads wants 8 cores, and this process may use 2"):
        profiled(Fake(), tmp_path, cores=2, threads=(2,), lanes=(4,))


def test_a_disturbed_measurement_says_so(tmp_path: Path) -> None:
    """Runs that had their core for less than 90 % of their time."""
    found = profiled(Fake(cpu_share=0.6), tmp_path, max_batch=4, time_budget=1.0)
    assert any("had their core for 60% of their time" in note for note in found.notes)


def test_the_quota_and_the_host_are_noted() -> None:
    """Periods in which the quota stopped us, and ticks that the host took, while it was measured."""
    notes = list(module._disturbed((5, 100, 1000), (7, 130, 2000)))
    assert "stopped this process in 2 periods" in notes[0]
    assert "the host took 3.0%" in notes[1]
    assert not list(module._disturbed((5, 100, 1000), (5, 105, 2000)))
    assert not list(module._disturbed((0, 0, 0), (0, 0, 0)))


def test_lanes_that_wait_for_each_other_are_noted() -> None:
    """Some providers lock around a run: two lanes then do no more than one."""

    def points(two: float) -> list[Point]:
        return [Point(1, lanes, 4, 9, s, s, s) for lanes, s in ((1, 0.010), (2, two))]

    assert "2 lanes × 1 thread do 1.02 times what one lane does" in next(iter(module._doubts(points(0.0196))))
    assert not list(module._doubts(points(0.012)))


@pytest.mark.parametrize(("text", "found"), [("1", (1,)), ("2, 1,2", (1, 2)), ("", ()), ("256", (256,))])
def test_lists_of_counts(text: str, found: tuple[int, ...]) -> None:
    """Ascending, each once; empty means: choose."""
    assert counts(text) == found


@pytest.mark.parametrize("text", ["0", "1;2", "-1", "1.5", "two", "257"])
def test_what_is_no_count_is_told(text: str) -> None:
    """UsageError with the text."""
    with pytest.raises(UsageError, match="whole numbers from 1 to 256"):
        counts(text)


@pytest.mark.parametrize(
    "given", [{"max_batch": 0}, {"max_batch": 1025}, {"open_axis": 0}, {"time_budget": 0.0}], ids=str
)
def test_options_that_cannot_be_meant(given: dict[str, Any]) -> None:
    """UsageError with the flag's name."""
    with pytest.raises(UsageError, match="--" + next(iter(given)).replace("_", "-")):
        ProfileOptions(**given)


# ---- files ----------------------------------------------------------------------------------------------------------


def test_a_real_model_is_profiled_written_and_read_back(tmp_path: Path) -> None:
    """A real session in two configurations; the file is this model's and this machine's, and gives the same costs."""
    path, out = models.write(models.tile_cnn(), tmp_path / "tiles.onnx"), tmp_path / "p.json"
    options = ProfileOptions(threads=(1,), lanes=(1, 2), max_batch=3, time_budget=0.3)
    if Machine.read().threads() < 2:  # a smaller machine measures what it can
        options = ProfileOptions(threads=(1,), lanes=(1,), max_batch=3, time_budget=0.3)
    found = profile_file(path, options, lambda text: None)
    assert {(p.threads, p.lanes, p.batch) for p in found.points} == {
        (1, lanes, batch) for lanes in options.lanes for batch in (1, 2, 3)
    }
    assert all(0 < p.median_s <= p.q90_s and p.cpu_s > 0 and p.runs >= 3 for p in found.points)
    assert (found.model, found.items) == ("tiles.onnx", {"tiles": [3, 8, 8]})
    write_profile(found, out)
    again = load_profile(out, sha256=load_runner(path).sha256)
    assert again == found
    assert again.cost(1, 1) == found.cost(1, 1)


def test_a_profile_from_elsewhere_is_read_but_not_taken_for_this_ones(tmp_path: Path) -> None:
    """`read_profile` reads any; `load_profile` refuses another model's and another machine's."""
    out, here = tmp_path / "p.json", machine(tmp_path / "here")
    found = profiled(Fake(), tmp_path / "here", cores=2, max_batch=1, time_budget=0.1)
    write_profile(found, out)
    assert read_profile(out) == load_profile(out, sha256="f" * 64, machine=here) == found
    with pytest.raises(UsageError, match="not of the model with sha256 eeee"):
        load_profile(out, sha256="e" * 64, machine=here)
    with pytest.raises(UsageError, match=r"another machine .* affinity 2 there, 8 here"):
        load_profile(out, sha256="f" * 64, machine=machine(tmp_path / "there", cores=8))


def test_no_file_is_a_usage_error(tmp_path: Path) -> None:
    """With its path and the system's reason."""
    with pytest.raises(UsageError, match=r"none.json cannot be read: No such file"):
        read_profile(tmp_path / "none.json")


def test_the_page_on_cost_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Python, with a profile in the folder."""
    page = (Path(__file__).parents[2] / "docs/concepts/cost.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    write_profile(profiled(Fake(), tmp_path, max_batch=8, time_budget=1.0), tmp_path / "profile.json")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)  # what a reader would do
    assert names["cost"].seconds(8) == pytest.approx(0.010)
