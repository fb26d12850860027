"""The policy that holds a budget: whom it refuses at the door, whom it gives up, and that it never refuses for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onbudget.core.cost import Cost, Online
from onbudget.core.deadline import MARGIN, Deadline
from onbudget.core.errors import Shed, TooLarge
from onbudget.core.policy import Drop, Take
from onbudget.core.queue import Group, Queue

IDLE = [(0, 0.0)]


def policy(budget: float = 0.020, each: float = 0.002, max_batch: int = 4) -> Deadline:
    """One item takes 2 ms, four take 5 ms; the margin is taken out so that the numbers below are round."""
    cost = Online(Cost.of({1: each / MARGIN, 4: 2.5 * each / MARGIN}))
    return Deadline(max_batch, budget, cost)


def queue_of(*arrivals: float, budget: float = 0.020) -> Queue:
    queue = Queue(max_items=1000, max_bytes=10**9)
    for arrived in arrivals:
        group = Group(arrived, 1, lambda group: None, deadline=arrived + budget)
        group.add(None)
        queue.offer(group)
    return queue


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
    """With exact costs nobody who was admitted is dropped or late: a tight deadline costs nobody else theirs."""
    deadline, queue = policy(max_batch=most), queue_of()
    let_in = 0
    for within in withins:
        try:
            deadline.admit(queue, [(1, 0.0)], 1, age=0.0, now=0.0, within=within)
        except Shed:
            continue
        group = Group(0.0, 1, lambda group: None, deadline=within)
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


@pytest.mark.parametrize(("other", "kept"), [((0, 0.0), True), ((4, 0.0045), True), ((4, 0.0), False)])
def test_what_other_lanes_can_do_is_in_the_plan(other: tuple[int, float], kept: bool) -> None:
    """A head that needs a batch of one is run where another lane is free for the four behind it; else it is lost."""
    queue = queue_of(-0.0175, *[-0.014] * 4)  # due in 2.5 ms, and in 6 ms
    decision = policy().next_batch(queue, 0.0, 0.0, [other])
    assert (decision == Take(None, 1, "deadline")) is kept
    if not kept:
        assert isinstance(decision, Drop)
    assert isinstance(policy().next_batch(queue, 0.0, 0.0), Drop)
