"""`pkg.module:factory` as a person types it → the module that it names, with errors that say whose fault it was."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from onbudget.core.errors import ExportFailed, UsageError
from onbudget.make.needs import need_torch

_OURS = str(Path(__file__).parent)


def resolve(target: str, folder: Path) -> Any:
    """The object named by `target`; `folder` comes first on the import path meanwhile.

    Raises UsageError for a name that is not there (with the nearest one), ExportFailed when the import itself raises.
    """
    name, colon, attribute = target.partition(":")
    if not colon or not name or not attribute or "/" in name or name.endswith(".py"):
        raise UsageError(f"{target!r} names no factory; write pkg.module:factory, as in model:make_model")
    with on_path(folder):
        found: Any = _import(name, folder)
    for part in attribute.split("."):
        if not hasattr(found, part):
            public = [n for n in vars(found) if not n.startswith("_")] if hasattr(found, "__dict__") else []
            near = difflib.get_close_matches(part, public, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"{name} ({_file_of(found)}) has no {attribute!r}{hint}")
        found = getattr(found, part)
    return found


def call(factory: Any, target: str, folder: Path) -> Any:
    """`factory()`; its own exception becomes ExportFailed with its message and the line that raised it."""
    try:
        with on_path(folder):
            return factory()
    except Exception as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:  # the call itself, not its body
            raise UsageError(
                f"{target} cannot be called without arguments: {error}; name a function that can"
            ) from error
        raise ExportFailed(f"{target} raised {raised(error)}") from error


def load_module(target: str, weights: Path | None = None, folder: Path | None = None) -> Any:
    """The nn.Module that `pkg.module:factory` names or makes, with `weights` (a saved state_dict) in it.

    Raises UsageError for names and files that do not fit, ExportFailed when the user's own code raises.
    """
    module_class = need_torch().nn.Module
    here = folder or Path.cwd()
    found = resolve(target, here)
    if not isinstance(found, module_class):
        if not callable(found):
            raise UsageError(
                f"{target} is of type {type(found).__name__}, neither a torch.nn.Module nor a function that makes one"
            )
        found = call(found, target, here)
    if not isinstance(found, module_class):
        raise UsageError(f"{target} makes a {type(found).__name__}, not a torch.nn.Module")
    if weights is not None:
        _load_weights(found, weights)
    return found


def _load_weights(module: Any, path: Path) -> None:
    if not path.is_file():
        raise UsageError(f"--weights {path}: no such file")
    try:
        state = need_torch().load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # unpickling fails in many classes; with weights_only none of them ran code of the file
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UsageError(f"--weights {path} is not a state_dict that loads without running code: {why}") from error
    if isinstance(state, dict) and isinstance(state.get("state_dict"), dict):
        state = state["state_dict"]
    if not isinstance(state, dict):
        raise UsageError(f"--weights {path} holds a {type(state).__name__}; save module.state_dict()")
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise UsageError(f"--weights {path} does not fit the module: {' '.join(str(error).split())[:400]}") from error


@contextlib.contextmanager
def on_path(folder: Path) -> Iterator[None]:
    """`folder` is importable, before everything else, for as long as the context lasts."""
    entry = str(folder.resolve())
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # what was imported may have changed the path itself
            sys.path.remove(entry)


def raised(error: BaseException) -> str:
    """An exception of the user's own code in one line: its class, its message and where it came from."""
    text = str(error).strip()
    told = f"{type(error).__name__}: {text}" if text else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if not _is_plumbing(f.filename)] or list(frames)
    return f"{told} (at {theirs[-1].filename}:{theirs[-1].lineno})" if theirs else told


def _is_plumbing(filename: str) -> bool:
    return filename.startswith((_OURS, "<")) or "site-packages" in filename or f"{sys.prefix}/lib" in filename


def _import(name: str, folder: Path) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            here = [p.stem for p in (*folder.glob("*.py"), *folder.glob("*/__init__.py")) if p.stem != "__init__"]
            near = difflib.get_close_matches(name, here, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"no module {error.name!r} in {folder.resolve()} or in this Python{hint}") from error
        raise ExportFailed(f"importing {name} raised {raised(error)}") from error
    except Exception as error:
        raise ExportFailed(f"importing {name} raised {raised(error)}") from error


def _file_of(found: Any) -> str:
    return str(getattr(found, "__file__", None) or getattr(found, "__name__", type(found).__name__))
