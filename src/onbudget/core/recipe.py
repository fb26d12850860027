"""Preprocessing as data: what happens to one item between the caller's bytes and the model's tensor.

A recipe has two halves. The *picture* half (colour, turning, resizing, cropping) cannot live in an ONNX graph without
custom operators; `engine.images` performs it, exactly as Pillow does. The *tensor* half (dtype, scale, mean and std,
layout) is compiled into the bundle's graph by `make.fuse`; `Recipe.tensor` here is its definition in numpy, which the
fused graph is checked against and which the browser's golden vectors come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Resample = Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """One item's preprocessing.

    `shape` is one item as it is sent, after the picture half: (H, W, C) for pictures, any shape for tensors.
    `input_range` bounds float values (inclusive); uint8 items are bounded by their type.
    """

    kind: Literal["picture", "tensor"]
    shape: tuple[int, ...]
    input_dtype: Literal["uint8", "float32"] = "uint8"
    input_range: tuple[float, float] | None = None
    # the picture half
    colour: Literal["rgb", "grey"] = "rgb"
    exif: bool = False  # turn pictures upright by their EXIF orientation first
    resize: Literal["none", "stretch", "shortest"] = "none"
    size: tuple[int, int] | None = None  # (height, width) for stretch; (edge, edge) for shortest
    resample: Resample = "bicubic"
    crop: tuple[int, int] | None = None  # centre crop to (height, width), after the resize
    # the tensor half
    scale: float = 1.0
    mean: tuple[float, ...] = ()  # one a channel, or one for all; after the scale
    std: tuple[float, ...] = ()
    layout: Literal["NCHW", "NHWC", "as-is"] = "NCHW"  # what the model itself wants of pictures

    def tensor(self, items: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """The model's own input from stacked items: (n, *shape) → float32, (n, C, H, W) for NCHW; contiguous."""
        raise NotImplementedError  # the helper for this room writes it

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; `from_dict` reads it back equal."""
        raise NotImplementedError

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Recipe:
        """From our own form; UsageError names an unknown or missing key and suggests the nearest."""
        raise NotImplementedError
