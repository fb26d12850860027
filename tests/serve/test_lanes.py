"""Lanes over a fake runner: batches, isolation, failures, the watchdog. No model, no sockets."""

from __future__ import annotations

import base64
import queue as handoff
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from onbudget.core.errors import BadContent, RunFailed, Shed
from onbudget.core.policy import Greedy, Timer
from onbudget.core.queue import Group, Queue
from onbudget.core.tasks import Tensors
from onbudget.engine.session import Port, Stop
from onbudget.serve.contract import Contract
from onbudget.serve.items import ARRAYS, BASE64, Parsed
from onbudget.serve.job import Job
from onbudget.serve.lanes import GRACE, Batch, Lanes
from onbudget.serve.settings import Settings

CONTRACT = Contract("rows", (Port("x", "uint8", (None, 2)),), ((2,),), None, None, "")


class FakeRunner:
    """Doubles its rows. `hold` blocks runs while it is clear; `act`, where set, is called first and may raise."""

    inputs = CONTRACT.inputs
    outputs = (Port("y", "float32", (None, 2)),)

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.hold = threading.Event()
        self.hold.set()
        self.entered: handoff.SimpleQueue[int] = handoff.SimpleQueue()
        self.act: Any = None
        self.extra_rows = 0
        self.last_stop: Stop | None = None

    def run(
        self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, stop: Stop | None = None
    ) -> list[Any]:
        rows = feeds["x"].astype(np.float32)  # a copy: the lane's buffer changes under a later batch
        self.sizes.append(len(rows))
        self.last_stop = stop
        self.entered.put(len(rows))
        self.hold.wait(20)
        if self.act is not None:
            self.act(rows)
        return [np.concatenate([rows * 2, np.zeros((self.extra_rows, 2), np.float32)])]


class Note:
    """What the service hangs on a group, as far as a job reads it."""

    def __init__(self) -> None:
        self.parsed = Parsed([], "rows")
        self.batch: Batch | None = None


def settle(batch: Batch) -> None:
    """What the event loop does with a batch."""
    for ticket, answer in batch.settled:
        if isinstance(answer, Exception):
            ticket.group.fail(answer)  # type: ignore[arg-type]  # only RequestErrors are settled
        else:
            ticket.group.settle(ticket.index, answer)
    if batch.error:
        for ticket in batch.tickets:
            ticket.group.fail(batch.error)


class Bench:
    """Lanes whose posted batches land in a queue; `settle` does what the event loop would."""

    def __init__(self, lanes: int = 1, max_batch: int = 4, policy: Any = None, contract: Contract = CONTRACT) -> None:
        self.runner = FakeRunner()
        self.posted: handoff.SimpleQueue[Batch] = handoff.SimpleQueue()
        self.queue = Queue(max_items=1000, max_bytes=10**6)
        job = Job(self.runner, contract, Tensors(("y",)), max_batch, Settings())
        self.lanes = Lanes(job, policy or Greedy(job.max_batch), self.queue, lanes, self.posted.put)
        self.lanes.start()

    def send(self, *rows: Any, told: list[Group] | None = None) -> Group:
        group = Group(time.monotonic(), 2 * len(rows), (told if told is not None else []).append, Note())
        for row in rows:
            group.add((BASE64, row) if isinstance(row, str) else (ARRAYS, (np.array(row, np.uint8),)))
        self.lanes.submit(group)
        return group

    def settle(self) -> Batch:
        batch = self.posted.get(timeout=20)
        settle(batch)
        return batch

    def wait_until(self, condition: Any) -> None:
        end = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < end, "waited 20 s for nothing"
            time.sleep(0.001)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.runner.hold.set()
    made.lanes.stop()


def test_a_lone_request_runs_alone_and_at_once(bench: Bench) -> None:
    """One waiting item is a batch of one (pain 59)."""
    group = bench.send([1, 2])
    batch = bench.settle()
    assert group.answers == [{"y": [2.0, 4.0]}]
    assert (batch.rows, batch.why) == (1, "idle")
    assert batch.taken <= batch.decoded <= batch.ran


def test_what_came_while_the_lane_was_busy_is_the_next_batch(bench: Bench) -> None:
    """Pull batching: a busy lane's queue becomes full batches, each caller gets its own row (pain 40, 48)."""
    bench.runner.hold.clear()
    first = bench.send([0, 0])
    bench.runner.entered.get(timeout=20)
    rest = [bench.send([n, n + 1]) for n in range(1, 7)]
    bench.runner.hold.set()
    sizes = [bench.settle().rows for _ in range(3)]
    assert sizes == [1, 4, 2]
    assert [g.answers for g in (first, *rest)] == [[{"y": [2.0 * n, 2.0 * n + 2 * (n > 0)]}] for n in range(7)]


