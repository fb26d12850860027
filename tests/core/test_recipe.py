"""A recipe is data: what it computes, what it refuses, and that it reads back as it was written."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onbudget.core.errors import BadContent, UsageError
from onbudget.core.recipe import Recipe, check_values

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TILE = Recipe("picture", (4, 5, 3), scale=1 / 255, mean=MEAN, std=STD)


def some(*shape: int) -> Any:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def test_pictures_become_contiguous_float32_channels_first() -> None:
    """uint8 (n, H, W, C) → float32 (n, C, H, W), scaled and normalised a channel at a time."""
    items = some(2, 4, 5, 3)
    x = TILE.tensor(items)
    assert (x.shape, x.dtype, x.flags.c_contiguous) == ((2, 3, 4, 5), np.float32, True)
    for channel in range(3):
        wanted = (items[..., channel] / 255 - MEAN[channel]) / STD[channel]
        np.testing.assert_allclose(x[:, channel], wanted, rtol=1e-6, atol=1e-6)


def test_the_steps_of_the_tensor_half_are_each_optional() -> None:
    """Without scale, mean and std the numbers stay; `bgr` reverses channels; NHWC and grey keep their axes."""
    items = some(2, 4, 5, 3)
    plain = Recipe("picture", (4, 5, 3), layout="NHWC")
    np.testing.assert_array_equal(plain.tensor(items), items.astype(np.float32))
    flipped = Recipe("picture", (4, 5, 3), mean=(1, 2, 3), bgr=True, layout="NHWC")
    np.testing.assert_array_equal(flipped.tensor(items), (items - np.array([1.0, 2, 3]))[..., ::-1])
    grey = Recipe("picture", (4, 5, 1), colour="grey", std=(2,))
    np.testing.assert_array_equal(grey.tensor(items[..., :1])[:, 0], items[..., 0] / 2)


def test_tensors_keep_their_shape() -> None:
    """A flat item stays flat, whatever the default layout says; its last axis may have one mean a place."""
    pixels = Recipe("tensor", (784,), "float32", (0, 255), scale=1 / 255, mean=(0.1307,), std=(0.3081,))
    x = np.linspace(0, 255, 784, dtype=np.float32)[None]
    assert pixels.layout == "as-is"
    np.testing.assert_allclose(pixels.tensor(x), (x / 255 - 0.1307) / 0.3081, rtol=1e-5, atol=1e-6)
    table = Recipe("tensor", (3,), "float32", mean=(1, 2, 3))
    np.testing.assert_array_equal(table.tensor(np.array([[1, 2, 4]], np.float32)), [[0, 0, 1]])


def test_items_of_another_shape_are_refused() -> None:
    """numpy would broadcast them silently."""
    with pytest.raises(UsageError, match=r"shape \(5, 4, 3\) given to a recipe for \(4, 5, 3\)"):
        TILE.tensor(some(1, 5, 4, 3))


def test_sizes_are_counted_in_numbers_and_in_bytes() -> None:
    """The wire asks for both; a batch of none is a batch."""
    assert (TILE.item_size, TILE.item_bytes, TILE.tensor_shape) == (60, 60, (3, 4, 5))
    pixels = Recipe("tensor", (784,), "float32")
    assert (pixels.item_size, pixels.item_bytes, pixels.tensor_shape) == (784, 3136, (784,))
    assert TILE.tensor(some(0, 4, 5, 3)).shape == (0, 3, 4, 5)


# ---- what is refused ------------------------------------------------------------------------------------------------

PICTURE: dict[str, Any] = {"kind": "picture", "shape": [4, 5, 3]}
TENSOR: dict[str, Any] = {"kind": "tensor", "shape": [6], "input_dtype": "float32"}
FAULTS: list[tuple[dict[str, Any], str]] = [
    ({}, "'kind' is missing"),
    ({"kind": "sound"}, "kind must be one of picture, tensor, not 'sound'"),
    ({"kind": "picture"}, "'shape' is missing"),
    ({**PICTURE, "shape": [4, 5]}, r"a rgb picture's shape is \[height, width, 3\]"),
    ({**PICTURE, "shape": [4, 5, 1]}, r"a rgb picture's shape is \[height, width, 3\]"),
    ({**PICTURE, "colour": "grey"}, r"a grey picture's shape is \[height, width, 1\]"),
    ({**PICTURE, "shape": [0, 5, 3]}, "shape must be whole numbers above zero"),
    ({**PICTURE, "shape": [4.5, 5, 3]}, "shape must be whole numbers"),
    ({**PICTURE, "shape": "4x5x3"}, "shape must be whole numbers"),
    ({**PICTURE, "shape": [True, 5, 3]}, "shape must be whole numbers"),
    ({**PICTURE, "resize": "stretch"}, "'stretch' and 'shortest' need one"),
    ({**PICTURE, "size": [4, 5]}, "resize 'none' has no size"),
    ({**PICTURE, "resize": "stretch", "size": [5, 4]}, r"shape \[4, 5, 3\] is not what size and crop make: \[5, 4\]"),
    ({**PICTURE, "resize": "shortest", "size": 8}, "items would differ in size; give a crop"),
    ({"kind": "picture", "resize": "shortest", "size": [8, 9], "crop": 4}, "takes one edge, given twice"),
    ({"kind": "picture", "resize": "stretch", "size": [8, 9, 3]}, "size must be two numbers, height and width"),
    ({**PICTURE, "resample": "cubic"}, "resample must be one of nearest, box, bilinear"),
    ({**PICTURE, "resample": 3}, "resample must be one of nearest, box, bilinear"),
    ({**PICTURE, "exif": 1}, "exif must be true or false"),
    ({**PICTURE, "mean": [0.5, 0.5]}, r"mean has 2 numbers; it takes 1, or 3 \(one a channel\)"),
    ({**PICTURE, "std": [1, 1, 1, 1]}, "std has 4 numbers"),
    ({**PICTURE, "std": [1, 0, 1]}, "std must not be zero"),
    ({**PICTURE, "std": 1e-50}, "std must not be zero"),
    ({**PICTURE, "mean": [float("nan")]}, "mean must be finite"),
    ({**PICTURE, "mean": ["0.5"]}, "mean must be a list of numbers"),
    ({**PICTURE, "scale": float("inf")}, "scale must be a finite number"),
    ({**PICTURE, "scale": 0}, "scale must be a finite number other than zero"),
    ({**PICTURE, "scale": "1/255"}, "scale must be a number"),
    ({**PICTURE, "input_range": [0, 255]}, "input_range is for float32 items"),
    ({**PICTURE, "colour": "grey", "shape": [4, 5, 1], "bgr": True}, "bgr is for pictures in colour"),
    ({**PICTURE, "reshape": "stretch"}, r"unknown key 'reshape'; did you mean 'shape'\?"),
    ({**PICTURE, "std_dev": 1}, r"unknown key 'std_dev'; did you mean 'std'\?"),
    ({**PICTURE, "qqq": 1}, "unknown key 'qqq'; the keys are: kind, input_dtype"),
    ({"kind": "tensor", "shape": [6]}, "'input_dtype' is missing; a tensor recipe must say it"),
    ({"kind": "tensor", "input_dtype": "uint8"}, "'shape' is missing; a tensor recipe must say it"),
    ({**TENSOR, "input_dtype": "float64"}, "input_dtype must be one of uint8, float32"),
    ({**TENSOR, "layout": "NCHW"}, "'layout' is for pictures"),
    ({**TENSOR, "size": 3}, "'size' is for pictures"),
    ({**TENSOR, "input_range": [1, 1]}, r"\[low, high\] with low < high"),
    ({**TENSOR, "input_range": [0, float("inf")]}, "input_range must be finite"),
    ({**TENSOR, "input_range": [0, 1, 2]}, r"\[low, high\] with low < high"),
    ({**TENSOR, "input_range": 255}, "input_range must be a list of numbers"),
]


@pytest.mark.parametrize(("data", "wanted"), FAULTS, ids=lambda v: v if isinstance(v, str) else "")
def test_a_recipe_that_cannot_be_meant_is_refused(data: dict[str, Any], wanted: str) -> None:
    """Each fault is named with its key and its value."""
    with pytest.raises(UsageError, match=wanted):
        Recipe.from_dict(data)


def test_shapes_and_sizes_may_be_left_out_where_they_are_told_otherwise() -> None:
    """A size or a crop gives a picture's shape; a lone number is a square, or the mean of all channels."""
    stretched = Recipe.from_dict({"kind": "picture", "resize": "stretch", "size": [8, 9], "mean": 0.5})
    assert (stretched.shape, stretched.mean) == ((8, 9, 3), (0.5,))
    cropped = Recipe.from_dict({"kind": "picture", "colour": "grey", "resize": "shortest", "size": 256, "crop": 224})
    assert (cropped.shape, cropped.size, cropped.crop) == ((224, 224, 1), (256, 256), (224, 224))


