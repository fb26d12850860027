"""How urgent a request is: one of three classes, the lower number the more urgent.

The numbers are those of the Open Inference Protocol's `priority` parameter: 1 is the most urgent, and 0 or none is what
a caller gets that does not ask. Class 2 is that default, so that a batch job can step back (3) as well as a person at a
screen can step forward (1).
"""

from __future__ import annotations

FIRST, NORMAL, LAST = 1, 2, 3


def priority_of(number: int) -> int:
    """The class that a caller's number means; ValueError for a number that means none."""
    if not 0 <= number <= LAST:
        raise ValueError(f"priority {number} is not a whole number from 0 to {LAST}")
    return number or NORMAL
