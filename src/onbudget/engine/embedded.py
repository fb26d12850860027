"""The model that ships inside the package: a satellite-tile bundle, and a few held-out tiles with their answers.

`examples/harrow_tiles/` makes both from nothing. Nothing here opens a session or decodes a picture.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from onbudget.core.errors import BundleError


@dataclass(frozen=True, slots=True)
class Tile:
    """One held-out picture: its PNG file's bytes, what it shows, and what the bundle answered when it was made."""

    name: str
    png: bytes
    truth: str
    label: str
    confidence: float


def _data() -> Path:
    from importlib.resources import files  # 10 ms that a server of somebody's own model does not pay

    folder = files("onbudget") / "data"
    if not isinstance(folder, Path):
        raise BundleError("onbudget is imported from an archive; ONNX Runtime opens files only: install the wheel")
    return folder


def bundle_path() -> Path:
    """The embedded bundle. BundleError where the package is not a folder of files."""
    return _data() / "tiles.onnx"


def tiles() -> tuple[Tile, ...]:
    """The held-out tiles that ship with it, a few of each label."""
    folder = _data()
    listed = json.loads((folder / "tiles.json").read_text(encoding="utf-8"))["held_out"]
    return tuple(
        Tile(
            name=Path(one["file"]).stem,
            png=(folder / one["file"]).read_bytes(),
            truth=one["truth"],
            label=one["label"],
            confidence=one["confidence"],
        )
        for one in listed
    )
