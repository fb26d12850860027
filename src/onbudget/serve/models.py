"""A model that is being served: opened, warmed, and its lanes, queue and policy in one place."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from onbudget.core.cost import Cost, Online
from onbudget.core.deadline import Deadline, batch_for, fits_inline, reserve
from onbudget.core.errors import BundleError
from onbudget.core.late import Spare
from onbudget.core.metadata import Metadata
from onbudget.core.policy import Greedy, Policy, Timer
from onbudget.core.queue import Queue
from onbudget.core.tasks import Task, task_of
from onbudget.engine.invariance import probe
from onbudget.engine.machine import Machine
from onbudget.engine.session import RUNTIME, OrtRunner, SessionOptions, load_runner, provider_names
from onbudget.serve.adapted import Adapted, AsTheyAre
from onbudget.serve.contract import Contract, contract_of
from onbudget.serve.costs import Cache, learn
from onbudget.serve.inline import Inline
from onbudget.serve.job import Job
from onbudget.serve.lanes import Batch, Lanes
from onbudget.serve.polls import Polls
from onbudget.serve.seam import Seam
from onbudget.serve.settings import Settings

Loaded = OrtRunner | Adapted
BUDGET_S = 0.02  # to measure a run on the loop's thread by, where none is declared


class Model:
    """One loaded model; `lanes` are running once `start` was called."""

    def __init__(self, source: Path | Adapted, settings: Settings, seam: Seam | None = None) -> None:
        """Open, check and warm the model; BundleError or ProviderError when it can't be served as asked.

        `source` is its file, or a Python classifier; `seam` is what an application does before and after it.
        """
        began = time.monotonic()
        self.python = isinstance(source, Adapted)
        self.path = source.path if isinstance(source, Adapted) else source
        self.settings = settings
        self.seam = seam or Seam()
        self.runner, task = _opened(source, settings)
        self.contract: Contract = replace(
            contract_of(self.runner),
            own=self.seam.decode is not None,
            reworded=self.seam.finish is not None,
            free=isinstance(source, Adapted) and source.free,
        )
        if self.contract.batch is None and not (self.contract.why_alone or self.python) and settings.max_batch > 1:
            self._probe(task.outputs)
        self.job = Job(self.runner, self.contract, task, settings.max_batch, settings, self.seam)
        self.machine = Machine.read(onnxruntime=RUNTIME)
        # A Python classifier is called by one thread at a time, unless somebody says that it may be by more.
        self.lane_count = settings.lanes or (1 if self.python else max(1, self.machine.threads() // settings.threads))
        self._learn()
        self.policy = self._policy()
        self.inline = self._fits_inline()
        self.load_seconds = time.monotonic() - began
        self.queue = Queue(settings.max_queue, settings.max_queue_bytes)
        self.lanes: Lanes | Inline

    def start(self, post: Callable[[Batch], Any], deliver: Callable[[Batch], None], polls: Polls) -> None:
        """Start the lanes: threads call `post` with each batch, an inline lane calls `deliver`, on the loop."""
        if self.inline:
            self.lanes = Inline(self.job, self.policy, self.queue, deliver, polls)
        else:
            self.lanes = Lanes(self.job, self.policy, self.queue, self.lane_count, post)
        self.lanes.start()

    def _learn(self) -> None:
        """What runs cost: `cost` (None where nothing could be run), the sizes `warmed`, and `cost_source`."""
        self.warmed: list[int] = []
        self.cost_source, self.cost = "none", None
        if self.python:  # made-up items are nothing to call somebody's code with
            return
        how = {"threads": self.settings.threads, "providers": list(self.runner.providers)}
        self._cache = Cache.of(self.runner.sha256, self.machine.hash(), how)
        carried = self.metadata.cost
        try:
            learnt = learn(
                self.job, self.settings.warm_up, self._cache.read(), Cost(carried.points) if carried else None
            )
        except BundleError as error:
            raise BundleError(f"{self.path}: {error}") from error
        self.warmed = list(learnt.warmed)
        self.cost_source = learnt.source
        self.cost = Online(learnt.cost) if learnt.cost else None

    def remember(self) -> None:
        """Keep the start's costs for the next one: a write to disk, so not before the model is ready."""
        if self.cost is not None:
            self._cache.write(self.cost.prior)

    def _policy(self) -> Policy:
        """The policy that was asked for; deadline's largest batch is the smallest that loses next to no capacity."""
        settings, most = self.settings, self.job.max_batch
        if settings.policy == "timer":
            return Timer(most, settings.max_wait)
        if settings.policy == "greedy" or settings.p95 is None or self.cost is None:
            return Greedy(most)
        budget, late = settings.p95, settings.late == "demote"
        return Deadline(batch_for(self.cost.prior, budget, most), budget, self.cost, reserve(budget), late)

    def _probe(self, outputs: Sequence[str]) -> None:
        """Try with a few rows whether they leave each other alone, where the passport does not say."""
        if "batch_mates" in self.metadata.parity:
            return
        mates = probe(self.runner, max_batch=3, recipe=self.contract.recipe, outputs=outputs)
        if not mates.ok and mates.sizes:
            self.contract = replace(self.contract, why_alone=mates.reason)

    @property
    def promise(self) -> float | None:
        """The deadline, in seconds, of a request that brings none of its own; None where no policy holds a budget."""
        return self.policy.budget if isinstance(self.policy, Deadline) else None

    @property
    def spare(self) -> Spare | None:
        """Who may be answered late; None where whoever can't be in time is refused."""
        return self.policy.spare

    @property
    def metadata(self) -> Metadata:
        """The passport; an empty one for a plain .onnx."""
        return self.runner.metadata or Metadata()

    def _fits_inline(self) -> bool:
        """Whether the model may run on the event loop's thread: one lane, one core, and runs too short to feel."""
        if (
            self.seam != Seam()
            or self.cost is None
            or self.lane_count > 1
            or self.settings.threads > 1
            or self.machine.cores() >= 2
        ):
            return False
        return fits_inline(self.cost.prior, self.policy.max_batch, self.settings.p95 or BUDGET_S)

    def described(self) -> dict[str, Any]:
        """What callers need to know to send items, and the effective settings: the body of `/ready`."""
        contract, settings = self.contract, self.settings
        return {
            "model": {
                "field": contract.field,
                "shape": list(contract.shape) if contract.shape is not None else None,
                "dtype": str(contract.dtype),
                "task": self.metadata.task,
                "pictures": contract.pictures,
                "sha256": self.runner.sha256,
                "inputs": [
                    {"name": port.name, "dtype": port.dtype, "shape": list(port.shape)} for port in contract.inputs
                ],
            },
            "providers": list(self.runner.providers),
            "settings": {
                "policy": self.policy.name,
                "p95_ms": settings.p95 * 1000 if settings.p95 else None,
                "late": "demote" if self.spare is not None else "shed",
                "lanes": self.lane_count,
                "threads": settings.threads,
                "max_batch": self.policy.max_batch,
                "inline": self.inline,
                "one_at_a_time": contract.why_alone,
                "max_items": settings.max_items,
                "max_queue": settings.max_queue,
                "warmed": self.warmed,
                "costs_from": self.cost_source,
            },
        }


def _opened(source: Path | Adapted, settings: Settings) -> tuple[Loaded, Task]:
    """What runs, and how its outputs become answers."""
    if isinstance(source, Adapted):
        return source, AsTheyAre()
    options = SessionOptions(threads=settings.threads, providers=provider_names(settings.provider))
    runner = load_runner(source, options)
    return runner, task_of(runner.metadata, {port.name: port.shape for port in runner.outputs})
