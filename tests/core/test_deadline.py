"""The policy that holds a budget: whom it refuses at the door, whom it gives up, and that it never refuses for ever."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onbudget.core.deadline import MARGIN
from onbudget.core.errors import Shed, TooLarge
from onbudget.core.policy import Drop, Take
from onbudget.core.queue import Group
from onbudget.core.schedule import finish
from tests.support.policies import IDLE, policy, queue_of


@pytest.mark.parametrize(
    ("waiting", "running", "age", "fits"),
    [
        (0, IDLE, 0.0, True),
        (11, IDLE, 0.0, True),  # three batches of four: 15 ms
        (15, IDLE, 0.0, True),  # four of them: 20 ms, just in time
        (16, IDLE, 0.0, False),
        (15, IDLE, 0.001, False),  # it has lain unread for a millisecond
        (11, [(4, 0.0)], 0.0, True),  # a full batch has just begun
        (12, [(4, 0.0)], 0.0, False),
        (12, [(4, 0.004)], 0.0, True),  # it is nearly done
        (24, [(4, 0.0), (0, 0.0)], 0.0, True),  # two lanes take turns
    ],
)
def test_the_door_counts_what_is_ahead(waiting: int, running: list[tuple[int, float]], age: float, fits: bool) -> None:
    """A request is let in when its own run ends within the budget, behind what runs and what waits."""
    if fits:
        policy().admit(queue_of(*[0.0] * waiting), running, 1, age, now=0.0)
    else:
        with pytest.raises(Shed) as refused:
            policy().admit(queue_of(*[0.0] * waiting), running, 1, age, now=0.0)
        assert refused.value.reason == "late"
        assert refused.value.retry_after_s is not None
        assert 0 < refused.value.retry_after_s < 0.020


@given(
    st.integers(0, 30),
    st.lists(st.tuples(st.integers(0, 4), st.floats(0, 0.01)), min_size=1, max_size=3),
    st.integers(1, 6),
    st.floats(0, 0.03),
    st.sampled_from([None, 0.005, 0.05]),
    st.lists(st.floats(0.0005, 0.02), max_size=20),
    st.floats(0, 30),
)
def test_what_is_seen_at_a_glance_is_what_a_closer_look_says(
    waiting: int,
    running: list[tuple[int, float]],
    items: int,
    age: float,
    within: float | None,
    runs: list[float],
    idle: float,
) -> None:
    """Whoever is let in because time is plenty is let in by the whole calculation, whatever runs cost lately."""

    def asked(glance: bool) -> object:
        deadline = policy()
        if not glance:
            deadline._longest = math.inf
        for number, took in enumerate(runs):
            deadline.cost.observe(2, took, took, now=float(number))
        try:
            return deadline.admit(queue_of(*[0.0] * waiting), running, items, age, len(runs) + idle, within)
        except (Shed, TooLarge) as error:
            return str(error)

    assert asked(True) == asked(False)


def test_an_idle_lane_always_runs_a_lone_request() -> None:
    """However dear a run seems, and however old the request is: runs are what corrects the belief."""
    policy(each=100.0).admit(queue_of(), IDLE, 1, age=5.0, now=0.0)
    assert policy(each=100.0).next_batch(queue_of(0.0), now=99.0, since=99.0) == Take(None, 1, "idle")


def test_a_request_that_never_fits_is_told_how_many_would() -> None:
    """Thirty-two items that no idle server could answer in time are 413 with the number, not 429 for ever."""
    with pytest.raises(TooLarge, match="at most 16 a request"):
        policy().admit(queue_of(), IDLE, 32, age=0.0, now=0.0)
    with pytest.raises(Shed):
        policy().admit(queue_of(*[0.0] * 9), IDLE, 16, age=0.0, now=0.0)


def test_a_full_batch_leaves_when_all_have_time() -> None:
    """With time for everybody the policy is greedy."""
    deadline = policy()
    assert deadline.next_batch(queue_of(*[0.0] * 6), 0.001, 0.001) == Take(None, 4, "full")
    assert deadline.next_batch(queue_of(*[0.0] * 3), 0.001, 0.001) == Take(None, 3, "idle")
    assert deadline.next_batch(queue_of(), 0.001, 0.001) is None


def test_the_lost_are_given_up_and_the_others_run() -> None:
    """After a stall the oldest can't be in time: they are dropped, and the rest leave in a full batch."""
    queue = queue_of(0.0, 0.001, 0.012, 0.013, 0.014, 0.015)
    decision = policy().next_batch(queue, now=0.022, since=0.022)
    assert isinstance(decision, Drop)
    assert [group.arrived for group in decision.groups] == [0.0, 0.001]
    for group in decision.groups:
        queue.withdraw(group)
    assert policy().next_batch(queue, now=0.022, since=0.022) == Take(None, 4, "full")