def test_a_bad_item_never_enters_the_run(bench: Bench) -> None:
    """Seven good rows and one broken one: the broken one gets its own error, the others run as seven (pain 45)."""
    bench.runner.hold.clear()
    bench.send([9, 9])
    bench.runner.entered.get(timeout=20)
    good = base64.b64encode(bytes([1, 2])).decode()
    groups = [bench.send("!!==" if n == 1 else good) for n in range(4)]
    bench.runner.hold.set()
    bench.settle()
    batch = bench.settle()
    assert (batch.rows, bench.runner.sizes[-1]) == (3, 3)
    assert [type(g.error) for g in groups] == [type(None), BadContent, type(None), type(None)]
    assert "item 1 (rows[0])" in str(groups[1].error)
    assert groups[2].answers == [{"y": [2.0, 4.0]}]


def test_a_failed_run_answers_its_whole_batch_at_once(bench: Bench) -> None:
    """When the model raises, every ticket of that batch hears it, and the next batch runs."""

    def fail(rows: Any) -> None:
        raise RuntimeError("node Conv_3 is unhappy\nand more")

    bench.runner.act = fail
    group = bench.send([1, 1], [2, 2])
    batch = bench.settle()
    assert isinstance(batch.error, RunFailed)
    assert str(group.error) == "the model's run failed: node Conv_3 is unhappy and more"
    bench.runner.act = None
    bench.send([3, 3])
    assert bench.settle().error is None


def test_a_wrong_number_of_rows_is_an_error_and_not_somebody_elses_answer(bench: Bench) -> None:
    """A model that answers N+1 rows for N fails the batch with both numbers (pain 42)."""
    bench.runner.extra_rows = 1
    group = bench.send([1, 1])
    bench.settle()
    assert "answered 2 rows of 'y' for a batch of 1" in str(group.error)


def test_a_withdrawn_group_is_not_run(bench: Bench) -> None:
    """A caller that hung up while it waited costs no row."""
    bench.runner.hold.clear()
    bench.send([0, 0])
    bench.runner.entered.get(timeout=20)
    gone, stays = bench.send([1, 1], [2, 2]), bench.send([3, 3])
    bench.lanes.withdraw(gone)
    bench.runner.hold.set()
    bench.settle()
    assert bench.settle().rows == 1
    assert stays.answers == [{"y": [6.0, 6.0]}]


def test_two_lanes_run_at_once() -> None:
    """A second free lane takes work while the first is busy."""
    bench = Bench(lanes=2)
    bench.runner.hold.clear()
    bench.send([1, 1])
    bench.runner.entered.get(timeout=20)
    bench.send([2, 2])
    bench.runner.entered.get(timeout=20)  # would time out with one lane
    assert bench.lanes.busy == 2
    bench.runner.hold.set()
    bench.lanes.stop()


def test_one_request_of_many_items_uses_every_idle_lane() -> None:
    """A group that makes several batches wakes as many lanes as there are batches, not one for all of them."""
    bench = Bench(lanes=2, max_batch=1)
    bench.wait_until(lambda: bench.lanes._idle == 2)
    bench.runner.hold.clear()
    bench.send([1, 1], [2, 2])
    for _ in range(2):
        bench.runner.entered.get(timeout=20)  # would time out if the second lane slept on
    bench.runner.hold.set()
    bench.lanes.stop()


def test_the_timer_fills_a_batch() -> None:
    """With a long wait, a free lane waits for company and leaves full."""
    bench = Bench(max_batch=3, policy=Timer(3, 60.0))
    for n in range(3):
        bench.send([n, n])
    batch = bench.settle()
    assert (batch.rows, batch.why) == (3, "full")
    bench.lanes.stop()


def test_unbatchable_models_run_one_request_at_a_time() -> None:
    """A reason to run alone makes every batch a batch of one."""
    bench = Bench(contract=Contract("rows", CONTRACT.inputs, ((2,),), None, None, "rows mix"))
    group = bench.send([1, 1], [2, 2], [3, 3])
    for _ in range(3):
        bench.settle()
    assert bench.runner.sizes == [1, 1, 1]
    assert group.answers[2] == {"y": [6.0, 6.0]}
    bench.lanes.stop()


def test_a_fixed_batch_is_filled_and_sliced() -> None:
    """A file that froze its batch axis at 4 always runs 4 rows, and callers see only their own."""
    ports = (Port("x", "uint8", (4, 2)),)
    bench = Bench(max_batch=16, contract=Contract("rows", ports, ((2,),), None, 4, ""))
    group = bench.send([5, 6])
    bench.settle()
    assert bench.runner.sizes == [4]
    assert group.answers == [{"y": [10.0, 12.0]}]
    bench.lanes.stop()


