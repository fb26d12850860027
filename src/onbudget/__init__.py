"""onbudget: serve ONNX models on the CPUs you have and hold a declared p95 latency budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onbudget.core.recipe import Recipe
    from onbudget.serve.app import create_app
    from onbudget.serve.batcher import MicroBatcher
    from onbudget.serve.classifier import Classifier
    from onbudget.serve.embed import lifespan
    from onbudget.serve.settings import Settings

__version__ = "0.1.0"

__all__ = ["Classifier", "MicroBatcher", "Recipe", "Settings", "create_app", "lifespan"]

# name -> its module; imported on first use, so that `import onbudget` costs nothing.
_HOMES = {
    "Classifier": "onbudget.serve.classifier",
    "MicroBatcher": "onbudget.serve.batcher",
    "Recipe": "onbudget.core.recipe",
    "Settings": "onbudget.serve.settings",
    "create_app": "onbudget.serve.app",
    "lifespan": "onbudget.serve.embed",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'onbudget' has no attribute {name!r}; it has {', '.join(__all__)}")
    import importlib

    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