# ---- writing and reading --------------------------------------------------------------------------------------------

numbers = st.floats(-1000, 1000, width=32)
stds = st.floats(0.0078125, 100, width=32)


@st.composite
def recipes(draw: Any) -> Recipe:
    if draw(st.booleans()):
        size = draw(st.lists(st.integers(1, 5), max_size=3))
        low = draw(st.none() | st.integers(-5, 5))
        return Recipe(
            "tensor",
            tuple(size),
            "float32",
            None if low is None else (low, low + 1.5),
            scale=draw(stds),
            mean=(draw(numbers),),
        )
    edges = (draw(st.integers(1, 6)), draw(st.integers(1, 6)))
    colour = draw(st.sampled_from(["rgb", "grey"]))
    count = 3 if colour == "rgb" else 1
    resize = draw(st.sampled_from(["none", "stretch", "shortest"]))
    return Recipe(
        "picture",
        (*edges, count),
        draw(st.sampled_from(["uint8", "float32"])),
        colour=colour,
        exif=draw(st.booleans()),
        resize=resize,
        size=None if resize == "none" else edges if resize == "stretch" else (9, 9),
        crop=edges if resize == "shortest" else None,
        crop_rounding=draw(st.sampled_from(["half-even", "down"])),
        resample=draw(st.sampled_from(["nearest", "lanczos", "box"])),
        scale=draw(stds),
        mean=tuple(draw(st.lists(numbers, min_size=count, max_size=count))),
        std=tuple(draw(st.lists(stds, min_size=count, max_size=count))),
        bgr=colour == "rgb" and draw(st.booleans()),
        layout=draw(st.sampled_from(["NCHW", "NHWC", "as-is"])),
    )


