"""A policy that holds a budget, with round costs, and queues for it."""

from __future__ import annotations

from onbudget.core.cost import Cost, Online
from onbudget.core.deadline import MARGIN, Deadline
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
