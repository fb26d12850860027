"""The figures of the last seconds: what is in a window, what is not, and what is not told."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from onbudget.core.cost import Cost, Online
from onbudget.core.forecast import Forecast
from onbudget.core.late import Spare
from onbudget.core.overheads import Overheads, learn
from onbudget.core.plan import Configuration
from onbudget.core.queue import Group, Queue
from onbudget.serve.foresee import Foresight
from onbudget.serve.lanes import Batch
from onbudget.serve.live import Live
from onbudget.serve.settings import Settings
from onbudget.serve.status import AGAIN, Status, forecast


def windows(live: Live, now: float) -> dict[int, dict[str, Any]]:
    return {told["window_s"]: told for told in live.windows(live.counts(now, 0.0))}


def batch(rows: int, why: str = "idle", cpu: float = 0.001) -> Batch:
    made = Batch([], why, 0.0)
    made.rows, made.cpu = rows, cpu
    return made


def test_a_window_holds_what_happened_in_it() -> None:
    """Requests leave the short window first, and the long one last."""
    live = Live(0.02)
    live.roll(0.0, 0.0)
    for second in range(1, 401):
        live.request("ok", 0.01 if second <= 380 else 0.03)
        live.roll(float(second), 0.0)
    told = windows(live, 400.0)
    assert {w: told[w]["answered"] for w in told} == {10: 10, 60: 60, 300: 300}
    assert {w: told[w]["seconds"] for w in told} == {10: 10, 60: 60, 300: 300}
    assert {w: told[w]["late"] for w in told} == {10: 10, 60: 20, 300: 20}
    assert told[10]["in_budget_share"] == 0
    assert told[60]["in_budget_share"] == pytest.approx(40 / 60)
    assert told[10]["latency"]["p50_ms"] > 20 >= told[60]["latency"]["p50_ms"]
    assert told[60]["latency"]["p95_ms"] > 20 >= told[300]["latency"]["p50_ms"]


def test_a_young_server_says_how_much_of_a_window_it_saw() -> None:
    """Before the first copy there is no window; then each says the seconds that it really covers."""
    live = Live()
    assert live.windows(live.counts(5.0, 0.0)) == []
    live.roll(5.0, 0.0)
    live.request("ok", 0.001)
    told = windows(live, 8.5)
    assert [told[w]["seconds"] for w in (10, 60, 300)] == [3.5] * 3
    assert told[300]["answered"] == 1


def test_no_percentile_of_nothing() -> None:
    """Without answers every percentile and share is null, and the count says why."""
    live = Live(0.02)
    live.roll(0.0, 0.0)
    told = windows(live, 1.0)[10]
    assert told["latency"] == {"count": 0, "p50_ms": None, "p95_ms": None, "p99_ms": None}
    assert (told["in_budget_share"], told["shed_share"], told["mean_batch"]) == (None, None, None)


def test_without_a_budget_nothing_is_in_budget() -> None:
    """A share of what was never declared is not told."""
    live = Live()
    live.roll(0.0, 0.0)
    live.request("ok", 9.0)
    told = windows(live, 1.0)[10]
    assert (told["in_budget_share"], told["late"]) == (None, 0)


def test_shares_are_of_everybody_who_asked() -> None:
    """Refusals and hang-ups count against the budget; refusals are told by reason."""
    live = Live(0.02)
    live.request("ok", 0.001)  # before the first copy: in no window
    live.refuse("late")
    live.roll(0.0, 0.0)
    for _ in range(6):
        live.request("ok", 0.02)  # at the budget is in it
    for reason in ("late", "late", "expired"):
        live.refuse(reason)
        live.request("shed", 0.0)
    live.refuse(None)
    live.request("gone", 0.1)
    told = windows(live, 1.0)[10]
    assert (told["offered"], told["answered"]) == (10, 6)
    assert (told["in_budget_share"], told["shed_share"]) == (0.6, 0.3)
    assert told["failed"] == {"shed": 3, "gone": 1}
    assert told["refused"] == {"late": 2, "expired": 1}
    assert live.refused == 3


def test_batches_are_told_by_size_and_by_why_they_left() -> None:
    """The mean is of batches that ran; one that only gave requests up is in `left` alone."""
    live = Live()
    live.roll(0.0, 0.0)
    for made in (batch(4, "full"), batch(1), batch(0, "lost", cpu=0.0)):
        live.batch(made)
    told = windows(live, 1.0)[10]
    assert (told["batches"], told["mean_batch"]) == (2, 2.5)
    assert told["left"] == {"full": 1, "idle": 1, "lost": 1}
    assert live.lanes_cpu == pytest.approx(0.002)


def test_copies_are_made_once_a_second_and_old_ones_go() -> None:
    """The watchdog's four looks a second make one copy, and memory is bounded by the longest window."""
    live = Live()
    for quarter in range(4 * 1000):
        live.roll(quarter / 4, 0.0)
    assert 300 <= len(live._cells) <= 302
    assert windows(live, 999.75)[300]["seconds"] == pytest.approx(300, abs=1)


