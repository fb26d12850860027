"""A model that is being served: opened, warmed, and its lanes, queue and policy in one place."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onbudget.core.errors import BundleError
from onbudget.core.metadata import Metadata
from onbudget.core.queue import Queue
from onbudget.core.tasks import task_of
from onbudget.engine.machine import Machine
from onbudget.engine.session import OrtRunner, SessionOptions, load_runner, provider_names
from onbudget.engine.told import told
from onbudget.serve.contract import Contract, contract_of
from onbudget.serve.job import Job
from onbudget.serve.lanes import Batch, Lanes
from onbudget.serve.settings import Settings


class Model:
    """One loaded model; `lanes` are running once `start` was called."""

    def __init__(self, path: Path, settings: Settings) -> None:
        """Open, check and warm the model; BundleError or ProviderError when it can't be served as asked."""
        began = time.monotonic()
        options = SessionOptions(threads=settings.threads, providers=provider_names(settings.provider))
        self.path = path
        self.settings = settings
        self.runner: OrtRunner = load_runner(path, options)
        self.contract: Contract = contract_of(self.runner)
        task = task_of(self.runner.metadata, {port.name: port.shape for port in self.runner.outputs})
        self.job = Job(self.runner, self.contract, task, settings.max_batch, settings)
        self.lane_count = settings.lanes or max(1, Machine.read().threads() // settings.threads)
        self.warmed = self._warm(settings.warm_up)
        self.load_seconds = time.monotonic() - began
        self.queue = Queue(settings.max_queue, settings.max_queue_bytes)
        self.lanes: Lanes

    def start(self, post: Callable[[Batch], Any]) -> None:
        """Start the lanes; `post` is called from their threads."""
        policy = self.settings.make_policy(self.job.max_batch)
        self.lanes = Lanes(self.job, policy, self.queue, self.lane_count, post)
        self.lanes.start()

    @property
    def metadata(self) -> Metadata:
        """The passport; an empty one for a plain .onnx."""
        return self.runner.metadata or Metadata()

    def _warm(self, budget: float) -> list[int]:
        """Run batch 1 and the largest first, then what the time allows of the others → the sizes that were run."""
        largest = self.job.max_batch
        sizes = [1] if largest == 1 else [1, largest]
        others = [n for n in range(2, largest) if self.job.run_rows == 0]
        end = time.monotonic() + budget
        warmed = []
        try:
            for size in sizes:
                self.job.rehearse(size)
                warmed.append(size)
            for size in others:
                if time.monotonic() > end:
                    break
                self.job.rehearse(size)
                warmed.append(size)
        except Exception as error:
            if warmed:  # a size between that fails: the batch axis is not what it says
                raise BundleError(
                    f"{self.path}: it runs with {warmed} items but not with {size}: {told(error)}; "
                    "`onbudget check` says which node, and --max-batch 1 serves it one at a time"
                ) from error
            made_up = any(None in shape for shape in self.contract.shapes)
            if made_up or any(port.dtype == "object" for port in self.contract.inputs):
                return []  # made-up sizes and texts are no proof that the model is broken
            raise BundleError(f"{self.path}: a first run failed: {told(error)}") from error
        return sorted(warmed)

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
                "policy": settings.policy,
                "p95_ms": settings.p95 * 1000 if settings.p95 else None,
                "lanes": self.lane_count,
                "threads": settings.threads,
                "max_batch": self.job.max_batch,
                "one_at_a_time": contract.why_alone,
                "max_items": settings.max_items,
                "max_queue": settings.max_queue,
                "warmed": self.warmed,
            },
        }
