"""Who is answered late: how many, behind whom, for how long, and that an overloaded server spends nothing on it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, precondition, rule

from onbudget.core.cost import Cost, Online
from onbudget.core.deadline import MARGIN, Deadline
from onbudget.core.errors import RequestError, Shed, TooLarge
from onbudget.core.late import DOOMED, LATE, LONGEST, WINDOW, Spare
from onbudget.core.outcome import Outcome
from onbudget.core.plant import Noise, Plant
from onbudget.core.policy import Entry, Take, next_run
from onbudget.core.queue import Group, Queue, Ticket
from onbudget.core.simulate import simulate
from onbudget.core.traffic import poisson

IDLE = [(0, 0.0)]
BUSY = [(4, 0.0)]
BUDGET = 0.020


def policy(demote: bool = True, max_batch: int = 4) -> Deadline:
    """One item takes 2 ms and four take 5 ms, margin included."""
    cost = Online(Cost.of({1: 0.002 / MARGIN, 4: 0.005 / MARGIN}))
    return Deadline(max_batch, BUDGET, cost, demote=demote)


def queue_of(*arrivals: float, late: int = 0, items: int = 1) -> Queue:
    queue = Queue(max_items=1000, max_bytes=10**9)
    for number, arrived in enumerate([*([-1.0] * late), *arrivals]):
        group = Group(arrived, 1, lambda group: None, deadline=arrived + BUDGET)
        for _ in range(items):
            group.add(None)
        if number < late:
            group.demote("door", 1e9)
        queue.offer(group)
    return queue


def test_a_doomed_request_is_let_in_as_late_and_a_callers_own_is_not() -> None:
    """Behind 16 others the budget can't be held: late by our deadline, refused by theirs, and too large stays so."""
    full = queue_of(*[0.0] * 16)
    assert policy().admit(full, IDLE, 1, age=0.0, now=0.0) is Entry.LATE
    with pytest.raises(Shed):
        policy().admit(full, IDLE, 1, age=0.0, now=0.0, within=0.015)
    with pytest.raises(Shed):
        policy(demote=False).admit(full, IDLE, 1, age=0.0, now=0.0)
    with pytest.raises(TooLarge):
        policy().admit(full, IDLE, 32, age=0.0, now=0.0)


def test_a_look_is_not_counted_and_a_refusal_is() -> None:
    """The door looks at a head and asks again with the body: a request counts once, whatever becomes of it."""
    made, full = policy(), queue_of(*[0.0] * 16)
    assert made.spare is not None
    made.admit(full, IDLE, 1, age=0.0, now=0.0, look=True)
    assert made.spare.doomed == made.spare.late == 0.0
    made.admit(full, IDLE, 1, age=0.0, now=0.0)
    assert made.spare.doomed == made.spare.late == pytest.approx(1 / WINDOW)
    made.spare.room = 0
    behind = queue_of(*[0.0] * 16, late=900)  # the background holds no more
    with pytest.raises(Shed):
        made.admit(behind, IDLE, 1, age=0.0, now=0.0, look=True)
    assert made.spare.doomed == pytest.approx(2 / WINDOW, rel=0.01)
    assert made.spare.late == pytest.approx(1 / WINDOW, rel=0.01)