@given(recipes())
def test_a_recipe_reads_back_equal(recipe: Recipe) -> None:
    """Through a dictionary and through JSON text; no field is lost."""
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


@given(recipes(), st.integers(0, 3))
def test_a_recipe_computes_what_it_says(recipe: Recipe, count: int) -> None:
    """(x·scale − mean) / std in float64, reversed and transposed where it says so; the shape is `tensor_shape`."""
    items = some(count, *recipe.shape).astype(recipe.input_dtype)
    x = (items.astype(np.float64) * recipe.scale - np.array(recipe.mean or 0)) / np.array(recipe.std or 1)
    x = x[..., ::-1] if recipe.bgr else x
    x = x.transpose(0, 3, 1, 2) if recipe.layout == "NCHW" else x
    got = recipe.tensor(items)
    assert got.shape == (count, *recipe.tensor_shape)
    largest = 255 * recipe.scale + max(map(abs, recipe.mean), default=0)
    np.testing.assert_allclose(got, x, atol=1e-6 * largest / min(recipe.std, default=1) + 1e-30, rtol=0)


# ---- values ---------------------------------------------------------------------------------------------------------

RANGED = Recipe("tensor", (4,), "float32", (0, 255))


def test_values_inside_the_range_pass() -> None:
    """The bounds themselves are allowed."""
    check_values(np.array([0, 255, 1, 2], np.float32), RANGED, "item 1")
    check_values(np.zeros((0, 4), np.float32), RANGED, "item 1")
    check_values(some(4, 5, 3), TILE, "item 1")


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (float("nan"), "value 3 of 4 is nan; values must be from 0 to 255"),
        (float("inf"), "value 3 of 4 is inf"),
        (float("-inf"), "value 3 of 4 is -inf"),
        (255.5, "value 3 of 4 is 255.5; values must be from 0 to 255"),
        (-0.001, "value 3 of 4 is -0.001"),
    ],
)
def test_values_outside_the_range_are_named(value: float, wanted: str) -> None:
    """The item from both ends, the place in it, the value and the range; the status is 422."""
    with pytest.raises(BadContent, match="^item 8 \\(tiles\\[7\\]\\): " + wanted) as caught:
        check_values(np.array([1, 2, value, 4], np.float32), RANGED, "item 8 (tiles[7])")
    assert caught.value.status == 422


def test_without_a_range_values_must_still_be_finite() -> None:
    """NaN and infinities never reach a model; anything else does."""
    free = Recipe("tensor", (2, 2), "float32")
    check_values(np.array([[1e30, -1e30], [0, 1]], np.float32), free, "item 1")
    with pytest.raises(BadContent, match="value 4 of 4 is nan; values must be finite"):
        check_values(np.array([[1, 2], [3, np.nan]], np.float32), free, "item 1")
    with pytest.raises(BadContent, match="value 2 of 2 is 300"):
        check_values(np.array([1, 300]), RANGED, "whole numbers are checked against a range too")
