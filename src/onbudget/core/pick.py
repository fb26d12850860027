"""Which of the configurations that were measured to serve with: one rule, so that every tool picks alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Loads:
    """A configuration's p95 in seconds under few requests and under many; infinity where too few were answered."""

    quiet_s: float
    peak_s: float

    def within(self, budget_s: float) -> bool:
        """Whether both are within the budget. NaN, the p95 of nothing, is not."""
        return self.quiet_s <= budget_s and self.peak_s <= budget_s


def pick(measured: Mapping[Key, Loads], budget_s: float) -> Key | None:
    """The configuration with the lowest peak p95 of those within `budget_s` seconds under both loads.

    A batch that waits to be filled may hold the budget at peak and break it when it is quiet, so both count. Of equals
    the one that was given first; None where none fits.
    """
    fitting = [key for key, loads in measured.items() if loads.within(budget_s)]
    return min(fitting, key=lambda key: measured[key].peak_s, default=None)
