"""The files that a person hands to `onbudget bundle` beside the model: a recipe and labels."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from onbudget.core.dialects import read_labels, read_recipe
from onbudget.core.errors import UsageError
from onbudget.core.recipe import Recipe


def recipe_file(path: Path) -> tuple[Recipe, tuple[str, ...]]:
    """The recipe in a JSON file of any dialect, and the labels that the same file may hold; UsageError names it."""
    data = _json(path, "--recipe")
    try:
        return read_recipe(data), read_labels(data)
    except UsageError as error:
        raise UsageError(f"--recipe {path}: {error}") from error


def labels_file(path: Path) -> tuple[str, ...]:
    """Labels from a text file (one a line) or from JSON (a list, or a `config.json`), in the order of the columns.

    UsageError for an empty file or label.
    """
    if path.suffix == ".json":
        try:
            labels = read_labels(_json(path, "--labels"))
        except UsageError as error:
            raise UsageError(f"--labels {path}: {error}") from error
    else:
        labels = tuple(line.strip() for line in _text(path, "--labels").rstrip().splitlines())
    if not any(labels):
        raise UsageError(f"--labels {path} holds no labels; write one a line, or give a config.json with id2label")
    empty = [i for i, label in enumerate(labels) if not label.strip()]
    if empty:
        raise UsageError(f"--labels {path}: label {empty[0] + 1} of {len(labels)} is empty")
    return labels


def doubles(labels: tuple[str, ...]) -> list[str]:
    """Labels that occur more than once, in order; ImageNet's lists have some, so they are told and not refused."""
    return [label for label, count in Counter(labels).items() if count > 1]


def _text(path: Path, flag: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except IsADirectoryError as error:
        raise UsageError(f"{flag} {path} is a directory; give a file in it") from error
    except FileNotFoundError as error:
        raise UsageError(f"{flag} {path}: no such file") from error
    except OSError as error:
        raise UsageError(f"{flag} {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{flag} {path} is not UTF-8 text (byte {error.start})") from error


def _json(path: Path, flag: str) -> Any:
    try:
        return json.loads(_text(path, flag))
    except (json.JSONDecodeError, RecursionError) as error:
        raise UsageError(f"{flag} {path} is not JSON: {error}") from error
