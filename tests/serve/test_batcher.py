"""MicroBatcher beyond the seed's contract: cancellation, shapes, loops, and exceptions that asyncio does not like."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from onbudget.core.errors import NotReady, RunFailed, UsageError
from onbudget.core.policy import Timer
from onbudget.serve.batcher import MicroBatcher

Predict = Callable[[Any], Sequence[Any]]


class Given:
    """A classifier of one function."""

    def __init__(self, predict: Predict) -> None:
        self.predict = predict


def echo(items: Any) -> list[Any]:
    return list(items.tolist())


async def answers(batcher: MicroBatcher, *values: Any) -> list[Any]:
    return await asyncio.gather(*[batcher.submit(value) for value in values], return_exceptions=True)


def test_a_batch_closes_when_its_first_item_has_waited() -> None:
    """Who comes within the wait joins; who comes after it is in the next batch."""

    async def go() -> list[int]:
        batcher = MicroBatcher(Given(echo), max_batch=16, max_wait_ms=60_000)
        first = asyncio.create_task(batcher.submit(1))
        while batcher.queue is None or not batcher.queue.pending:
            await asyncio.sleep(0)
        assert batcher.batch_sizes == []  # it waits, since nobody else came
        rest = asyncio.create_task(answers(batcher, *range(2, 18)))
        assert await first == 1
        assert batcher.batch_sizes == [16]  # the sixteenth closed it long before the minute
        batcher.stop()
        assert [type(one) for one in (await rest)[15:]] == [NotReady]
        return (await rest)[:15]

    assert asyncio.run(go()) == list(range(2, 17))


def test_no_wait_at_all_takes_what_is_there() -> None:
    """max_wait_ms 0: everybody who is there goes together, and a lone one at once."""
    batcher = MicroBatcher(Given(echo), max_batch=4, max_wait_ms=0)
    assert asyncio.run(answers(batcher, *range(6))) == list(range(6))
    assert batcher.batch_sizes == [4, 2]


def test_a_caller_that_leaves_is_not_run_and_costs_nobody_anything() -> None:
    """A cancelled submit gives its place up; the others of its batch are answered."""
    seen: list[list[int]] = []

    def predict(items: Any) -> list[Any]:
        seen.append(items.tolist())
        return echo(items)

    async def go() -> Any:
        batcher = MicroBatcher(Given(predict), max_batch=3, max_wait_ms=60_000)
        gone, stays = (asyncio.create_task(batcher.submit(value)) for value in (1, 2))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
        told = await answers(batcher, 3, 4)
        assert batcher.queue is not None
        assert (batcher.queue.items, batcher.queue.pending) == (0, 0)
        return gone.cancelled(), await stays, told

    assert asyncio.run(go()) == (True, 2, [3, 4])
    assert seen == [[2, 3, 4]]


def test_a_caller_that_leaves_during_the_run_does_not_stop_the_others() -> None:
    """Its answer is thrown away; its batch-mate gets its own."""
    started, go_on = threading.Event(), threading.Event()

    def predict(items: Any) -> list[Any]:
        started.set()
        assert go_on.wait(30)
        return echo(items)

    async def go() -> Any:
        batcher = MicroBatcher(Given(predict), max_batch=2)
        gone, stays = (asyncio.create_task(batcher.submit(value)) for value in (1, 2))
        await asyncio.to_thread(started.wait, 30)
        gone.cancel()
        go_on.set()
        return await stays

    assert asyncio.run(go()) == 2


def test_items_of_different_shapes_never_share_a_batch() -> None:
    """Each shape and type is a batch of its own, so that one odd item fails nobody else."""
    shapes: list[tuple[int, ...]] = []

    def predict(items: Any) -> list[Any]:
        shapes.append(items.shape)
        return [0] * len(items)

    batcher = MicroBatcher(Given(predict), max_wait_ms=0)
    given = [np.zeros(2), np.zeros(3), np.zeros(2), np.zeros(2, np.uint8)]
    assert asyncio.run(answers(batcher, *given)) == [0] * 4
    assert sorted(shapes) == [(1, 2), (1, 3), (2, 2)]


@pytest.mark.parametrize(
    ("error", "heard"),
    [(ValueError, ValueError), (StopIteration, RuntimeError), (SystemExit, SystemExit)],
)
def test_whatever_predict_raises_is_heard(error: type[BaseException], heard: type[BaseException]) -> None:
    """Even what can't cross a future's border, or would end a worker: nobody is left waiting, the next is answered."""
    errors = [error]

    def predict(items: Any) -> list[Any]:
        if errors:
            raise errors.pop()("bad")
        return echo(items)

    async def go() -> Any:
        batcher = MicroBatcher(Given(predict), max_batch=2)

        async def one(value: int) -> Any:
            try:
                return await batcher.submit(value)
            except BaseException as error:  # noqa: BLE001 - which one is what is tested
                return type(error)

        return await asyncio.gather(one(1), one(2)), await one(3)

    assert asyncio.run(go()) == ([heard, heard], 3)


def test_too_few_answers_are_an_error_and_not_somebody_elses_answer() -> None:
    """Two answers for three items: nobody knows whose they are."""
    batcher = MicroBatcher(Given(lambda items: echo(items)[:-1]))
    told = asyncio.run(answers(batcher, 1, 2, 3))
    assert [str(error) for error in told] == ["predict gave 2 answers for a batch of 3"] * 3
    assert all(isinstance(error, RunFailed) for error in told)


def test_it_goes_on_in_another_loop() -> None:
    """A module-level batcher, one asyncio.run after the other; a loop that is still running keeps its own."""
    batcher = MicroBatcher(Given(echo))
    assert asyncio.run(answers(batcher, 1)) == [1]
    assert asyncio.run(answers(batcher, 2)) == [2]
    batcher.stop()  # its loop is closed: nothing is left to stop

    async def go() -> str:
        assert await batcher.submit(3) == 3
        other = await asyncio.to_thread(lambda: asyncio.run(answers(batcher, 4)))
        return str(other[0])

    assert "another event loop" in asyncio.run(go())


def test_a_worker_that_ends_by_itself_leaves_nobody_waiting() -> None:
    """Cancelled by somebody, or broken: whoever waits hears so, and the next submit is answered."""

    async def go(end: Callable[[MicroBatcher], Any]) -> Any:
        batcher = MicroBatcher(Given(echo), max_wait_ms=60_000)
        waiting = asyncio.create_task(answers(batcher, 1))
        while batcher.queue is None or not batcher.queue.pending:
            await asyncio.sleep(0)
        end(batcher)
        (heard,) = await waiting
        batcher._policy = Timer(1, 0.0)
        return type(heard), await batcher.submit(2)

    def broken(batcher: MicroBatcher) -> None:
        batcher._policy = None  # type: ignore[assignment]  # the fault itself
        batcher._arrived.set()

    def cancelled(batcher: MicroBatcher) -> None:
        assert batcher.worker is not None
        batcher.worker.cancel()

    assert asyncio.run(go(cancelled)) == (NotReady, 2)
    assert asyncio.run(go(broken)) == (RunFailed, 2)


def test_predicts_never_overlap() -> None:
    """A predict that outlived its stop ends before the next begins: the classifier need not be thread-safe."""
    inside, most = 0, 0
    started, go_on = threading.Event(), threading.Event()

    def predict(items: Any) -> list[Any]:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        started.set()
        assert go_on.wait(30)
        inside -= 1
        return echo(items)

    async def go() -> Any:
        batcher = MicroBatcher(Given(predict))
        first = asyncio.create_task(answers(batcher, 1))
        await asyncio.to_thread(started.wait, 30)
        batcher.stop()
        second = asyncio.create_task(batcher.submit(2))
        while len(batcher.batch_sizes) < 2:
            await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.05, go_on.set)  # time for a second thread to enter, were it let in
        return type((await first)[0]), await second

    assert asyncio.run(go()) == (NotReady, 2)
    assert most == 1


@pytest.mark.parametrize("given", [{"max_batch": 0}, {"max_wait_ms": -1}, {"max_wait_ms": float("nan")}])
def test_sizes_that_cannot_be_meant(given: dict[str, Any]) -> None:
    """UsageError when it is made."""
    with pytest.raises(UsageError, match="max_batch must be at least 1"):
        MicroBatcher(Given(echo), **given)