def test_spells_tell_what_was_done_from_copy_to_copy() -> None:
    """CPU of lanes and of the rest apart, and runs by the known curve."""
    live = Live(0.02)
    live.cost = Cost.of({1: 0.001, 8: 0.004})
    live.roll(0.0, 7.0)  # loading and warming is not of any request
    live.accepted = 1000
    live.batch(batch(8, cpu=0.4))
    live.request("shed", 0.0)
    live.roll(1.0, 7.5)
    first, last = live.spells(live.counts(1.5, 7.5))
    assert (first.accepted, first.refused, first.batches) == (1000, 1, 1)
    assert (first.model_s, first.lanes_s, first.other_s) == pytest.approx((0.004, 0.4, 0.1))
    assert (last.accepted, last.other_s) == (0, 0.0)


def test_clocks_that_disagree_owe_nobody_anything() -> None:
    """Lanes that seem to have computed for longer than the process: nothing is left for the loop, and not less."""
    live = Live(0.02)
    live.roll(0.0, 1.0)
    live.batch(batch(8, cpu=0.4))
    assert live.spells(live.counts(1.0, 1.3))[0].other_s == 0.0


def test_warming_after_ready_is_no_overhead() -> None:
    """What a server still loads when it is ready already is not charged to the requests that come."""
    live = Live(0.02)
    live.roll(0.0, 1.0)
    live.steady = 1.5
    live.accepted = 50
    assert live.spells(live.counts(1.6, 4.0)) == []  # no copy was made since
    live.roll(2.0, 4.0)
    live.accepted = 1050
    told = live.spells(live.counts(9.0, 4.1))
    assert [(one.accepted, one.other_s) for one in told] == [(1000, pytest.approx(0.1))]


POINTS = Cost.of({1: 0.001, 8: 0.004})


class OneLane(list[int]):
    busy, restarts = 0, 0


def model(**more: Any) -> Any:
    told = {
        "settings": Settings(p95=0.02),
        "policy": SimpleNamespace(name="deadline", max_batch=8),
        "lane_count": 1,
        "inline": False,
        "machine": SimpleNamespace(cores=lambda: 1.0),
        "cost": Online(POINTS),
        "spare": None,
        "queue": Queue(100, 10_000),
        "lanes": OneLane([1]),
    }
    return SimpleNamespace(**{**told, **more})


async def settled(status: Status) -> None:
    """Until the thread that predicts is done."""
    while status._busy:
        await asyncio.sleep(0.001)


