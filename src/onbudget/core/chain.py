"""The latency of the greedy policy under Poisson arrivals, computed instead of simulated: any L(b), any largest batch.

One lane takes whatever waits, up to B items, the moment it is free; a run of b items takes L(b) exactly; arrivals are
Poisson. Then the queue's length at the starts of runs is a Markov chain: from n, min(n, B) leave and Poisson(λ·L) come;
an empty queue waits for its next arrival and starts a run of one. Its stationary law π gives every latency:

* an arrival during a run started at n ≤ B, where all s that came during it fit in the next one, waits a uniform part of
  L(n) and then L(s). Summed over n and s this is the CDF of our theory notes (3.6):
  Σ π(n) · s · Poisson(s; λL(n)) · clip((x − L(s)) / L(n), 0, 1), normalised; an arrival at an idle lane takes L(1);
* where more wait than fit, an arrival at time t of the run finds f = (those left over) + Poisson(λt) before it. It
  waits for the rest of that run and for ⌊f/B⌋ full runs, and then shares one of min(B, f mod B + 1 + those who came
  after it) items. That is summed over cells of t, within which the latency is uniform.

The chain is the usual embedded one for bulk service (Bailey 1954; Neuts 1967). The tests hold the results against a
simulation, against Erlang's M/D/1 and against Inoue's bounds (arXiv 1912.06322).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onbudget.core.cost import Cost

Floats = npt.NDArray[np.float64]

_CELLS = 16  # of a run's time; 64 of them change a p95 by less than 0.1 %
_LOST = 1e-6  # of all arrivals, the most that may fall out of the states that are kept
_MOST_STATES = 1500  # beyond the largest batch; reached within 1 % of saturation
_RARE = 1e-11  # parts of the distribution that weigh less are left out
_FINE = 1e-3  # how finely a limit rate is told


@dataclass(frozen=True, slots=True)
class Latency:
    """A distribution of latencies: parts of `weight`, each uniform from `start` over `width` seconds (0: a point)."""

    start: Floats
    width: Floats
    weight: Floats

    def cdf(self, seconds: float) -> float:
        """The share of requests answered within `seconds`."""
        return float(self.weight @ _covered(self.start, self.width, seconds))

    def quantile(self, q: float) -> float:
        """The latency, in seconds, that a share `q` of the requests does not exceed."""
        low, high = 0.0, float((self.start + self.width).max())
        start, width, weight, below = self.start, self.width, self.weight, 0.0
        while high - low > 1e-6 * high:
            middle = (low + high) / 2
            if below + float(weight @ _covered(start, width, middle)) < q:
                low = middle
            else:
                high = middle
            under = start + width <= low
            below += float(weight[under].sum())
            open_ = ~under & (start < high)
            start, width, weight = start[open_], width[open_], weight[open_]
        return high

    def mean(self) -> float:
        """In seconds."""
        return float(self.weight @ (self.start + self.width / 2))


def _covered(start: Floats, width: Floats, seconds: float) -> Floats:
    """The share of each part that lies at or below `seconds`."""
    over = seconds - start
    shares: Floats = np.where(width > 0, np.clip(over / np.where(width > 0, width, 1.0), 0.0, 1.0), over >= 0)
    return shares


def latency(rate: float, cost: Cost, max_batch: int) -> Latency | None:
    """The distribution at `rate` requests a second on one lane; None where the queue grows without bound.

    None also within 1 % of that rate, where the queue is too long to be computed and no budget is meant. ValueError for
    a rate or a batch that is not above zero.
    """
    if not 0 < rate < math.inf or max_batch < 1:
        raise ValueError(f"{rate}/s in batches up to {max_batch} cannot be meant")
    beyond = _states_beyond(rate * cost.seconds(max_batch) / max_batch)
    if beyond is None:
        return None
    most = max_batch + beyond
    states = min(64, most)
    while True:
        batch = min(max_batch, states)  # no run is larger where no queue is
        times = np.array([cost.seconds(b) for b in range(1, batch + 1)])
        share = _stationary(rate, times, states)
        if float(share[-1]) * states <= _LOST or states > most:
            parts = _parts(rate, times, share)
            came = float(parts.weight.sum())
            taken = float(share @ np.minimum(np.arange(1, states + 1), batch))
            if abs(came / taken - 1) <= _LOST or states > most:  # who came is who was taken: nobody fell out
                return Latency(parts.start, parts.width, parts.weight / came)
        states = min(2 * states, most) if states < most else 2 * most


def latency_cdf(rate: float, cost: Cost, max_batch: int, seconds: float) -> float:
    """The share of requests that is answered within `seconds`; 0 where the queue grows without bound."""
    found = latency(rate, cost, max_batch)
    return found.cdf(seconds) if found else 0.0


def quantile(rate: float, cost: Cost, max_batch: int, q: float) -> float:
    """The q-quantile of latency in seconds; infinity where the queue grows without bound."""
    found = latency(rate, cost, max_batch)
    return found.quantile(q) if found else math.inf


def p95(rate: float, cost: Cost, max_batch: int) -> float:
    """The 95th percentile of latency in seconds; infinity where the queue grows without bound."""
    return quantile(rate, cost, max_batch, 0.95)


def mean(rate: float, cost: Cost, max_batch: int) -> float:
    """The mean latency in seconds; infinity where the queue grows without bound."""
    found = latency(rate, cost, max_batch)
    return found.mean() if found else math.inf


def limit_rate(budget_s: float, cost: Cost, max_batch: int, q: float = 0.95) -> float:
    """The highest rate, to 0.1 %, at which the q-quantile is within `budget_s`; 0 where a lone request is not."""
    if cost.seconds(1) > budget_s:
        return 0.0
    low, high = 0.0, max_batch / cost.seconds(max_batch)
    while high - low > _FINE * high:
        middle = (low + high) / 2
        found = latency(middle, cost, max_batch)
        if found is not None and found.cdf(budget_s) >= q:
            low = middle
        else:
            high = middle
    return low


def _states_beyond(load: float) -> int | None:
    """How many states beyond the largest batch are needed; None for too many, or for a load of 1 and more.

    Beyond B the law falls by a factor z a state, where z > 1 solves ln z = load · (z − 1), whatever B is.
    """
    if load >= 1:
        return None
    z = 2 / load**2  # to the right of the root, from where Newton's steps come down to it
    for _ in range(100):
        step = (math.log(z) - load * (z - 1)) / (1 / z - load)
        z -= step
        if step < 1e-9 * z:
            break
    needed = math.ceil(-math.log(_LOST * 1e-2) / math.log(z)) if z > 1 else _MOST_STATES + 1
    return needed if needed <= _MOST_STATES else None


def _poisson(means: Floats, count: int) -> Floats:
    """(…, count): the probabilities of 0 … count − 1 for each mean."""
    k = np.arange(count, dtype=np.float64)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(k[1:]))])
    logs = k * np.log(np.maximum(means, 1e-300))[..., None] - means[..., None] - log_factorial
    out: Floats = np.exp(logs)
    return out


def _stationary(rate: float, times: Floats, states: int) -> Floats:
    """π over queue lengths 1 … states at the starts of runs; what would go beyond the last state is put into it."""
    batch = len(times)
    comes = _poisson(rate * times, states + 1)
    moves = np.zeros((states, states + 1))  # from n to 0 … states
    moves[:batch] = comes
    for left in range(1, states - batch + 1):
        moves[batch + left - 1, left:] = comes[-1, : states + 1 - left]
    moves[:, 1] += moves[:, 0]  # an empty queue's next start is at one
    moves = moves[:, 1:]
    moves[:, -1] += 1 - moves.sum(axis=1)
    system = moves.T - np.eye(states)
    system[-1] = 1.0  # one equation is redundant; in its place: the shares add up to 1
    right = np.zeros(states)
    right[-1] = 1.0
    found: Floats = np.maximum(np.linalg.solve(system, right), 0.0)
    return found


def _parts(rate: float, times: Floats, share: Floats) -> Latency:
    """Every latency with its weight: expected requests a run, so that the weights add up to the mean batch."""
    batch, states = len(times), len(share)
    sizes = np.arange(1, batch + 1)
    comes = _poisson(rate * times, batch)  # of 0 … batch − 1 during a run, by the run's size
    # a run that may leave more waiting than one run takes; the rest have the closed form
    over = share[:batch] * (1 - comes.sum(axis=1)) > _RARE
    over[-1] |= states > batch
    calm = ~over
    weight = share[:batch, None] * comes * (rate * times)[:, None]  # s · Poisson(s; m) = m · Poisson(s − 1; m)
    shape = (int(calm.sum()), batch)
    start = np.broadcast_to(times[sizes - 1], shape).ravel()
    width = np.broadcast_to(times[calm, None], shape).ravel()
    parts = [
        Latency(start, width, weight[calm].ravel()),
        Latency(times[:1], np.zeros(1), np.array([share[:batch] @ comes[:, 0]])),  # at an idle lane
    ]
    for n in np.flatnonzero(over):
        waiting = share[n:] if n == batch - 1 else share[n : n + 1]  # by how many the run leaves behind: 0, 1, …
        parts.append(_crowded(rate, times, float(times[n]), waiting))
    whole = Latency(*(np.concatenate([getattr(p, name) for p in parts]) for name in ("start", "width", "weight")))
    kept = whole.weight > _RARE
    return Latency(whole.start[kept], whole.width[kept], whole.weight[kept])


def _crowded(rate: float, times: Floats, run: float, waiting: Floats) -> Latency:
    """Arrivals during runs of `run` seconds that leave 0, 1, … behind with probabilities `waiting`."""
    batch = len(times)
    passed = (np.arange(_CELLS) + 0.5) / _CELLS * run
    most = rate * run + 8 * math.sqrt(rate * run) + 12  # more than so many do not come during one run
    full = math.ceil((len(waiting) + most) / batch)
    came = _poisson(rate * passed, math.ceil(most))
    found = np.zeros((_CELLS, full * batch))
    for cell in range(_CELLS):
        before = np.convolve(waiting, came[cell])
        found[cell, : len(before)] = before[: full * batch]
    places = (found * (rate * run / _CELLS)).reshape(-1, batch)  # (cell × full runs, place in the own run)
    until = (run - passed[:, None] + np.arange(full) * times[-1]).ravel()  # until the own run starts
    kept = places.sum(axis=1) > _RARE
    places, until = places[kept], until[kept]
    later = _poisson(rate * until, batch)
    sizes = np.zeros_like(places)
    for place in range(batch):
        sizes[:, place:] += places[:, place : place + 1] * later[:, : batch - place]
    sizes[:, -1] = places.sum(axis=1) - sizes[:, :-1].sum(axis=1)  # a full run, however many more came
    cell_width = run / _CELLS
    start = until[:, None] - cell_width / 2 + times
    return Latency(start.ravel(), np.full(start.size, cell_width), np.maximum(sizes, 0.0).ravel())
