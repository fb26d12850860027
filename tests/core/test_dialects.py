"""Recipes of other libraries, read as they stand; the wanted values follow from what those libraries' own code does."""

from __future__ import annotations

from typing import Any

import pytest

from onbudget.core.dialects import read_labels, read_recipe
from onbudget.core.errors import UsageError
from onbudget.core.recipe import Recipe

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
IMAGENET: dict[str, Any] = {"do_normalize": True, "image_mean": MEAN, "image_std": STD}
VIT: dict[str, Any] = {
    "do_resize": True,
    "size": {"height": 64, "width": 64},
    "resample": 2,
    "do_rescale": True,
    "rescale_factor": 0.00392156862745098,
    **IMAGENET,
    "image_processor_type": "ViTImageProcessor",
}

Geometry = tuple[str, tuple[int, int] | None, tuple[int, int] | None]  # resize, size, crop

HUGGING_FACE: dict[str, tuple[dict[str, Any], Geometry]] = {
    "ViT": (VIT, ("stretch", (64, 64), None)),
    "ViT, fast, with its nulls": (
        {**VIT, "crop_size": None, "do_center_crop": None, "image_processor_type": "ViTImageProcessorFast"},
        ("stretch", (64, 64), None),
    ),
    "ViT of 2021, a lone size": (
        {"size": 224, "resample": 2, "do_resize": True, **IMAGENET, "feature_extractor_type": "ViTFeatureExtractor"},
        ("stretch", (224, 224), None),
    ),
    "DeiT": (
        {"do_center_crop": True, "crop_size": {"height": 224, "width": 224}, "size": 256, "resample": 3, **IMAGENET},
        ("stretch", (256, 256), (224, 224)),
    ),
    "CLIP of 2021, lone sizes": (
        {
            "crop_size": 224,
            "do_center_crop": True,
            "do_resize": True,
            "size": 224,
            "resample": 3,
            **IMAGENET,
            "feature_extractor_type": "CLIPFeatureExtractor",
        },
        ("shortest", (224, 224), (224, 224)),
    ),
    "DINOv2": (
        {
            "size": {"shortest_edge": 256},
            "crop_size": {"height": 224, "width": 224},
            "do_center_crop": True,
            "resample": 3,
            **IMAGENET,
            "image_processor_type": "BitImageProcessor",
        },
        ("shortest", (256, 256), (224, 224)),
    ),
    "ConvNeXT below 384": (
        {"size": {"shortest_edge": 224}, "crop_pct": 0.875, "resample": 3, **IMAGENET, "do_resize": True},
        ("shortest", (256, 256), (224, 224)),
    ),
    "ConvNeXT without its crop_pct": (
        {"size": 224, "resample": 3, **IMAGENET, "feature_extractor_type": "ConvNextFeatureExtractor"},
        ("shortest", (256, 256), (224, 224)),
    ),
    "ConvNeXT from 384 on": (
        {
            "size": {"shortest_edge": 384},
            "crop_pct": 1.0,
            "resample": 3,
            **IMAGENET,
            "image_processor_type": "ConvNextImageProcessor",
        },
        ("stretch", (384, 384), None),
    ),
    "PoolFormer": (
        {
            "size": {"shortest_edge": 224},
            "crop_pct": 0.9,
            "crop_size": {"height": 224, "width": 224},
            "do_center_crop": True,
            "resample": 3,
            **IMAGENET,
            "image_processor_type": "PoolFormerImageProcessor",
        },
        ("shortest", (248, 248), (224, 224)),
    ),
    "LeViT": (
        {
            "size": {"shortest_edge": 224},
            "crop_size": {"height": 224, "width": 224},
            "do_center_crop": True,
            "resample": 3,
            **IMAGENET,
            "image_processor_type": "LevitImageProcessor",
        },
        ("shortest", (256, 256), (224, 224)),
    ),
    "a crop alone": (
        {"do_resize": False, "do_center_crop": True, "crop_size": 32, **IMAGENET},
        ("none", None, (32, 32)),
    ),
    "a processor inside a processor_config.json": ({"image_processor": VIT}, ("stretch", (64, 64), None)),
}