def seen(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand accepted requests that cost the loop 0.1 ms each."""
    live.cost = POINTS
    live.roll(0.0, 0.0)
    live.accepted = 1000
    monkeypatch.setattr("onbudget.serve.status.time.process_time", lambda: 0.1)


@pytest.mark.parametrize("demote", [True, False])
def test_the_limit_is_predicted_for_whoever_asks_later(monkeypatch: pytest.MonkeyPatch, demote: bool) -> None:
    """The first look starts it and says null; the next has the forecast's rate by what was learnt, which it tells."""
    served = model(spare=Spare(0.02) if demote else None)

    async def go() -> tuple[Any, Any]:
        live = Live(0.02)
        seen(live, monkeypatch)
        status = Status(live)
        first = status.body(served, "ready", 1.0)
        await settled(status)
        return first, status.body(served, "ready", 2.0)

    first, second = asyncio.run(go())
    assert first["predicted_limit_rate"] is None
    told = second["overheads"]
    learnt = Overheads(*(told[f"{name}_ms"] / 1e3 for name in ("accept", "refuse", "batch")))
    assert learnt.accept_s == pytest.approx(0.0001, rel=0.05)  # no batches were seen
    expected = Forecast(
        cost=POINTS.scaled(told["run_factor"]),
        overheads=learnt,
        configuration=Configuration(1, 1, 8),
        budget_s=0.02,
        demote=demote,
    )
    assert second["predicted_limit_rate"] == pytest.approx(expected.quick_limit_rate(), rel=0.005)
    assert second["cost"]["run_ms"] == {"1": 1.0, "8": 4.0}


@pytest.mark.parametrize(("inline", "cores", "factor"), [(True, 1.0, 1.0), (False, 1.0, 1.0), (False, 2.0, 2.0)])
def test_the_loops_work_counts_once(inline: bool, cores: float, factor: float) -> None:
    """Runs wait as long as they compute: for the loop where it has no core of its own, else it is their cost."""
    cost = Online(POINTS, weight=1.0)
    cost.observe(1, POINTS.seconds(1), 2 * POINTS.seconds(1), 1.0)
    live = Live(0.02)
    live.cost = POINTS
    live.roll(0.0, 0.0)
    live.accepted = 1000
    learnt = learn(live.spells(live.counts(1.0, 0.1)))
    assert learnt is not None
    served = model(cost=cost, inline=inline, machine=SimpleNamespace(cores=lambda: cores))
    made = forecast(served, learnt, 0.02, 1.0)
    assert made.cost.seconds(4) == pytest.approx(factor * learnt.run_factor * POINTS.seconds(4))
    assert (made.inline, made.shared) == (inline, cores == 1.0)


def test_the_limit_is_predicted_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often somebody asks, a prediction is made once in 10 s."""
    made: list[Forecast] = []

    def counted(asked: Forecast) -> float:
        made.append(asked)
        return 123.0

    monkeypatch.setattr(Foresight, "limit_rate", lambda _, asked: counted(asked))

    async def go() -> None:
        live = Live(0.02)
        seen(live, monkeypatch)
        status = Status(live)
        for now in (1.0, 2.0, 10.9, 1.0 + AGAIN, 12.0):
            status.body(model(lane_count=2), "ready", now)
            await settled(status)
        assert live.predicted == 123.0

    asyncio.run(go())
    assert [asked.configuration.lanes for asked in made] == [2, 2]


@pytest.mark.parametrize(
    "more",
    [{"cost": None}, {"settings": Settings()}, {"settings": Settings(p95=0.02, threads=2)}],
    ids=["no cost", "no budget", "threads"],
)
def test_what_is_not_known_is_not_predicted(more: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """No cost, no budget, or CPU of runs that no lane's clock shows: null, however much traffic was seen."""

    async def go() -> Any:
        live = Live(0.02)
        seen(live, monkeypatch)
        status = Status(live)
        status.body(model(**more), "ready", 1.0)
        await settled(status)
        return status.body(model(**more), "ready", 2.0)["predicted_limit_rate"]

    assert asyncio.run(go()) is None


def test_a_prediction_that_fails_keeps_the_last_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The page lives on, the log says what happened, and it is tried again."""

    def broken(*given: Any) -> float:
        raise ValueError("no such rate")

    monkeypatch.setattr(Foresight, "limit_rate", broken)

    async def go() -> None:
        live = Live(0.02)
        seen(live, monkeypatch)
        live.predicted = 5.0
        status = Status(live)
        status.body(model(), "ready", 1.0)
        await settled(status)
        assert live.predicted == 5.0

    asyncio.run(go())
    assert "no such rate" in caplog.text


def test_the_queue_is_told_as_it_is() -> None:
    """What waits and what is in flight are different numbers."""
    queue = Queue(100, 10_000)
    group = Group(0.0, 300, lambda _: None)
    for _ in range(3):
        group.add(("row", b""))
    queue.offer(group)
    queue.take(None, 2)
    told = Status(Live()).body(model(queue=queue), "draining", 1.0)
    assert told["queue"] == {"waiting_items": 1, "late_items": 0, "in_flight_items": 3, "in_flight_bytes": 300}
    assert (told["status"], told["windows"]) == ("draining", [])
