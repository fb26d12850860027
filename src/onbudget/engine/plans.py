"""Plans (`core.plan`) as files, and whether one is of this model and of this machine."""

from __future__ import annotations

import json
from pathlib import Path

from onbudget.core.errors import UsageError
from onbudget.core.plan import Plan, check_origin, parse
from onbudget.engine.bundle import file_sha256
from onbudget.engine.files import write_atomically
from onbudget.engine.machine import Machine


def write_plan(plan: Plan, path: Path) -> None:
    """Write the record; UsageError where the file cannot be written."""
    text = json.dumps(plan.to_dict(), ensure_ascii=False, allow_nan=False, indent=1)
    write_atomically(path, (text + "\n").encode())


def read_plan(path: Path) -> Plan:
    """A plan of whatever model; UsageError where there is no file, RecordError for damage."""
    try:
        return parse(path.read_bytes(), str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def origin(plan: Plan, path: Path, model: Path) -> str:
    """A sentence where the plan in file `path` was made on another machine, else empty.

    UsageError where it is not of the file `model`, or where there is no such file.
    """
    try:
        sha256 = file_sha256(model)
    except OSError as error:
        raise UsageError(f"{model} cannot be read: {error.strerror}") from error
    return check_origin(plan, str(path), sha256=sha256, machine=Machine.read().facts())