@pytest.mark.parametrize("name", HUGGING_FACE)
def test_hugging_face_geometry_is_what_the_processor_does(name: str) -> None:
    """Sizes, crops and their quirks, processor by processor; offsets of crops are rounded down, as there."""
    data, (resize, size, crop) = HUGGING_FACE[name]
    recipe = read_recipe(data)
    assert (recipe.kind, recipe.resize, recipe.size, recipe.crop) == ("picture", resize, size, crop)
    assert recipe.shape == (*(crop or size or ()), 3)
    assert (recipe.crop_rounding, recipe.input_dtype, recipe.layout, recipe.exif) == ("down", "uint8", "NCHW", False)
    assert recipe.scale == pytest.approx(1 / 255)
    assert (recipe.mean, recipe.std) == (tuple(MEAN), tuple(STD))


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (0, "nearest"),
        (1, "lanczos"),
        (2, "bilinear"),
        (3, "bicubic"),
        (4, "box"),
        (5, "hamming"),
        ("BICUBIC", "bicubic"),
    ],
)
def test_resampling_numbers_are_pillow_s(number: Any, name: str) -> None:
    """2 is bilinear and 3 is bicubic, as in PIL.Image.Resampling; pain 82."""
    assert read_recipe({**VIT, "resample": number}).resample == name


def test_steps_that_are_off_are_left_out() -> None:
    """do_rescale, do_normalize false; a factor of another value."""
    assert read_recipe({**VIT, "do_rescale": False}).scale == 1
    plain = read_recipe({**VIT, "do_normalize": False, "rescale_factor": 1 / 127.5})
    assert (plain.mean, plain.std, plain.scale) == ((), (), 1 / 127.5)
    assert read_recipe({**VIT, "do_convert_rgb": False}) == read_recipe(VIT)


def test_numbers_that_efficientnet_adds_are_folded_in() -> None:
    """A second division by std (include_top), and an offset of −1 after the scale (rescale_offset)."""
    twice = read_recipe({**VIT, "include_top": True})
    assert twice.std == pytest.approx([s * s for s in STD])
    moved = read_recipe({**VIT, "rescale_offset": True, "rescale_factor": 1 / 127.5, "do_normalize": False})
    assert (moved.mean, moved.scale) == ((1.0,), 1 / 127.5)


def test_one_mean_in_a_list_means_grey_and_bgr_is_said() -> None:
    """A one-channel processor makes a grey recipe; MobileViT flips the channels."""
    grey = read_recipe({**VIT, "image_mean": [0.5], "image_std": [0.5]})
    assert (grey.colour, grey.shape) == ("grey", (64, 64, 1))
    assert read_recipe({**VIT, "image_mean": 0.5, "image_std": 0.5}).colour == "rgb"
    mobile = {
        "size": {"shortest_edge": 288},
        "crop_size": {"height": 256, "width": 256},
        "do_center_crop": True,
        "resample": 2,
        "do_flip_channel_order": True,
        "image_processor_type": "MobileViTImageProcessor",
    }
    recipe = read_recipe(mobile)
    assert (recipe.bgr, recipe.mean, recipe.size, recipe.crop) == (True, (), (288, 288), (256, 256))


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"size": {"shortest_edge": 800, "longest_edge": 1333}}, "does not give one size for every picture"),
        ({"size": {"longest_edge": 1333}}, "does not give one size for every picture"),
        ({"size": {"shortest_edge": 224}}, "items would differ in size; give a crop"),
        ({"size": 0}, "0 is not a number of pixels"),
        ({"size": None}, "the size of the model's pictures is not told|size is missing"),
        ({"do_center_crop": True}, "crop_size is missing"),
        ({"image_mean": None}, "image_mean or image_std is missing"),
        ({"image_mean": "x"}, "image_mean must be numbers"),
        ({"resample": 9}, "resampling 9 is not known"),
        ({"resample": None}, "ViTImageProcessor: resample is missing"),
        ({"do_pad": True}, "ViTImageProcessor: do_pad=True is a step that a recipe cannot hold"),
        ({"do_thumbnail": True}, "do_thumbnail=True is a step"),
        ({"keep_aspect_ratio": True}, "keep_aspect_ratio=True is a step"),
        ({"crop_pct": 1.5}, "crop_pct must be above 0 and at most 1"),
    ],
)
def test_what_cannot_be_done_exactly_is_refused(change: dict[str, Any], wanted: str) -> None:
    """Never a guess: the key is named."""
    with pytest.raises(UsageError, match=wanted):
        read_recipe({**VIT, **change})


# ---- timm -----------------------------------------------------------------------------------------------------------

