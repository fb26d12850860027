"""A Python classifier in a model's place: any object with `predict` and `classes`, for the same lanes and routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from onbudget.core.errors import RunFailed, UsageError
from onbudget.core.metadata import Metadata
from onbudget.engine.session import Array, Port, Stop
from onbudget.serve.batcher import MicroBatcher
from onbudget.serve.classifier import Classifier
from onbudget.serve.settings import Settings

_ANSWERS = "answers"


class Adapted:
    """A `Runner` whose one run is one `predict`, and the task that passes its answers on as they are.

    `free` says that nobody declared what an item looks like, so that only a `decode` can make one. `batcher` is told of
    every batch. UsageError for an object without `predict`, or without `classes`.
    """

    sha256 = ""
    providers = ("python",)

    def __init__(self, classifier: Any, batcher: MicroBatcher | None = None) -> None:
        for name in ("predict", "classes"):
            if not hasattr(classifier, name):
                raise UsageError(
                    f"{type(classifier).__name__} has no {name!r}; give a path of an .onnx file, or an object with "
                    "predict(items) and classes"
                )
        self.classifier = classifier
        self.path = Path(getattr(classifier, "path", None) or type(classifier).__name__)
        self._batcher = batcher
        item = classifier.item() if isinstance(classifier, Classifier) else None
        self.free = item is None
        self.inputs = (item or Port("instances", "object", (None, None)),)
        self.outputs = (Port(_ANSWERS, "object", (None,)),)
        field = classifier.metadata.field if isinstance(classifier, Classifier) else "instances"
        self.metadata = Metadata(
            task="classify",
            field=self.inputs[0].name if field == "instances" else field,
            labels=tuple(map(str, classifier.classes)),
            recipe=classifier.recipe if isinstance(classifier, Classifier) else None,
        )

    def run(
        self, feeds: Mapping[str, Array], outputs: Sequence[str] | None = None, stop: Stop | None = None
    ) -> list[Any]:
        """One `predict`; it can't be stopped."""
        (items,) = feeds.values()
        if self._batcher is not None:
            self._batcher.batch_sizes.append(len(items))
        answers = list(self.classifier.predict(items))
        if len(answers) != len(items):
            raise RunFailed(f"predict gave {len(answers)} answers for a batch of {len(items)}")
        return [answers]


class AsTheyAre:
    """The task of a Python classifier: its answers are the answers."""

    outputs = (_ANSWERS,)

    def finish(self, arrays: Sequence[Any], tops: Sequence[int]) -> list[Any]:
        """One list of answers → the same."""
        return list(arrays[0])


def adapt(
    model: str | PathLike[str] | Any, batcher: MicroBatcher | None, settings: Settings, decodes: bool
) -> tuple[Path | Adapted, Settings]:
    """What `create_app` was given → what is served, and how; UsageError for what does not go together.

    A bundle that came as a Classifier is served from its file, as if its path had been given.
    """
    if isinstance(model, str | PathLike):
        if batcher is not None:
            raise UsageError("a batcher goes with a classifier; a file is batched by the server: settings=Settings(…)")
        return Path(fspath(model)), settings
    if settings.policy == "deadline":
        raise UsageError("--policy deadline must know what a run costs; it takes a model's path, not a classifier")
    if batcher is None and isinstance(model, Classifier) and model.bundle:
        return model.path, settings
    if batcher is not None:
        if not isinstance(batcher, MicroBatcher) or batcher.classifier is not model:
            raise UsageError("batcher must be an onbudget.MicroBatcher of the same classifier")
        settings = replace(settings, policy="timer", max_batch=batcher.max_batch, max_wait=batcher.max_wait)
    adapted = Adapted(model, batcher)
    if adapted.free and not decodes:
        raise UsageError(
            f"what an item of {adapted.path} looks like is not known: give decode=, a function of what was sent → its "
            "array, or give a Classifier a Recipe as its preprocess"
        )
    return adapted, settings