@given(st.floats(0.0, 1.0), st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_late_ones_stay_under_their_share(doomed: float, rhythm: int) -> None:
    """Whatever part of the requests is doomed, the late ones stay under 4.5 %; at overload they end."""
    spare, late, steps = Spare(BUDGET), 0, 6 * WINDOW
    spare.room = 10
    due = 0.0
    for step in range(steps):
        due += doomed
        if due < 1.0:
            spare.asked += 1
            continue
        due -= 1.0
        if step % rhythm:
            told = spare.takes(1, 0)
            spare.count(told)
        else:
            spare.asked += 1  # it was let in, and is doomed in the queue
            told = spare.moves(Group(0.0, 1, lambda group: None), 0)
        late += told
        assert spare.late <= LATE + 2 / WINDOW
    assert late <= LATE * (steps + WINDOW) + 2
    if doomed > 2 * DOOMED:
        assert late <= WINDOW * DOOMED + 2  # only until the share has been learned
    if doomed < 0.9 * LATE:
        assert late >= int(doomed * steps) - 1


def test_late_ones_run_when_nobody_else_waits_and_ride_where_there_is_room() -> None:
    """One that is in time goes first; a batch that is not full takes late ones along, as far as its own time allows."""
    made = policy()
    assert made.next_batch(queue_of(late=9), 0.0, 0.0) == Take(None, 4, "late", late=True)
    assert made.next_batch(queue_of(*[0.0] * 6, late=9), 0.0, 0.0) == Take(None, 4, "full")
    assert made.next_batch(queue_of(0.0, 0.0, late=9), 0.0, 0.0) == Take(None, 2, "idle", ride=2)
    assert made.next_batch(queue_of(0.0, 0.0, late=9), 0.0169, 0.0169) == Take(None, 2, "idle")  # 3.1 ms left
    assert made.next_batch(queue_of(0.0, late=9), 0.016, 0.016) == Take(None, 1, "idle", ride=2)
    assert made.next_batch(queue_of(0.0, late=9), 9.0, 9.0) == Take(None, 1, "idle")


def test_who_is_doomed_in_the_queue_moves_to_the_background_once() -> None:
    """After a stall the lost wait in the background, until they have waited for eight budgets."""
    made, queue = policy(), queue_of(0.0, 0.001, 0.012, 0.013, 0.014, 0.015)
    decision, lost = next_run(made, queue, 0.022, 0.022)
    assert (decision, lost) == (Take(None, 4, "full"), [])
    assert isinstance(decision, Take)
    assert [t.group.arrived for t in decision.tickets(queue)] == [0.012, 0.013, 0.014, 0.015]
    assert (queue.waiting, queue.behind, queue.pending) == (0, 2, 2)
    assert queue.expires() == LONGEST * BUDGET
    decision, lost = next_run(made, queue, 0.1605, 0.1605)
    assert [group.arrived for group in lost] == [0.0]
    assert decision == Take(None, 1, "late", late=True)


def test_the_background_is_bounded() -> None:
    """It holds what a lane does in four budgets: 64 items here."""
    made = policy()
    assert made.admit(queue_of(*[0.0] * 16, late=63), BUSY, 1, age=0.0, now=0.0) is Entry.LATE
    with pytest.raises(Shed):
        made.admit(queue_of(*[0.0] * 16, late=64), BUSY, 1, age=0.0, now=0.0)


def outcome(demote: bool, plant: Plant, most: int, budget: float, rate: float) -> Outcome:
    made = Deadline(most, budget, Online(plant.cost), demote=demote)
    return simulate(made, plant, poisson(rate, 12_000 / rate, 3), budget, warmup_s=2000 / rate)


def test_the_five_percent_are_spent_below_capacity() -> None:
    """A 40 ms model at 250 ms and 0.8 of its capacity: two in a hundred are late instead of refused."""
    plant = Plant(Cost.of({1: 0.040, 2: 0.080}))
    shed, demote = (outcome(how, plant, 1, 0.250, 0.8 / 0.040) for how in (False, True))
    assert shed.unanswered_share > 0.015
    assert shed.late == 0
    assert demote.unanswered_share < 0.005
    assert demote.p95 <= 0.250
    assert demote.late > 0


@pytest.mark.parametrize("load", [1.5, 2.0, 3.0])
def test_an_overloaded_server_does_as_well_as_one_that_sheds(load: float) -> None:
    """Nothing is spent on late answers where there is no time to spare: 5,000/s is what this plant holds."""
    cost = Cost.of({b: (0.13 + 0.05 * b) / 1e3 for b in (1, 64)})
    plant = Plant(cost, inline=True, accept_s=100e-6, refuse_s=57e-6, noise=Noise(jitter=0.1))
    shed, demote = (outcome(how, plant, 16, 0.025, load * 5000) for how in (False, True))
    assert demote.rate > 0.97 * shed.rate > 0
    assert demote.late_share < 0.05


class Traffic(RuleBasedStateMachine):
    """Random arrivals, runs, hang-ups and stalls: each group ends once, and who is late never delays who is not."""

    groups = Bundle("groups")
    taken = Bundle("taken")

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue(max_items=60, max_bytes=10**6)
        self.policy = policy()
        self.replies: list[Group] = []
        self.open: set[Group] = set()
        self.now = 0.0

    def _ended(self, group: Group) -> None:
        self.replies.append(group)
        self.queue.withdraw(group)
        self.queue.close(group)
        self.open.remove(group)

    @rule(
        target=groups,
        many=st.integers(1, 12),
        items=st.integers(1, 3),
        key=st.sampled_from("ab"),
        within=st.sampled_from([None, None, 0.01]),
    )
    def arrive(self, many: int, items: int, key: str, within: float | None) -> object:
        groups = []
        for _ in range(many):
            group = Group(self.now, 1, self._ended, deadline=self.now + (within or BUDGET), own=within is not None)
            for number in range(items):
                group.add(number, key)
            try:
                entry = self.policy.admit(self.queue, BUSY, items, 0.0, self.now, within)
                if entry is Entry.LATE:
                    assert within is None
                    group.demote("door", LONGEST * BUDGET)
                self.queue.offer(group)
            except RequestError:
                continue
            self.open.add(group)
            groups.append(group)
        return multiple(*groups)

    @rule(seconds=st.sampled_from([0.001, 0.005, 0.015, 0.2]))
    def stall(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.queue.pending)
    @rule(target=taken)
    def run(self) -> object:
        decision, lost = next_run(self.policy, self.queue, self.now, self.now)
        for group in lost:
            group.fail(Shed("expired", reason="expired", retry_after_s=1.0))
        if decision is None:
            assert not self.queue.pending
            return multiple()
        assert isinstance(decision, Take)
        waited = self.queue.waiting
        tickets = decision.tickets(self.queue)
        assert 1 <= len(tickets) <= 4
        assert len({t.key for t in tickets}) == 1
        late = [bool(t.group.late) for t in tickets]
        assert late == sorted(late)
        in_time = late.count(False)
        if any(late):
            assert in_time == waited  # nobody who could be in time is left behind
            assert not any(t.group.own for t in tickets if t.group.late)
        for part in (tickets[:in_time], tickets[in_time:]):
            due = [t.group.deadline for t in part]
            assert due == sorted(due)
        return multiple(*tickets)

    @rule(ticket=consumes(taken))
    def settle(self, ticket: Ticket) -> None:
        ticket.group.settle(ticket.index, ticket.index)

    @rule(group=groups)
    def hang_up(self, group: Group) -> None:
        group.fail(Shed("gone", reason="gone", retry_after_s=1.0))

    @invariant()
    def counts_add_up(self) -> None:
        queued = [t for g in self.open for t in g.tickets if t.queued]
        assert self.queue.waiting == sum(not t.group.late for t in queued)
        assert self.queue.behind == sum(bool(t.group.late) for t in queued)
        assert self.queue.items == sum(len(g.tickets) for g in self.open)
        assert len(self.replies) == len(set(self.replies))

    def teardown(self) -> None:
        for group in self.queue.drain():
            group.fail(Shed("stopped", reason="stopped", retry_after_s=1.0))
        assert self.queue.pending == 0
        assert not any(t.queued for g in self.open for t in g.tickets)


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
