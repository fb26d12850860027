"""Records in `results/` as they are read for tables and plots, and how their numbers are written."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onbudget.core.errors import RecordError


@dataclass(frozen=True)
class Record:
    """One file of `results/`: `name` is the file's without `.json`, `data` what it holds."""

    name: str
    data: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> Record:
        """RecordError where the file is not a JSON object."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise RecordError(f"{path} is not JSON: {error}") from error
        if not isinstance(data, dict):
            raise RecordError(f"{path} holds a {type(data).__name__}, where a record is an object")
        return cls(path.name.removesuffix(".json"), data)

    @property
    def cpu(self) -> str:
        """The processor's name without trademark signs, as a title wants it."""
        return " ".join(re.sub(r"\((?:R|TM)\)|\bProcessor\b|\bCPU\b", " ", self.data["machine"]["cpu"]).split())


def made_on(record: Record) -> str:
    """One line of machine and versions, as far as the record tells them; '' where it does not."""
    machine = record.data.get("machine")
    if machine is None:
        return ""
    system = machine.get("system") or f"Linux {machine['kernel']}"
    runtime = f", ONNX Runtime {machine['onnxruntime']}" if "onnxruntime" in machine else ""
    cores = count(machine["cores"])
    return f"{record.cpu}, {cores} core{'' if cores == '1' else 's'}, {system}, Python {machine['python']}{runtime}."


# ---- numbers as text ------------------------------------------------------------------------------------------------


def fixed(value: float | None, digits: int) -> str:
    """Half goes up, as readers expect; None is a dash, since it stands for a figure that does not exist."""
    if value is None:
        return "–"
    scale = 10**digits
    # the float nearest to a decimal half may lie below it: 1e-9 lifts it, and no record has that many digits
    return f"{math.floor(value * scale + 0.5 + 1e-9) / scale:,.{digits}f}"


def count(value: float | None) -> str:
    return fixed(value, 0)


def percent(share: float | None, digits: int = 1) -> str:
    return "–" if share is None else f"{fixed(100 * share, digits)} %"


def signed(share: float, digits: int) -> str:
    """A relative error in percent, with its sign."""
    return f"{'-' if share < 0 else '+'}{fixed(100 * abs(share), digits)} %"


def several(values: Iterable[float | None], digits: int) -> str:
    return ", ".join(fixed(value, digits) for value in values)


# ---- Markdown -------------------------------------------------------------------------------------------------------


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> str:
    """A Markdown table: the first `words` columns are words and go left, the others numbers and go right."""
    dashes = "|".join(["---"] * words + ["---:"] * (len(heads) - words))
    lines = [f"| {' | '.join(line)} |" for line in (heads, *rows)]
    for line in rows:
        assert len(line) == len(heads), f"{len(line)} cells under {len(heads)} heads: {line}"
    return "\n".join([lines[0], f"|{dashes}|", *lines[1:]])


def paragraphs(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)