def test_a_stall_does_not_refuse_for_ever() -> None:
    """After a minute in which runs took ten times as long, an idle server lets requests in and learns again."""
    deadline = policy()
    for step in range(200):
        deadline.cost.observe(1, 0.002, 0.020, now=step * 0.02)
    with pytest.raises(Shed):
        deadline.admit(queue_of(*[0.0] * 3), IDLE, 1, age=0.0, now=4.0)
    for step in range(200):
        deadline.admit(queue_of(), IDLE, 1, age=0.0, now=4.0 + step * 0.02)
        deadline.cost.observe(1, 0.002, 0.0018, now=4.0 + step * 0.02)
    deadline.admit(queue_of(*[0.0] * 3), IDLE, 1, age=0.0, now=8.0)


@given(st.lists(st.floats(0, 0.03), min_size=2, max_size=30).map(sorted), st.floats(0.03, 0.08), st.integers(1, 8))
def test_what_is_taken_can_be_in_time_and_everybody_ends(arrivals: list[float], now: float, most: int) -> None:
    """Asked until nothing waits, the policy runs or drops each request once, and runs only what can be in time."""
    deadline, queue = policy(max_batch=most), queue_of(*arrivals)
    ended = 0
    while queue.waiting:
        alone = queue.waiting == 1
        decision = deadline.next_batch(queue, now, now)
        if isinstance(decision, Drop):
            assert decision.groups
            for group in decision.groups:
                queue.withdraw(group)
                ended += 1
            continue
        assert isinstance(decision, Take)
        assert 1 <= decision.count <= most
        taken = queue.take(decision.key, decision.count)
        run = MARGIN * deadline.cost.estimate(len(taken), now)
        assert alone or all(now + run <= t.group.arrived + deadline.budget + 1e-9 for t in taken)
        ended += len(taken)
        now += run
    assert ended == len(arrivals)


def test_a_callers_own_deadline_counts() -> None:
    """A shorter one is refused sooner than the budget, a longer one later; messages say whose deadline it was."""
    with pytest.raises(Shed, match="caller's deadline of 10 ms"):
        policy().admit(queue_of(*[0.0] * 11), IDLE, 1, age=0.0, now=0.0, within=0.010)
    policy().admit(queue_of(*[0.0] * 30), IDLE, 1, age=0.0, now=0.0, within=0.100)
    with pytest.raises(TooLarge, match="caller's deadline of 10 ms"):
        policy().admit(queue_of(), IDLE, 12, age=0.0, now=0.0, within=0.010)


@given(st.lists(st.floats(0.001, 0.1), min_size=1, max_size=40), st.integers(1, 8))
def test_who_is_let_in_is_in_time_whatever_deadlines_the_others_bring(withins: list[float], most: int) -> None:
    """With exact costs nobody is let in who costs another theirs, tighter or looser: whoever is let in is in time."""
    deadline, queue = policy(max_batch=most), queue_of()
    let_in = 0
    for within in withins:
        try:
            deadline.admit(queue, [(1, 0.0)], 1, age=0.0, now=0.0, within=within)
        except Shed:
            continue
        group = Group(0.0, 1, lambda group: None, deadline=within, own=True)
        group.add(None)
        queue.offer(group)
        let_in += 1
    now = MARGIN * deadline.cost.estimate(1, 0.0)  # the batch of one that was running
    while queue.waiting:
        decision = deadline.next_batch(queue, now, now)
        assert isinstance(decision, Take)
        taken = queue.take(decision.key, decision.count)
        now += MARGIN * deadline.cost.estimate(len(taken), now)
        assert all(now <= t.group.deadline + 1e-9 for t in taken)
        let_in -= len(taken)
    assert let_in == 0