TIMM: dict[str, Any] = {
    "input_size": [3, 224, 224],
    "interpolation": "bicubic",
    "mean": MEAN,
    "std": STD,
    "crop_pct": 0.9,
    "crop_mode": "center",
}


def test_timm_s_data_config_is_its_evaluation_transform() -> None:
    """floor(size / crop_pct) on the shortest side, then a centre crop, offsets rounded as torchvision does."""
    recipe = read_recipe(TIMM)
    assert recipe == Recipe(
        "picture",
        (224, 224, 3),
        resize="shortest",
        size=(248, 248),
        crop=(224, 224),
        resample="bicubic",
        scale=1 / 255,
        mean=tuple(MEAN),
        std=tuple(STD),
    )
    assert read_recipe({"architecture": "x", "num_classes": 10, "pretrained_cfg": TIMM}) == recipe


def test_timm_s_defaults_are_timm_s() -> None:
    """Bicubic, ImageNet's mean and std, 0.875."""
    recipe = read_recipe({"input_size": [3, 224, 224]})
    assert (recipe.resample, recipe.size, recipe.mean, recipe.std) == ("bicubic", (256, 256), tuple(MEAN), tuple(STD))


def test_timm_squashes_and_knows_grey() -> None:
    """crop_mode squash stretches; one channel is grey."""
    squash = read_recipe({**TIMM, "crop_mode": "squash", "crop_pct": 1.0, "input_size": [3, 100, 200]})
    assert (squash.resize, squash.size, squash.crop) == ("stretch", (100, 200), (100, 200))
    grey = read_recipe({**TIMM, "input_size": [1, 28, 28], "mean": [0.5], "std": [0.5]})
    assert (grey.colour, grey.shape) == ("grey", (28, 28, 1))


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"crop_mode": "border"}, "crop_mode 'border'"),
        ({"interpolation": "random"}, "'random' is for training"),
        ({"input_size": [3, 224]}, r"input_size must be \[channels, height, width\]"),
        ({"input_size": [4, 224, 224]}, "pictures of 4 channels"),
        ({"input_size": [3, 100, 200]}, "a centre crop to 100×200"),
        ({"mean": [0.5, 0.5]}, "mean has 2 numbers"),
        ({"crop_border_pixels": 4}, "crop_border_pixels"),
    ],
)
def test_timm_s_other_ways_are_refused(change: dict[str, Any], wanted: str) -> None:
    """Borders, random interpolation and sizes that a recipe cannot hold."""
    with pytest.raises(UsageError, match=wanted):
        read_recipe({**TIMM, **change})


# ---- which is which, and labels -------------------------------------------------------------------------------------


def test_our_own_form_is_known_by_its_kind() -> None:
    """`kind` is ours, and our keys are checked."""
    own = {"kind": "picture", "shape": [4, 4, 3]}
    assert read_recipe(own) == Recipe.from_dict(own)
    assert read_recipe({**VIT, "exif": True}).exif
    assert read_recipe({**TIMM, "exif": True}).exif


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        ({}, "no recipe that is known here"),
        ([], "no recipe that is known here"),
        ({"scale": 1}, "with 'kind'"),
        ({"model_type": "vit", "id2label": {}}, "its recipe is in preprocessor_config.json"),
    ],
)
def test_other_files_are_told_what_is_wanted(data: Any, wanted: str) -> None:
    """The message lists the dialects, or the right file."""
    with pytest.raises(UsageError, match=wanted):
        read_recipe(data)


def test_labels_are_in_the_order_of_their_ids() -> None:
    """id2label by number, label2id turned round, timm's label_names, a list."""
    many = {str(i): f"label {i}" for i in range(12)}
    assert read_labels({"id2label": dict(sorted(many.items()))}) == tuple(f"label {i}" for i in range(12))
    assert read_labels({"label2id": {"b": 1, "a": 0}}) == ("a", "b")
    assert read_labels({"pretrained_cfg": {"label_names": ["x", "y"]}}) == ("x", "y")
    assert read_labels(["x", "y"]) == ("x", "y")
    assert read_labels(TIMM) == read_labels(3) == ()


def test_labels_with_a_gap_are_refused() -> None:
    """A column without a name would shift all others."""
    with pytest.raises(UsageError, match="id2label has 2 labels but none with the id 1"):
        read_labels({"id2label": {"0": "a", "2": "b"}})
    with pytest.raises(UsageError, match="labels must be texts"):
        read_labels(["a", 3])
