"""Recipes and labels as other libraries write them, read as they stand: pure dictionaries → Recipe, labels.

* ours: has `kind`
* Hugging Face `preprocessor_config.json` (and `processor_config.json`), for the image classifiers' processors; what a
  processor does beyond its file (ConvNeXT's and PoolFormer's `crop_pct`, LeViT's larger edge, EfficientNet's second
  normalisation) is done too
* timm data config: bare, or in the `pretrained_cfg` of a model's `config.json`

Neither library's file speaks of EXIF; `"exif": true` may be added to either. A step that cannot be done exactly is an
error and never a guess.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from onbudget.core.errors import UsageError
from onbudget.core.recipe import Recipe

Data = Mapping[str, Any]

# PIL.Image.Resampling's numbers, which both libraries' files use.
PIL_RESAMPLE = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def read_recipe(data: Any) -> Recipe:
    """A recipe in any of the dialects; UsageError where it is none of them or asks for what cannot be done."""
    if isinstance(data, Mapping):
        if "kind" in data:
            return Recipe.from_dict(data)
        if isinstance(data.get("image_processor"), Mapping):
            return _hugging_face(data["image_processor"])
        if isinstance(data.get("pretrained_cfg"), Mapping):
            return _timm({**data["pretrained_cfg"], **{key: data[key] for key in ("exif",) if key in data}})
        if "input_size" in data:
            return _timm(data)
        if any(key.startswith("do_") or key in _HF_MARKS for key in data):
            return _hugging_face(data)
    if isinstance(data, Mapping) and ("id2label" in data or "model_type" in data):
        raise UsageError(
            "this is Hugging Face's config.json, which holds labels; its recipe is in preprocessor_config.json"
        )
    raise UsageError(
        "this is no recipe that is known here: write one of ours (with 'kind'), or give Hugging Face's "
        "preprocessor_config.json or timm's data config (with 'input_size')"
    )


def read_labels(data: Any) -> tuple[str, ...]:
    """Labels from a `config.json` (`id2label`, timm's `label_names`) or a JSON list; empty where there are none.

    UsageError where the ids are not 0, 1, 2 … without a gap.
    """
    if isinstance(data, list):
        return _texts(data)
    if not isinstance(data, Mapping):
        return ()
    if isinstance(data.get("id2label"), Mapping):
        return _by_id({str(key): label for key, label in data["id2label"].items()}, "id2label")
    if isinstance(data.get("label2id"), Mapping):
        return _by_id({str(number): label for label, number in data["label2id"].items()}, "label2id")
    inner = data.get("pretrained_cfg")
    names = data.get("label_names") or (inner.get("label_names") if isinstance(inner, Mapping) else None)
    return _texts(names) if isinstance(names, list) else ()


def _texts(names: Sequence[Any]) -> tuple[str, ...]:
    if not all(isinstance(name, str) for name in names):
        raise UsageError("labels must be texts")
    return tuple(names)


def _by_id(found: Mapping[str, Any], key: str) -> tuple[str, ...]:
    missing = [i for i in range(len(found)) if str(i) not in found]
    if missing:
        raise UsageError(f"{key} has {len(found)} labels but none with the id {missing[0]}")
    return tuple(str(found[str(i)]) for i in range(len(found)))


# ---- Hugging Face ---------------------------------------------------------------------------------------------------

_HF_MARKS = ("image_processor_type", "feature_extractor_type", "image_mean", "rescale_factor", "crop_size")
# Processors that read a lone number in `size` as the shortest edge; the others make a square of it.
_HF_SHORTEST = ("Bit", "CLIP", "ChineseCLIP", "ConvNext", "Levit", "MobileNet", "MobileViT", "PoolFormer", "TextNet")
_HF_DONE = (
    "do_resize",
    "do_center_crop",
    "do_rescale",
    "do_normalize",
    "do_convert_rgb",  # always done: a recipe's colour is RGB or grey
    "do_flip_channel_order",
    "do_reduce_labels",  # about training targets
)
_HF_REFUSED = (
    "size_divisor",
    "keep_aspect_ratio",
    "min_pixels",
    "max_pixels",
    "image_grid_pinpoints",
    "max_num_patches",
)


def _hugging_face(data: Data) -> Recipe:
    told = {key: value for key, value in data.items() if value is not None}
    name = str(told.get("image_processor_type") or told.get("feature_extractor_type") or "")
    for key, value in told.items():
        if value and ((key.startswith("do_") and key not in _HF_DONE) or key in _HF_REFUSED):
            raise UsageError(f"{name or 'the processor'}: {key}={value!r} is a step that a recipe cannot hold")
    resize, size, crop = _hf_geometry(told, name)
    scale, mean, std = _hf_numbers(told)
    means = told.get("image_mean")
    colour = "grey" if isinstance(means, list) and len(means) == 1 else "rgb"
    if resize != "none" and "resample" not in told:
        raise UsageError(
            f"{name or 'the processor'}: resample is missing, and its default differs by processor; add it"
        )
    return Recipe.from_dict(
        {
            "kind": "picture",
            "colour": colour,
            "exif": told.get("exif", False),
            "resize": resize,
            "size": size,
            "crop": crop,
            "crop_rounding": "down",
            "resample": _resample(told.get("resample", "bicubic")),
            "scale": scale,
            "mean": mean,
            "std": std,
            "bgr": bool(told.get("do_flip_channel_order", name.startswith("MobileViT"))),
        }
    )


def _hf_geometry(told: Data, name: str) -> tuple[str, list[int] | None, list[int] | None]:
    """(resize, size, crop): the processor's way from any picture to one of its size."""
    crop = None
    if told.get("do_center_crop", "crop_size" in told):
        if "crop_size" not in told:
            raise UsageError("do_center_crop is true, but crop_size is missing")
        crop = _square(told["crop_size"], "crop_size")
    if not told.get("do_resize", "size" in told):
        if crop is None:
            raise UsageError("neither do_resize nor do_center_crop: the size of the model's pictures is not told")
        return "none", None, crop
    if "size" not in told:
        raise UsageError("do_resize is true, but size is missing")
    size = told["size"]
    if isinstance(size, Mapping):
        size = {key: value for key, value in size.items() if value is not None}
        if set(size) == {"shortest_edge"}:
            return _hf_shortest(_whole(size["shortest_edge"], "size"), told, name, crop)
    elif not isinstance(size, list) and name.startswith(_HF_SHORTEST):
        return _hf_shortest(_whole(size, "size"), told, name, crop)
    square = _square(size, "size")
    if told.get("crop_pct") and not name.startswith("ConvNext"):  # PoolFormer
        grown = [int(edge / _share(told["crop_pct"])) for edge in square]
        return ("shortest" if grown[0] == grown[1] else "stretch"), grown, crop
    return "stretch", square, crop


def _hf_shortest(
    edge: int, told: Data, name: str, crop: list[int] | None
) -> tuple[str, list[int] | None, list[int] | None]:
    if name.startswith("ConvNext") or ("crop_pct" in told and crop is None):
        if edge >= 384:
            return "stretch", [edge, edge], None
        grown = int(edge / _share(told.get("crop_pct", 224 / 256)))
        return "shortest", [grown, grown], [edge, edge]
    if name.startswith("Levit"):
        edge = int(256 / 224 * edge)
    elif "crop_pct" in told:  # PoolFormer
        edge = int(edge / _share(told["crop_pct"]))
    return "shortest", [edge, edge], crop


def _hf_numbers(told: Data) -> tuple[float, list[float], list[float]]:
    """(scale, mean, std) as one step (x·scale − mean) / std."""
    scale = told.get("rescale_factor", 1 / 255) if told.get("do_rescale", True) else 1.0
    if not told.get("do_normalize", "image_mean" in told):
        mean, std = [], []
    elif "image_mean" not in told or "image_std" not in told:
        raise UsageError("do_normalize is true, but image_mean or image_std is missing; add them to the file")
    else:
        mean, std = _list(told["image_mean"], "image_mean"), _list(told["image_std"], "image_std")
        if told.get("include_top"):  # EfficientNet divides by the std a second time
            std = [value * value for value in std]
    if told.get("rescale_offset") and told.get("do_rescale", True):  # EfficientNet, Vivit: to −1 … 1
        mean = [value + 1 for value in mean or [0.0]]
    return scale, mean, std


# ---- timm -----------------------------------------------------------------------------------------------------------


def _timm(data: Data) -> Recipe:
    told = {key: value for key, value in data.items() if value is not None}
    given = told.get("input_size")
    if not isinstance(given, list | tuple) or len(given) != 3:
        raise UsageError(f"timm: input_size must be [channels, height, width], not {given!r}")
    channels, *target = (_whole(n, "input_size") for n in given)
    if channels not in (1, 3):
        raise UsageError(f"timm: pictures of {channels} channels cannot be decoded; 1 and 3 can")
    if told.get("crop_border_pixels"):
        raise UsageError("timm: crop_border_pixels is a step that a recipe cannot hold")
    mode = told.get("crop_mode") or "center"
    grown = [math.floor(edge / _share(told.get("crop_pct") or 0.875)) for edge in target]
    if mode not in ("center", "squash"):
        raise UsageError(f"timm: crop_mode {mode!r} is a step that a recipe cannot hold; 'center' and 'squash' are")
    if mode == "center" and grown[0] != grown[1]:
        raise UsageError(f"timm: a centre crop to {target[0]}×{target[1]} keeps the aspect in a way no recipe can hold")
    if told.get("interpolation") == "random":
        raise UsageError(
            "timm: interpolation 'random' is for training; write the one that is meant (bicubic, bilinear)"
        )
    return Recipe.from_dict(
        {
            "kind": "picture",
            "colour": "rgb" if channels == 3 else "grey",
            "exif": told.get("exif", False),
            "resize": "shortest" if mode == "center" else "stretch",
            "size": grown,
            "crop": target,
            "resample": _resample(told.get("interpolation") or "bicubic"),
            "scale": 1 / 255,
            "mean": _list(told.get("mean", _IMAGENET[0]), "mean"),
            "std": _list(told.get("std", _IMAGENET[1]), "std"),
        }
    )


# ---- shared ---------------------------------------------------------------------------------------------------------


def _resample(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and value in PIL_RESAMPLE:
        return PIL_RESAMPLE[value]
    if isinstance(value, str) and value.lower() in PIL_RESAMPLE.values():
        return value.lower()
    raise UsageError(f"resampling {value!r} is not known; Pillow's are {PIL_RESAMPLE}")


def _whole(value: Any, key: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{key}: {value!r} is not a number of pixels")
    return value


def _share(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1:
        raise UsageError(f"crop_pct must be above 0 and at most 1, not {value!r}")
    return float(value)


def _square(value: Any, key: str) -> list[int]:
    """[height, width] from a number, a list or {"height", "width"}."""
    if isinstance(value, Mapping):
        told = {name: edge for name, edge in value.items() if edge is not None}
        if set(told) == {"shortest_edge"} and key == "crop_size":
            return [_whole(told["shortest_edge"], key)] * 2
        if set(told) != {"height", "width"}:
            raise UsageError(f"{key} {dict(value)} does not give one size for every picture; height and width do")
        return [_whole(told["height"], key), _whole(told["width"], key)]
    if isinstance(value, list) and len(value) == 2:
        return [_whole(edge, key) for edge in value]
    return [_whole(value, key)] * 2


def _list(value: Any, key: str) -> list[float]:
    values = list(value) if isinstance(value, list | tuple) else [value]
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        raise UsageError(f"{key} must be numbers, not {value!r}")
    return values
