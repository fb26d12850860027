"""The Dockerfile's instructions, as tests want them."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """(word, rest) of each instruction, with continued lines joined."""
    text = re.sub(r"\\\n", " ", DOCKERFILE.read_text())
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line and line[0] != "#"]  # type: ignore[misc]


def health_command() -> list[str]:
    """The words of HEALTHCHECK's CMD."""
    told = next(rest for word, rest in instructions() if word == "HEALTHCHECK")
    command: list[str] = json.loads(told[told.index("[") :])
    return command
