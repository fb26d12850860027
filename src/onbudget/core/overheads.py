"""What requests and batches cost beside the model's runs: reading, admitting, answering, refusing, forming a batch."""

from __future__ import annotations

import math
from dataclasses import dataclass

REPLY = 0.35  # of what an accepted JSON request costs the loop


@dataclass(frozen=True, slots=True)
class Overheads:
    """CPU seconds beside the runs: for each request let in, for each one refused, and for each batch.

    Of an accepted request's, the share `reply` comes after its run: wording and writing the answer. A batch's part is
    what its requests share: a turn of the event loop, asking the policy, filling rows, the call of the session.
    ValueError for what can't be meant.
    """

    accept_s: float = 0.0
    refuse_s: float = 0.0
    batch_s: float = 0.0
    reply: float = REPLY

    def __post_init__(self) -> None:
        """Refuse negative times and infinite ones."""
        for name in ("accept_s", "refuse_s", "batch_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is a time of 0 s or more, not {getattr(self, name)!r}")
        if not 0 <= self.reply <= 1:
            raise ValueError(f"reply is a share of a request's work, not {self.reply!r}")
