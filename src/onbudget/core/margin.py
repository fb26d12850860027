"""Margins that follow what happens: how much longer than predicted a run may take, and what is kept for the loop.

Rules of this file. Two numbers, each moved only by what it can help: `run` by answers that are late because their run
took too long, `reserve` by those that are late because the loop did. They move slowly, by windows of at least `ANSWERS`
and `RUNS`, within bounds, and not at all while few are late but some. Where no window fills they go back to where they
began, whoever asks: what was raised so high that nobody waits any more is not held for ever.

Whoever is let in runs so that `reserve` is left before their deadline, if the run takes no longer than predicted. So an
answer that is late has two parts of lateness: by how much its run ended after that, and by how much longer than
`reserve` it then took. The larger part is the cause. A run that took far too long (a stall) says nothing about the
margin: it keeps it from falling, and does not raise it.
"""

from __future__ import annotations

LEAST, MOST = 1.05, 1.3  # on a run's predicted time
SHARE = 0.25  # of the budget: the most that is kept for the loop; the least is what it was at first
ANSWERS, RUNS = 300, 100  # who rides in one run is late together, so a few large runs say little
RUN_HIGH, LOOP_HIGH = 0.03, 0.01  # of the answers: more late ones raise; the loop's lateness is cheap to avoid
LOW = 0.005  # of the answers: fewer late ones lower
STEP, LOWER = 0.05, 0.01  # the most that a window raises `run`, and by what it lowers it
RESERVE_STEPS = 0.4  # of the budget: what they are for `reserve`
STALL = 2.0  # times the time that there was: no margin is for that
GRACE, HALF_LIFE = 60.0, 60.0  # seconds: how old a window may be before both begin to go back, and to be half-way


class Margins:
    """The two numbers, which are `run` and `reserve` (in seconds) at first; the budget is of `budget` seconds.

    Times are in monotonic seconds. One thread tells what happened, any may ask.
    """

    __slots__ = (
        "_answers",
        "_began",
        "_budget",
        "_loop",
        "_ran",
        "_reserve",
        "_reserve_first",
        "_run",
        "_run_first",
        "_runs",
        "_runs_late",
        "_short",
        "_stalled",
    )

    def __init__(self, run: float, reserve: float, budget: float) -> None:
        self._run = self._run_first = run  # both as of `_began`
        self._reserve = self._reserve_first = reserve
        self._budget = budget
        self._ran = 0.0  # when the last run ended that somebody was answered from
        self._stalled = False
        self._clear(0.0)

    def _clear(self, now: float) -> None:
        self._began = now
        self._answers = self._runs = 0
        self._runs_late = self._short = self._loop = 0  # late by their run; of those by no stall; by the loop

    def run(self, now: float) -> float:
        """How many times its predicted time a run is planned to take."""
        return self._run_first + (self._run - self._run_first) * self._left(now)

    def reserve(self, now: float) -> float:
        """What is kept for reading and replying, in seconds."""
        return self._reserve_first + (self._reserve - self._reserve_first) * self._left(now)

    def _left(self, now: float) -> float:
        """How much is left of what windows have moved."""
        old = now - self._began - GRACE
        return 1.0 if old <= 0 else 0.5 ** (old / HALF_LIFE)

    def answered(self, deadline: float, taken: float, ran: float, now: float) -> None:
        """One who waited, and was let in to be in time, is answered `now`, from a run from `taken` to `ran`."""
        reserve = self.reserve(now)
        due = deadline - reserve
        self._answers += 1
        if ran != self._ran:
            self._ran, self._stalled = ran, ran - taken > STALL * (due - taken)
            self._runs += 1
        if now > deadline:
            if ran - due < now - ran - reserve:
                self._loop += 1
            else:
                self._runs_late += 1
                self._short += not self._stalled
        if self._answers >= ANSWERS and self._runs >= RUNS:
            self._move(now)

    def _move(self, now: float) -> None:
        short, late, loop = (count / self._answers for count in (self._short, self._runs_late, self._loop))
        run = self.run(now) + _moved(short, late, RUN_HIGH)
        reserve = self.reserve(now) + RESERVE_STEPS * self._budget * _moved(loop, loop, LOOP_HIGH)
        self._run, self._reserve = (
            min(MOST, max(LEAST, run)),
            max(self._reserve_first, min(SHARE * self._budget, reserve)),
        )
        self._clear(now)


def _moved(short: float, late: float, high: float) -> float:
    """By how much a margin moves: up by the share that it was `short` for above `high`, down where few were late."""
    if short > high:
        return min(STEP, short - high)
    return -LOWER if late < LOW else 0.0
