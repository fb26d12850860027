"""Classes under the policy that holds a budget: whom they let pass, and who is given up for whom."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onbudget.core.deadline import MARGIN
from onbudget.core.errors import Shed, TooLarge
from onbudget.core.policy import Drop, Take, next_run
from onbudget.core.queue import Group, Queue
from tests.support.policies import IDLE, policy, queue_of


@pytest.mark.parametrize(("priority", "let_in"), [(1, True), (2, True), (3, False)])
def test_the_less_urgent_are_no_reason_to_refuse(priority: int, let_in: bool) -> None:
    """One of the last class must run alone to be in time: who goes before it is let in, whatever that costs it."""
    tight = Group(0.0, 1, lambda group: None, deadline=0.004, own=True, priority=3)
    tight.add(None)
    queue = queue_of()
    queue.offer(tight)
    if let_in:
        policy(budget=0.0059).admit(queue, [(1, 0.0)], 1, age=0.0, now=0.0, priority=priority)
    else:
        with pytest.raises(Shed, match="another caller's late"):
            policy(budget=0.0059).admit(queue, [(1, 0.0)], 1, age=0.0, now=0.0, priority=priority)


def queue_by_class(*waiting: tuple[int, float]) -> Queue:
    """Of each its class and its arrival; the budget is 20 ms."""
    queue = queue_of()
    for priority, arrived in waiting:
        group = Group(arrived, 1, lambda group: None, deadline=arrived + 0.020, priority=priority)
        group.add(None)
        queue.offer(group)
    return queue


@pytest.mark.parametrize(("priority", "fits"), [(1, True), (2, True), (3, False)])
def test_the_door_counts_those_who_go_before(priority: int, fits: bool) -> None:
    """Fifteen of the usual class and one of the last wait: only who goes behind all of them is late."""
    queue = queue_by_class(*[(2, 0.0)] * 15, (3, 0.0))
    if fits:
        policy().admit(queue, IDLE, 1, age=0.0, now=0.0, priority=priority)
    else:
        with pytest.raises(Shed):
            policy().admit(queue, IDLE, 1, age=0.0, now=0.0, priority=priority)


def test_a_lone_request_runs_whatever_its_class() -> None:
    """On an idle lane the least urgent class is served like any other, however dear a run seems."""
    policy(each=100.0).admit(queue_of(), IDLE, 1, age=5.0, now=0.0, priority=3)
    assert policy(each=100.0).next_batch(queue_by_class((3, 0.0)), 99.0, 99.0) == Take(None, 1, "idle")


def test_the_least_urgent_are_given_up_for_the_urgent() -> None:
    """An urgent request with 4.5 ms left gets its batch of three; of the others only who can't wait behind it goes."""
    queue = queue_by_class((1, -0.0155), (2, -0.0145), (2, -0.0145), (2, -0.008), (3, -0.0135))
    decision = policy().next_batch(queue, 0.0, 0.0)
    assert isinstance(decision, Drop)
    assert [group.priority for group in decision.groups] == [3]
    queue.withdraw(decision.groups[0])
    assert policy().next_batch(queue, 0.0, 0.0) == Take(None, 3, "deadline")


def test_the_bucket_of_the_most_urgent_goes_first() -> None:
    """Rows of another shape that are due sooner wait while somebody of a more urgent class does."""
    queue = queue_of()
    for key, priority, deadline in (("a", 2, 0.010), ("b", 1, 0.018), ("c", 1, 0.019)):
        group = Group(0.0, 1, lambda group: None, deadline=deadline, priority=priority)
        group.add(None, key)
        queue.offer(group)
    order = []
    while queue.waiting:
        decision = policy().next_batch(queue, 0.0, 0.0)
        assert isinstance(decision, Take)
        order += [ticket.key for ticket in decision.tickets(queue)]
    assert order == ["b", "c", "a"]


Others = list[list[tuple[int, float, int]]]
OTHERS = st.lists(st.lists(st.tuples(st.sampled_from([2, 3]), st.floats(0.001, 0.05), st.integers(1, 3)), max_size=12))


def first_class_served(withins: list[float], others: Others, most: int) -> bool:
    """Whether all of the first class that the door lets in are in time, with exact costs, while these others come.

    The others come in groups, each during a run, the last group first. On the way: everybody ends once, and no batch is
    too large.
    """
    deadline, queue, now, running = policy(max_batch=most), queue_of(), 0.0, [(1, 0.0)]
    ended: list[Group] = []
    let_in: list[Group] = []
    coming = list(others)

    def offer(priority: int, within: float, items: int) -> None:
        try:
            deadline.admit(queue, running, items, age=0.0, now=now, within=within, priority=priority)
        except (Shed, TooLarge):
            return
        group = Group(now, 1, ended.append, deadline=now + within, priority=priority)
        for _ in range(items):
            group.add(None)
        queue.offer(group)
        let_in.append(group)

    for other in coming.pop() if coming else []:
        offer(*other)
    for within in withins:
        offer(1, within, 1)
    now = MARGIN * deadline.cost.estimate(1, 0.0)  # the batch of one that was running
    served = True
    while queue.waiting:
        decision, lost = next_run(deadline, queue, now, now)
        for group in lost:
            served = served and group.priority > 1
            group.fail(Shed("expired", reason="expired", retry_after_s=1.0))
        if decision is None:
            continue
        assert isinstance(decision, Take)
        taken = decision.tickets(queue)
        assert len(taken) <= most
        run, running = MARGIN * deadline.cost.estimate(len(taken), now), [(len(taken), 0.0)]
        for other in coming.pop() if coming else []:
            offer(*other)
        now += run
        for ticket in taken:
            served = served and (ticket.group.priority > 1 or now <= ticket.group.deadline)
            ticket.group.settle(ticket.index, True)
    assert set(ended) == set(let_in)
    assert len(ended) == len(let_in)
    return served


@given(st.lists(st.floats(0.001, 0.1), min_size=1, max_size=30), OTHERS, st.integers(1, 8))
def test_others_cost_the_first_class_nobody(withins: list[float], others: Others, most: int) -> None:
    """Where all of the first class are in time when they are alone, they are with others before and after them."""
    if first_class_served(withins, [], most):
        assert first_class_served(withins, others, most)


@given(st.floats(0.001, 0.1), st.integers(1, 60), OTHERS, st.integers(1, 8))
def test_who_is_let_in_first_class_is_in_time(within: float, count: int, others: Others, most: int) -> None:
    """Equal deadlines, exact costs: who is let in first class is never dropped or late, whatever the others bring."""
    assert first_class_served([within] * count, others, most)
