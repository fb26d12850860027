"""The queue and the policies: nothing lost, nothing answered twice, never above the batch limit."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from onbudget.core.errors import BadContent, Shed, TooLarge
from onbudget.core.policy import Greedy, Policy, Take, Timer, Wait
from onbudget.core.queue import Group, Queue, Ticket


def group_of(items: int, arrived: float = 0.0, key: object = None, told: list[Group] | None = None) -> Group:
    group = Group(arrived, 10 * items, (told if told is not None else []).append)
    for number in range(items):
        group.add(number, key)
    return group


def test_a_group_replies_once_with_its_answers_in_order() -> None:
    """Answers land in item order whatever order they come in, and the reply is called once."""
    told: list[Group] = []
    group = group_of(3, told=told)
    for index in (2, 0, 1):
        group.settle(index, f"answer {index}")
    group.settle(1, "again")
    group.fail(BadContent("too late"))
    assert told == [group]
    assert group.answers == ["answer 0", "answer 1", "answer 2"]
    assert group.error is None


def test_the_first_error_ends_a_group() -> None:
    """One failed item answers for the whole request; later answers and errors are dropped."""
    told: list[Group] = []
    group = group_of(2, told=told)
    group.fail(BadContent("item 1"))
    group.fail(BadContent("item 2"))
    group.settle(0, "x")
    assert told == [group]
    assert str(group.error) == "item 1"


def test_a_group_over_the_limit_is_refused_whole() -> None:
    """A request that does not fit leaves the queue as it was (pain 53)."""
    queue = Queue(max_items=3, max_bytes=1000)
    queue.offer(group_of(2))
    with pytest.raises(Shed, match="--max-queue") as refused:
        queue.offer(group_of(2))
    assert refused.value.reason == "queue_full"
    assert (queue.items, queue.waiting, queue.nbytes) == (2, 2, 20)
    queue = Queue(max_items=9, max_bytes=29)
    queue.offer(group_of(2))
    with pytest.raises(Shed) as refused:
        queue.offer(group_of(1))
    assert refused.value.reason == "queue_bytes_full"


def test_what_could_never_fit_is_not_asked_to_come_back() -> None:
    """A request larger than the whole queue is too large, with the limit; `busy, try again` would be a lie."""
    with pytest.raises(TooLarge, match=r"4 items .* 3 \(--max-queue\)"):
        Queue(max_items=3, max_bytes=1000).offer(group_of(4))
    with pytest.raises(TooLarge, match=r"20 bytes .* 19 \(--max-queue-bytes\)"):
        Queue(max_items=9, max_bytes=19).offer(group_of(2))


def test_items_count_until_their_group_is_closed() -> None:
    """Taking a ticket does not free its place: in flight means until answered."""
    queue = Queue(max_items=2, max_bytes=1000)
    group = group_of(2)
    queue.offer(group)
    assert len(queue.take(None, 2)) == 2
    assert queue.waiting == 0
    with pytest.raises(Shed):
        queue.offer(group_of(1))
    queue.close(group)
    queue.offer(group_of(1))


def test_withdrawn_tickets_are_skipped() -> None:
    """A caller that hung up is never run, and its neighbours keep their order (pain 41)."""
    queue = Queue(max_items=10, max_bytes=1000)
    first, gone, last = group_of(1), group_of(2), group_of(1)
    for group in (first, gone, last):
        queue.offer(group)
    queue.withdraw(gone)
    assert queue.waiting == 2
    assert [t.group for t in queue.take(None, 10)] == [first, last]
    assert list(queue.heads()) == []


def test_groups_are_those_that_go_before() -> None:
    """One for each ticket of its class and of more urgent ones, in all buckets; who withdrew is not among them."""
    queue, groups = Queue(max_items=10, max_bytes=1000), {}
    for name, key, priority in (("a", 1, 2), ("gone", 1, 2), ("b", 1, 2), ("last", 1, 3), ("first", 2, 1)):
        groups[name] = group = Group(0.0, 1, lambda group: None, priority=priority)
        group.add(None, key)
        queue.offer(group)
    queue.withdraw(groups["gone"])

    def names(priority: int) -> list[str]:
        return [name for found in queue.groups(priority) for name, group in groups.items() if group is found]

    assert [sorted(names(priority)) for priority in (1, 2, 3)] == [
        ["first"],
        ["a", "b", "first"],
        ["a", "b", "first", "last"],
    ]


def test_rows_of_different_shape_never_share_a_batch() -> None:
    """A batch comes from one bucket, and the bucket whose head has waited longest goes first."""
    queue = Queue(max_items=10, max_bytes=1000)
    queue.offer(group_of(1, arrived=2.0, key="small"))
    queue.offer(group_of(2, arrived=1.0, key="large"))
    queue.offer(group_of(1, arrived=3.0, key="small"))
    policy = Greedy(8)
    take = policy.next_batch(queue, 4.0, 4.0)
    assert take == Take("large", 2, "idle")
    queue.take("large", 2)
    assert policy.next_batch(queue, 4.0, 4.0) == Take("small", 2, "idle")


def test_a_line_that_is_never_taken_from_stays_short() -> None:
    """Whoever leaves a class that never has its turn leaves nothing behind, and the others keep their order."""
    queue = Queue(max_items=5000, max_bytes=10**6)
    queue.offer(group_of(1))
    waits = deque(Group(float(n), 1, lambda group: None, deadline=float(n), priority=3) for n in range(1000))
    for group in waits:
        group.add(None)
        queue.offer(group)
    for now in range(990):
        for group in queue.expired(float(now)):
            queue.withdraw(group)
    line = queue._buckets[None].lines[2]
    assert len(line.tickets) == line.live == 10
    assert [t.group.deadline for t in queue.take(None, 4)] == [float("inf"), 990.0, 991.0, 992.0]


def test_drain_gives_every_waiting_group_once() -> None:
    """What still waits when the server stops comes out in arrival order, each request once."""
    queue = Queue(max_items=10, max_bytes=1000)
    late, early = group_of(2, arrived=5.0), group_of(3, arrived=1.0, key="other")
    queue.offer(late)
    queue.offer(early)
    assert list(queue.drain()) == [early, late]
    assert queue.waiting == 0


@pytest.mark.parametrize(
    ("waiting", "now", "expected"),
    [
        (0, 0.0, None),
        (1, 10.0, Wait(10.002)),
        (3, 10.001, Wait(10.002)),
        (3, 10.002, Take(None, 3, "wait")),
        (4, 10.0, Take(None, 4, "full")),
        (9, 10.0, Take(None, 4, "full")),
    ],
)
def test_the_timer_waits_from_the_first_sight(waiting: int, now: float, expected: object) -> None:
    """The timer closes a batch when it is full, or `max_wait` after the free lane first saw a ticket."""
    queue = Queue(max_items=100, max_bytes=10**6)
    for _ in range(waiting):
        queue.offer(group_of(1))
    assert Timer(4, 0.002).next_batch(queue, now, since=10.0) == expected


def test_the_timer_does_not_count_the_wait_of_a_ticket_that_is_gone() -> None:
    """Another lane took what this one first saw: what came later still gets its whole `max_wait`."""
    queue = Queue(max_items=100, max_bytes=10_000)
    queue.offer(group_of(1, arrived=10.0015))
    assert Timer(4, 0.002).next_batch(queue, 10.002, since=10.0) == Wait(10.0035)


@given(st.integers(1, 40), st.integers(1, 16))
def test_greedy_never_makes_a_lone_request_wait(waiting: int, max_batch: int) -> None:
    """With anything waiting, a free lane gets work at once, and never more than the limit (pain 48, 59)."""
    queue = Queue(max_items=1000, max_bytes=10**6)
    for number in range(waiting):
        queue.offer(group_of(1, arrived=float(number)))
    take = Greedy(max_batch).next_batch(queue, 0.0, 0.0)
    assert isinstance(take, Take)
    assert take.count == min(waiting, max_batch)


class Traffic(RuleBasedStateMachine):
    """Random arrivals, takes, hang-ups and failures: every group ends exactly once and the counts add up."""

    groups = Bundle("groups")
    taken = Bundle("taken")

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue(max_items=20, max_bytes=400)
        self.policy: Policy = Greedy(4)
        self.replies: list[Group] = []
        self.open: dict[Group, int] = {}
        self.now = 0.0

    def _ended(self, group: Group) -> None:
        self.replies.append(group)
        self.queue.withdraw(group)
        self.queue.close(group)
        del self.open[group]

    @rule(
        target=groups,
        items=st.integers(1, 6),
        key=st.sampled_from(["a", "b"]),
        within=st.sampled_from([5, 5, 5, 1, 50]),
        priority=st.sampled_from([2, 2, 1, 3]),
    )
    def arrive(self, items: int, key: str, within: int, priority: int) -> object:
        self.now += 1
        group = Group(self.now, 10 * items, self._ended, deadline=self.now + within, priority=priority)
        for number in range(items):
            group.add(number, key)
        before = (self.queue.items, self.queue.waiting, self.queue.nbytes)
        try:
            self.queue.offer(group)
        except Shed:
            assert before == (self.queue.items, self.queue.waiting, self.queue.nbytes)
            assert before[0] + items > 20 or before[2] + 10 * items > 400
            return multiple()
        self.open[group] = items
        return group

    @rule(target=taken)
    def take(self) -> object:
        decision = self.policy.next_batch(self.queue, self.now, self.now)
        if decision is None:
            assert self.queue.waiting == 0
            return multiple()
        assert isinstance(decision, Take)
        tickets = self.queue.take(decision.key, decision.count)
        assert 1 <= len(tickets) <= 4
        assert len({t.key for t in tickets}) == 1
        order = [(t.group.priority, t.group.deadline, t.group.arrived, t.index) for t in tickets]
        assert order == sorted(order)
        heads = [(t.key, t.group.priority, t.group.deadline) for t, _ in self.queue.heads()]
        assert all(order[-1][:2] <= (priority, due) for key, priority, due in heads if key == decision.key)
        assert all(order[0][:2] <= (priority, due) for _, priority, due in heads)
        assert not any(t.group.withdrawn for t in tickets)
        return multiple(*tickets)

    @rule(ticket=consumes(taken))
    def settle(self, ticket: Ticket) -> None:
        ticket.group.settle(ticket.index, ticket.index)

    @rule()
    def expire(self) -> None:
        lost = self.queue.expired(self.now)
        assert len(lost) == len(set(lost))
        waiting = {group for group in self.open if any(t.queued for t in group.tickets)}
        assert set(lost) == {group for group in waiting if group.expires <= self.now}
        for group in lost:
            group.fail(BadContent("expired"))
        assert self.queue.expires() == min((g.expires for g in waiting if g not in lost), default=float("inf"))

    @rule(group=groups)
    def hang_up(self, group: Group) -> None:
        group.fail(BadContent("gone"))

    @invariant()
    def counts_add_up(self) -> None:
        assert self.queue.items == sum(self.open.values())
        assert self.queue.nbytes == 10 * sum(self.open.values())
        waiting = [t.group.priority for g in self.open for t in g.tickets if t.queued]
        assert self.queue.waiting == len(waiting)
        for priority in (1, 2, 3):
            assert self.queue.ahead(priority) == sum(other <= priority for other in waiting)
        assert len(self.replies) == len(set(self.replies))

    def teardown(self) -> None:
        for group in self.queue.drain():
            group.fail(BadContent("stopped"))
        assert self.queue.waiting == 0


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
