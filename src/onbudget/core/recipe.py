"""Preprocessing as data: what happens to one item between the caller's bytes and the model's tensor.

A recipe has two halves. The *picture* half (colour, turning, resizing, cropping) cannot live in an ONNX graph without
custom operators; `engine.images` performs it, exactly as Pillow does. The *tensor* half (dtype, scale, mean and std,
channel order, layout) is compiled into the bundle's graph by `make.fuse`; `Recipe.tensor` here is its definition in
numpy, which the fused graph is checked against and which the browser's golden vectors come from.

Recipes that other libraries write are read in `core.dialects`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from onbudget.core.errors import BadContent, UsageError

Resample = Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]
Kind = Literal["picture", "tensor"]
InputDtype = Literal["uint8", "float32"]
Colour = Literal["rgb", "grey"]
Resize = Literal["none", "stretch", "shortest"]
CropRounding = Literal["half-even", "down"]
Layout = Literal["NCHW", "NHWC", "as-is"]
Floats = npt.NDArray[np.float32]

_PICTURE_HALF = ("colour", "exif", "resize", "size", "resample", "crop", "crop_rounding")


@dataclass(frozen=True, slots=True)
class Recipe:
    """One item's preprocessing. UsageError for values that contradict each other or can't be meant.

    `shape` is one item as it is sent, after the picture half: (H, W, C) for pictures, any shape for tensors.
    `input_range` bounds float values (inclusive); uint8 items are bounded by their type.
    """

    kind: Kind
    shape: tuple[int, ...]
    input_dtype: InputDtype = "uint8"
    input_range: tuple[float, float] | None = None
    # the picture half
    colour: Colour = "rgb"
    exif: bool = False  # turn pictures upright by their EXIF orientation first
    resize: Resize = "none"
    size: tuple[int, int] | None = None  # (height, width) for stretch; (edge, edge) for shortest
    resample: Resample = "bicubic"
    crop: tuple[int, int] | None = None  # centre crop to (height, width), after the resize
    crop_rounding: CropRounding = "half-even"  # of the crop's offset: torchvision's way, or "down", Hugging Face's
    # the tensor half
    scale: float = 1.0
    mean: tuple[float, ...] = ()  # one a channel (a tensor's last axis), or one for all; after the scale
    std: tuple[float, ...] = ()
    bgr: bool = False  # the model wants the channels in reverse; mean and std stay in the order that is sent
    layout: Layout = "NCHW"  # what the model itself wants of pictures; tensors are always as-is

    def __post_init__(self) -> None:
        """Check every number; a tensor's layout is as-is, whatever the default says."""
        if self.kind == "tensor" and self.layout == "NCHW":
            object.__setattr__(self, "layout", "as-is")
        for name in _WORDS:
            _word(name, getattr(self, name))
        _check_numbers(self)
        if self.kind == "picture":
            _check_picture(self)
        else:
            _check_tensor(self)

    @property
    def item_size(self) -> int:
        """Numbers in one item."""
        return math.prod(self.shape)

    @property
    def item_bytes(self) -> int:
        """Bytes of one item sent raw."""
        return self.item_size * np.dtype(self.input_dtype).itemsize

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        """One item's shape after the tensor half: (C, H, W) for NCHW, else `shape`."""
        return (self.shape[2], *self.shape[:2]) if self.layout == "NCHW" else self.shape

    def tensor(self, items: npt.NDArray[Any]) -> Floats:
        """The model's own input from stacked items: (n, *shape) → float32, (n, C, H, W) for NCHW; contiguous.

        (x·scale − mean) / std is computed as x·factor + offset, because that is what the graph does: two roundings in
        float32, so that numpy, ONNX Runtime and a browser agree to the bit. UsageError for items of another shape.
        """
        if items.shape[1:] != self.shape:
            raise UsageError(f"items of shape {items.shape[1:]} given to a recipe for {self.shape}")
        x = items.astype(np.float32)
        factor, offset = self.affine()
        if np.any(factor != 1):
            x *= factor
        if np.any(offset != 0):
            x += offset
        if self.bgr:
            x = x[..., ::-1]
        if self.layout == "NCHW":
            x = x.transpose(0, 3, 1, 2)
        return np.ascontiguousarray(x)

    def affine(self) -> tuple[Floats, Floats]:
        """Scale, mean and std as one factor and one offset (x·factor + offset), each of length 1 or one a channel."""
        std = np.asarray(self.std or (1.0,), np.float64)
        mean = np.asarray(self.mean or (0.0,), np.float64)
        return (self.scale / std).astype(np.float32), (-mean / std).astype(np.float32)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, every field spelled out; `from_dict` reads it back equal."""
        skipped = (*_PICTURE_HALF, "bgr", "layout") if self.kind == "tensor" else ()
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in skipped}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Recipe:
        """From our own form; UsageError names an unknown or missing key and suggests the nearest.

        A picture's `shape` may be left out where `size` and `crop` tell it; a lone number is taken for a square size,
        or for the mean or std of all channels.
        """
        for key in data:
            if key not in _READERS:
                raise UsageError(f"recipe: unknown key {key!r}{_nearest(key)}")
        values = {key: _READERS[key](key, value) for key, value in data.items()}
        if "kind" not in values:
            raise UsageError("recipe: 'kind' is missing; it is 'picture' or 'tensor'")
        if values["kind"] == "tensor":
            _check_tensor_keys(data)
        elif "shape" not in data:
            values["shape"] = _picture_shape(values)
        return cls(**values)


def check_values(items: npt.NDArray[Any], recipe: Recipe, where: str) -> None:
    """BadContent, beginning with `where`, for NaN, infinities and values outside the recipe's range.

    `items` is one item, or several end to end, in any shape; `where` names it: "item 8 (tiles[7])".
    """
    if not items.size or (items.dtype.kind != "f" and recipe.input_range is None):
        return
    least, most = recipe.input_range or (-math.inf, math.inf)
    low, high = float(items.min()), float(items.max())  # NaN comes through both
    if math.isfinite(low) and math.isfinite(high) and least <= low and high <= most:
        return
    flat = items.ravel()
    index = int(np.argmax(~(np.isfinite(flat) & (flat >= least) & (flat <= most))))
    value = float(flat[index])
    wanted = f"from {least:g} to {most:g}" if recipe.input_range else "finite"
    raise BadContent(f"{where}: value {index + 1} of {flat.size} is {value:g}; values must be {wanted}")


# ---- checks ---------------------------------------------------------------------------------------------------------

_WORDS: dict[str, tuple[str, ...]] = {
    "kind": get_args(Kind),
    "input_dtype": get_args(InputDtype),
    "colour": get_args(Colour),
    "resize": get_args(Resize),
    "resample": get_args(Resample),
    "crop_rounding": get_args(CropRounding),
    "layout": get_args(Layout),
}


def _check_numbers(recipe: Recipe) -> None:
    for name in ("shape", "size", "crop"):
        if any(not isinstance(n, int) or n < 1 for n in getattr(recipe, name) or ()):
            raise UsageError(f"recipe: {name} must be whole numbers above zero, not {list(getattr(recipe, name))}")
    for name in ("size", "crop"):
        if getattr(recipe, name) is not None and len(getattr(recipe, name)) != 2:
            raise UsageError(f"recipe: {name} must be two numbers, height and width")
    for name in ("input_range", "mean", "std"):
        if not all(math.isfinite(n) for n in getattr(recipe, name) or ()):
            raise UsageError(f"recipe: {name} must be finite numbers, not {list(getattr(recipe, name))}")
    if not math.isfinite(recipe.scale) or recipe.scale == 0:
        raise UsageError(f"recipe: scale must be a finite number other than zero, not {recipe.scale!r}")
    if recipe.input_range is not None:
        if len(recipe.input_range) != 2 or recipe.input_range[0] >= recipe.input_range[1]:
            raise UsageError(f"recipe: input_range must be [low, high] with low < high, not {list(recipe.input_range)}")
        if recipe.input_dtype == "uint8":
            raise UsageError("recipe: input_range is for float32 items; uint8 items are bounded by their type")
    channels = recipe.shape[-1] if recipe.shape else 1
    for name in ("mean", "std"):
        count = len(getattr(recipe, name))
        if count not in (0, 1, channels):
            raise UsageError(f"recipe: {name} has {count} numbers; it takes 1, or {channels} (one a channel)")
    if any(np.float32(n) == 0 for n in recipe.std):
        raise UsageError(f"recipe: std must not be zero: {list(recipe.std)}")


def _check_picture(recipe: Recipe) -> None:
    channels = 3 if recipe.colour == "rgb" else 1
    if len(recipe.shape) != 3 or recipe.shape[2] != channels:
        raise UsageError(
            f"recipe: a {recipe.colour} picture's shape is [height, width, {channels}], not {list(recipe.shape)}"
        )
    if (recipe.resize == "none") != (recipe.size is None):
        raise UsageError("recipe: resize 'none' has no size, and 'stretch' and 'shortest' need one")
    if recipe.resize == "shortest":
        if recipe.size is not None and recipe.size[0] != recipe.size[1]:
            raise UsageError(f"recipe: resize 'shortest' takes one edge, given twice, not {list(recipe.size)}")
        if recipe.crop is None:
            raise UsageError("recipe: resize 'shortest' keeps the aspect, so items would differ in size; give a crop")
    made = recipe.crop or (recipe.size if recipe.resize == "stretch" else None)
    if made and recipe.shape[:2] != made:
        raise UsageError(f"recipe: shape {list(recipe.shape)} is not what size and crop make: {list(made)}")
    if recipe.bgr and recipe.colour != "rgb":
        raise UsageError("recipe: bgr is for pictures in colour")


def _check_tensor(recipe: Recipe) -> None:
    if recipe.layout != "as-is" or recipe.bgr:
        raise UsageError("recipe: layout and bgr are for pictures; a tensor is sent in the model's own order")
    if recipe.resize != "none" or recipe.size or recipe.crop or recipe.exif or recipe.colour != "rgb":
        raise UsageError("recipe: colour, exif, resize, size and crop are for pictures, and this is a tensor recipe")


def _check_tensor_keys(data: Mapping[str, Any]) -> None:
    for key in ("shape", "input_dtype"):
        if key not in data:
            raise UsageError(f"recipe: {key!r} is missing; a tensor recipe must say it")
    for key in (*_PICTURE_HALF, "bgr", "layout"):
        if key in data:
            raise UsageError(f"recipe: {key!r} is for pictures; this is a tensor recipe")


# ---- reading our own form -------------------------------------------------------------------------------------------


def _picture_shape(values: Mapping[str, Any]) -> tuple[int, ...]:
    made = values.get("crop") or (values.get("size") if values.get("resize") == "stretch" else None)
    if made is None and values.get("resize") == "shortest":
        raise UsageError("recipe: resize 'shortest' keeps the aspect, so items would differ in size; give a crop")
    if made is None:
        raise UsageError("recipe: 'shape' is missing: [height, width, channels] of one item")
    return (*made, 1 if values.get("colour") == "grey" else 3)


def _nearest(key: str) -> str:
    import difflib

    near = difflib.get_close_matches(key, _READERS, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; the keys are: {', '.join(_READERS)}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(key: str, value: Any) -> float:
    if not _is_number(value):
        raise UsageError(f"recipe: {key} must be a number, not {value!r}")
    return float(value)


def _numbers(key: str, value: Any) -> tuple[float, ...] | None:
    if value is None:
        return None if key == "input_range" else ()
    if _is_number(value) and key != "input_range":
        return (float(value),)
    if not isinstance(value, list | tuple) or not all(_is_number(v) for v in value):
        raise UsageError(f"recipe: {key} must be a list of numbers, not {value!r}")
    return tuple(float(v) for v in value)


def _sizes(key: str, value: Any) -> tuple[int, ...] | None:
    if value is None and key != "shape":
        return None
    given = [value] * (1 if key == "shape" else 2) if _is_number(value) else value
    if not isinstance(given, list | tuple) or not all(isinstance(v, int) and not isinstance(v, bool) for v in given):
        raise UsageError(f"recipe: {key} must be whole numbers, not {value!r}")
    return tuple(given)


def _flag(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"recipe: {key} must be true or false, not {value!r}")
    return value


def _word(key: str, value: Any) -> str:
    if value not in _WORDS[key]:
        raise UsageError(f"recipe: {key} must be one of {', '.join(_WORDS[key])}, not {value!r}")
    return str(value)


_READERS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(_WORDS, _word),
    "shape": _sizes,
    "input_range": _numbers,
    "exif": _flag,
    "size": _sizes,
    "crop": _sizes,
    "scale": _number,
    "mean": _numbers,
    "std": _numbers,
    "bgr": _flag,
}