def test_a_fixed_batch_is_filled_with_its_own_rows() -> None:
    """What fills a frozen batch up is its last row, and never what another caller sent before."""
    ports = (Port("x", "uint8", (4, 2)),)
    bench = Bench(max_batch=16, contract=Contract("rows", ports, ((2,),), None, 4, ""))
    seen: list[Any] = []
    bench.runner.act = lambda rows: seen.append(rows.tolist())
    bench.send([7, 7], [8, 8], [9, 9])
    bench.settle()
    bench.send([1, 2])
    bench.settle()
    assert seen[-1] == [[1.0, 2.0]] * 4
    bench.lanes.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the point of the test
def test_a_dead_lane_is_replaced_and_its_batch_failed(bench: Bench) -> None:
    """A thread that dies leaves nobody waiting, and its successor serves."""

    def die(rows: Any) -> None:
        raise SystemExit("the thread ends here")

    bench.runner.act = die
    group = bench.send([1, 1])
    bench.wait_until(lambda: not bench.lanes._lanes[0].thread.is_alive())
    bench.lanes.watch(time.monotonic(), stuck_after=60)
    batch = bench.settle()
    assert "its thread died" in str(group.error)
    assert batch.rows == 1
    assert bench.lanes.restarts == 1
    bench.runner.act = None
    bench.send([2, 2])
    assert bench.settle().error is None


def test_a_stuck_run_is_told_to_stop_then_given_up(bench: Bench) -> None:
    """The watchdog first sets the run's stop switch; a run that ignores it costs its lane, not the server."""
    bench.runner.hold.clear()
    group = bench.send([1, 1])
    bench.runner.entered.get(timeout=20)
    began = bench.lanes._lanes[0].batch.taken
    bench.lanes.watch(began + 4.9, stuck_after=5)
    assert not bench.runner.last_stop.options.terminate
    bench.lanes.watch(began + 5.1, stuck_after=5)
    assert bench.runner.last_stop.options.terminate
    assert bench.lanes.restarts == 0
    bench.lanes.watch(began + 5.1 + GRACE, stuck_after=5)
    assert bench.settle().tickets[0].group is group
    assert "did not stop" in str(group.error)
    assert "did not stop" in bench.lanes.last_restart
    bench.runner.hold.set()
    other = bench.send([2, 2])
    assert bench.settle().tickets[0].group is other
    assert bench.posted.empty()  # the given-up lane's late result was thrown away


def test_stop_hands_back_what_still_waits(bench: Bench) -> None:
    """At the end the waiting groups are given back, the running batch is still posted, and the lanes are gone."""
    bench.runner.hold.clear()
    bench.send([1, 1])
    bench.runner.entered.get(timeout=20)
    waiting = bench.send([2, 2])
    threading.Timer(0.05, bench.runner.hold.set).start()
    assert bench.lanes.stop(timeout=20) == [waiting]
    assert bench.posted.get(timeout=20).rows == 1


def test_a_run_that_is_on_is_told_to_stop_at_the_end(bench: Bench) -> None:
    """At the end nobody waits for a run any more: its switch is set, and one that does not listen is told of."""
    bench.runner.hold.clear()
    bench.send([1, 1])
    bench.runner.entered.get(timeout=20)
    bench.lanes.stop(timeout=0)
    assert bench.runner.last_stop.options.terminate
    assert bench.lanes.alive
    bench.runner.hold.set()
    bench.wait_until(lambda: not bench.lanes.alive)


def test_callers_hear_of_a_dead_lane_even_where_no_thread_can_be_had(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine out of threads can't restart a lane, but the lane's callers are answered first."""
    bench.runner.hold.clear()
    group = bench.send([1, 1])
    bench.runner.entered.get(timeout=20)

    def none_left(lane: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(bench.lanes, "_launch", none_left)
        with pytest.raises(RuntimeError):
            bench.lanes.watch(time.monotonic() + 100, stuck_after=1)
    bench.settle()
    assert group.error is not None
    bench.runner.hold.set()


def test_a_full_queue_refuses(bench: Bench) -> None:
    """The bound is of items in flight, running ones included (pain 53)."""
    bench.queue.max_items = 2
    bench.runner.hold.clear()
    bench.send([1, 1], [2, 2])
    bench.runner.entered.get(timeout=20)
    with pytest.raises(Shed):
        bench.send([3, 3])
