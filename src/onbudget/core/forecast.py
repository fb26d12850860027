"""What a server will do before it is asked to: p95 at a rate, and the highest rate that holds, for a configuration.

Requests are of one item and arrive as a Poisson process. What decides is who does the event loop's work:

* an inline lane and its loop are one thread, which reads all that came, runs a batch and answers it, in turn;
* where lanes and their threads leave the loop no core of its own, its work is taken from the runs. So it is charged to
  them: a run of b items takes L(b) + batch_s + b · accept_s, stretched where there are more threads than cores;
* a loop with a core of its own works beside the runs: each request is read first, and then waits for a lane.

Greedy on one lane without a loop of its own is computed by `core.chain`; everything else is simulated, with the
policies and the queue that serve. Left out are noise of the runs, unless it is told, and the network.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from onbudget.core import chain
from onbudget.core.cost import Cost, Online
from onbudget.core.deadline import MARGIN, Deadline, reserve
from onbudget.core.outcome import Outcome, limit_rate
from onbudget.core.overheads import Overheads
from onbudget.core.plan import Configuration
from onbudget.core.plant import Noise, Plant
from onbudget.core.policy import Greedy, Policy
from onbudget.core.simulate import simulate
from onbudget.core.traffic import Floats, poisson

GOODPUT = 0.01  # the largest share of refusals at which a rate counts as goodput
REQUESTS = 20_000  # of a simulation: its p95 at half of the limit is then known to about 2 %
STEADY = Noise()
_WARMUP = 0.05  # of them; a policy has learnt by then what runs take


@dataclass(frozen=True, slots=True)
class Forecast:
    """A configuration with a budget of `budget_s` seconds on `cores` cores.

    `cost` is seconds a run by batch, without `overheads`, as measured with all lanes busy and `configuration.threads`
    threads. `configuration.max_batch` is what the policy is built with; `demote` says whether a deadline answers late
    (`--late demote`). `requests` are simulated at a rate; `seed` is of the arrivals and the noise, and the same seed
    gives the same pattern at every rate.
    ValueError for an inline lane that isn't alone, and for no core.
    """

    cost: Cost
    overheads: Overheads
    configuration: Configuration
    budget_s: float
    inline: bool = False
    demote: bool = True
    cores: float = 1.0
    noise: Noise = STEADY
    seed: int = 1
    requests: int = REQUESTS
    loaded: Cost = field(init=False, repr=False, compare=False)  # runs with all that their thread does beside them

    def __post_init__(self) -> None:
        """Check it, and work out what a run takes."""
        if not (self.budget_s > 0 and self.cores > 0):
            raise ValueError(f"a budget of {self.budget_s} s on {self.cores} cores can't be meant")
        if self.inline and (self.configuration.lanes > 1 or self.configuration.threads > 1):
            raise ValueError(f"an inline lane is alone and has one thread, not {self.configuration}")
        batch, accept = self.overheads.batch_s, self.overheads.accept_s
        if not self.inline:
            crowd = self._wanted / self.cores
            accept = accept * max(1.0, crowd) if self.shared else 0.0
        sizes = range(1, self.configuration.max_batch + 1)
        object.__setattr__(self, "loaded", Cost.of({b: self.cost.seconds(b) + batch + b * accept for b in sizes}))

    @property
    def _wanted(self) -> int:
        """The threads that runs keep busy."""
        return self.configuration.lanes * self.configuration.threads

    @property
    def shared(self) -> bool:
        """Whether the event loop has no core of its own."""
        return self.inline or self._wanted + 1 > self.cores

    @property
    def capacity(self) -> float:
        """Requests a second that nothing can exceed."""
        lanes = self.configuration.lanes * self.loaded.capacity(self.configuration.max_batch)
        return lanes if self.shared or not self.overheads.accept_s else min(lanes, 1 / self.overheads.accept_s)

    def plant(self) -> Plant:
        """The machine to simulate."""
        over, lanes = self.overheads, self.configuration.lanes
        if self.inline or not self.shared:  # the loop reads on its own account, and a run has its batch's part only
            sizes = range(1, self.configuration.max_batch + 1)
            cost = Cost.of({b: self.cost.seconds(b) + over.batch_s for b in sizes})
            answer = over.accept_s * over.reply
            return Plant(cost, lanes, self.inline, over.accept_s - answer, over.refuse_s, answer, self.noise)
        return Plant(self.loaded, lanes, refuse_s=over.refuse_s, noise=self.noise)

    def policy(self) -> Policy:
        """A fresh one, as a server builds it: it believes the runs' own cost, and learns the rest."""
        most = self.configuration.max_batch
        if self.configuration.policy == "greedy":
            return Greedy(most)
        return Deadline(most, self.budget_s, Online(self.cost), reserve(self.budget_s), self.demote)

    def simulated(self, rate: float) -> Outcome:
        """What becomes of `requests` requests at `rate` a second; the first twentieth warms and is not judged."""
        return self.replayed(poisson(rate, self.requests / rate, self.seed))

    def replayed(self, moments: Floats) -> Outcome:
        """What becomes of requests that arrive at these seconds, ascending; the first twentieth of the time warms."""
        warmup = _WARMUP * float(moments[-1]) if len(moments) else 0.0
        plant = self.plant()
        return simulate(self.policy(), plant, moments.tolist(), self.budget_s, warmup_s=warmup, seed=self.seed)

    @property
    def exact(self) -> bool:
        """Whether p95 is computed: greedy on one lane, no noise, and no reading or answering but as part of runs."""
        one = self.configuration.lanes == 1 and self.configuration.policy == "greedy" and self.noise == STEADY
        return one and (not self.overheads.accept_s or (self.shared and not self.inline))

    def p95(self, rate: float) -> float:
        """Seconds at `rate` requests a second, of all that are offered; infinity where more than 5 % are refused."""
        if self.exact:
            return chain.p95(rate, self.loaded, self.configuration.max_batch)
        return self.simulated(rate).p95

    def limit_rate(self, most_unanswered: float = GOODPUT) -> float:
        """The highest rate, to 1 %, at which p95 of all that are offered is within the budget; 0 where none is.

        At most the share `most_unanswered` of them may be refused: 1 for a limit that counts them as late and no more.
        """
        if self.exact:
            return chain.limit_rate(self.budget_s, self.loaded, self.configuration.max_batch)
        return limit_rate(self.simulated, self.capacity, most_unanswered)

    def quick_limit_rate(self) -> float:
        """About `limit_rate()`, in tenths of a second at most: for a server, which has better things to do.

        Within 6 % where the budget is some 25 runs of one item or more; at 5 to 10 of them up to 12 % low.

        Several lanes are counted as servers with a queue each, which is cautious, as is a loop that does not gain from
        a core of its own. One that sheds refuses those whom greedy would answer too late for the margin of the policy;
        one that demotes answers them late, and so carries what greedy does or more.
        """
        one, most = self.loaded, self.configuration.max_batch
        found = chain.limit_rate(self.budget_s, one, most)
        if self.configuration.policy == "deadline" and not self.demote:
            within = (self.budget_s - reserve(self.budget_s)) / MARGIN
            found = min(found, chain.limit_rate(within, one, most, 1 - GOODPUT))
        return min(self.capacity, self.configuration.lanes * found)