def test_one_with_more_time_does_not_cost_another_its_batch() -> None:
    """One that must run alone waits behind a run of 2 ms, due in 4: who would then be late is refused, and told why."""
    tight = Group(0.0, 1, lambda group: None, deadline=0.004, own=True)
    tight.add(None)
    queue = queue_of()
    queue.offer(tight)
    with pytest.raises(Shed, match="another caller's late") as refused:
        policy(budget=0.0059).admit(queue, [(1, 0.0)], 1, age=0.0, now=0.0)
    assert (refused.value.reason, refused.value.retry_after_s) == ("late", pytest.approx(0.002))
    policy(budget=0.006).admit(queue, [(1, 0.0)], 1, age=0.0, now=0.0)  # there is time for a run of its own
    plain = Group(0.0, 1, lambda group: None, deadline=0.004)
    plain.add(None)
    queue.offer(plain)
    queue.withdraw(tight)
    queue.close(tight)  # with it went the last deadline that a caller brought: now the backlog alone counts
    policy(budget=0.0059).admit(queue, [(1, 0.0)], 1, age=0.0, now=0.0)


def test_one_with_less_time_is_planned_where_it_will_go() -> None:
    """Behind one that must go alone wait four with all the time there is: it overtakes these, and so is in time."""
    queue = queue_of()
    for deadline, own in ((0.004, True), *[(1.0, False)] * 4):
        group = Group(0.0, 1, lambda group: None, deadline=deadline, own=own)
        group.add(None)
        queue.offer(group)
    policy(budget=1.0).admit(queue, [(1, 0.0)], 1, age=0.0, now=0.0, within=0.0105)  # behind them it ends at 11 ms


@pytest.mark.parametrize(("others", "kept_out"), [(62, True), (64, False)])
def test_behind_a_long_line_only_the_backlog_counts(others: int, kept_out: bool) -> None:
    """Planning takes longer the more wait, and the loop waits meanwhile: beyond 64 who wait no plan is made."""
    queue, late = queue_of(), policy(budget=1.0)
    # just in time if all batches were full; but the first must go alone, so that the last one ends later
    due = 1e-9 + finish([0.002], others + 1, 1, 4, lambda count: MARGIN * late.cost.estimate(count, 0.0))
    for deadline in [0.004, *[due] * others]:
        group = Group(0.0, 1, lambda group: None, deadline=deadline, own=True)
        group.add(None)
        queue.offer(group)
    if kept_out:
        with pytest.raises(Shed, match="another caller's late"):
            late.admit(queue, [(1, 0.0)], 1, age=0.0, now=0.0, within=due)
    else:
        late.admit(queue, [(1, 0.0)], 1, age=0.0, now=0.0, within=due)


def test_one_that_is_lost_already_keeps_nobody_out() -> None:
    """A lone request runs though its caller's deadline can't be met, and is no reason to refuse who comes meanwhile."""
    lost = Group(0.0, 1, lambda group: None, deadline=0.001, own=True)
    lost.add(None)
    queue = queue_of()
    queue.offer(lost)
    policy().admit(queue, IDLE, 1, age=0.0, now=0.0)


def test_a_request_of_several_items_is_dropped_once_for_all() -> None:
    """Two items of a request and one after it that has time: the request goes whole, and nobody with it."""
    queue = queue_of()
    for arrived, items in ((-0.0185, 2), (-0.012, 2)):
        group = Group(arrived, 1, lambda group: None, deadline=arrived + 0.020, priority=2)
        for _ in range(items):
            group.add(None)
        queue.offer(group)
    decision = policy().next_batch(queue, 0.0, 0.0)
    assert isinstance(decision, Drop)
    assert [group.arrived for group in decision.groups] == [-0.0185, -0.0185]
    queue.withdraw(decision.groups[0])
    assert policy().next_batch(queue, 0.0, 0.0) == Take(None, 2, "idle")


@pytest.mark.parametrize(("other", "kept"), [((0, 0.0), True), ((4, 0.0045), True), ((4, 0.0), False)])
def test_what_other_lanes_can_do_is_in_the_plan(other: tuple[int, float], kept: bool) -> None:
    """A head that needs a batch of one is run where another lane is free for the four behind it; else it is lost."""
    queue = queue_of(-0.0175, *[-0.014] * 4)  # due in 2.5 ms, and in 6 ms
    decision = policy().next_batch(queue, 0.0, 0.0, [other])
    assert (decision == Take(None, 1, "deadline")) is kept
    if not kept:
        assert isinstance(decision, Drop)
    assert isinstance(policy().next_batch(queue, 0.0, 0.0), Drop)
