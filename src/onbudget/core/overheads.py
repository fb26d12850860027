"""What requests and batches cost beside the model's runs: reading, admitting, answering, refusing, forming a batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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


@dataclass(frozen=True, slots=True)
class Spell:
    """What a server did in a stretch of time, of a second or so.

    `lanes_s` is the CPU of the lanes' work and `other_s` all other CPU of the process, in seconds; `model_s` is what
    the lanes' runs would have taken by the curve that was known before.
    """

    accepted: int
    refused: int
    batches: int
    model_s: float
    lanes_s: float
    other_s: float


@dataclass(frozen=True, slots=True)
class Learnt:
    """Overheads, and how many times the known curve a run takes in service."""

    overheads: Overheads
    run_factor: float


# A JSON tile on one core of an Intel Xeon, 2026-12-02: 0.17 ms an accepted request at 1,000/s, 0.13 at 3,000/s, 0.108
# at 4,000/s, taken to be in batches of 1.1, 2 and 6; a refusal in a header 0.03. A batch of a lane: feeds and answers.
USUAL = (93e-6, 30e-6, 88e-6)  # accept, refuse, a batch's turn of the loop
USUAL_RUN = (1.0, 50e-6)  # times the curve, and a batch's part
_COMMON, _APART = 1.0, 0.25  # deviations, as shares: of all values of a prior together, and of each on its own
_NOISE, _LEAST = 0.05, 0.5e-3  # of a spell's CPU: a share, and seconds, that nothing of it explains
ENOUGH = 300  # accepted requests, before anything is told


def usual() -> Overheads:
    """What they are taken to be where nothing has been measured."""
    accept, refuse, turn = USUAL
    return Overheads(accept, refuse, turn + USUAL_RUN[1])


def learn(spells: Sequence[Spell]) -> Learnt | None:
    """What requests, refusals, batches and runs cost, by least squares over `spells`; None below `ENOUGH` requests.

    One steady rate can't tell a request's own part from a batch's. So the usual values are a prior (Gaussian, `_COMMON`
    and `_APART`): the machine's speed is learnt from any traffic, the split as far as rates differ.
    """
    if sum(one.accepted for one in spells) < ENOUGH:
        return None
    busy = [one for one in spells if one.accepted or one.refused]
    other = _fitted([(s.accepted, s.refused, s.batches) for s in busy], [s.other_s for s in busy], USUAL)
    lanes = _fitted([(s.model_s, s.batches) for s in busy], [s.lanes_s for s in busy], USUAL_RUN)
    accept, refuse, turn = other
    factor, batch = lanes
    return Learnt(Overheads(accept, refuse, turn + batch), factor)


def _fitted(rows: Sequence[Sequence[float]], seconds: Sequence[float], usual: Sequence[float]) -> list[float]:
    """Bayesian linear regression: seconds = rows · x, x around `usual`; never below a twentieth of it."""
    center = np.array(usual)
    told, weight = np.array(rows, np.float64) * center, np.array(seconds)
    deviation = _NOISE * weight + _LEAST
    told, wanted = told / deviation[:, None], weight / deviation
    count = len(center)
    spread = np.full((count, count), _COMMON**2) + np.eye(count) * _APART**2
    trust = np.linalg.inv(spread)
    found = np.linalg.solve(told.T @ told + trust, told.T @ wanted + trust @ np.ones(count))
    return [float(value) for value in np.maximum(found, 0.05) * center]
