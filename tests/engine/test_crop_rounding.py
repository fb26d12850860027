"""A centre crop's offset is rounded as the library that wrote the recipe rounds it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from onbudget.core.recipe import Recipe
from onbudget.engine.images import decode


@pytest.mark.parametrize(
    ("rounding", "difference", "offset"),
    [
        ("half-even", 1, 0),
        ("half-even", 2, 1),
        ("half-even", 3, 2),
        ("half-even", 5, 2),
        ("half-even", 7, 4),
        ("down", 1, 0),
        ("down", 2, 1),
        ("down", 3, 1),
        ("down", 5, 2),
        ("down", 7, 3),
    ],
)
def test_offsets_are_rounded_to_even_or_down(rounding: Any, difference: int, offset: int) -> None:
    """torchvision (and timm) round half a pixel to even; Hugging Face rounds it down; pain 81."""
    side = 8 + difference
    pixels = np.arange(side * side, dtype=np.uint8).reshape(side, side)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    recipe = Recipe("picture", (8, 8, 1), colour="grey", crop=(8, 8), crop_rounding=rounding)
    wanted = pixels[offset : offset + 8, offset : offset + 8]
    np.testing.assert_array_equal(decode(file.getvalue(), recipe)[..., 0], wanted)
