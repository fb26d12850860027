"""A JPEG's pixels straight into a row of a batch, without a Pillow image between: a third of the time for a small one.

Pillow and simplejpeg both decode by libjpeg-turbo, so both make the same pixels, unless a Pillow was built on another
libjpeg. So they are compared once, and Pillow decides: what it makes is what training code saw.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

_Decoder = Callable[..., npt.NDArray[np.uint8]]


@cache
def direct() -> _Decoder | None:
    """simplejpeg's decoder; None where it is not installed or makes other pixels than the installed Pillow."""
    try:
        from simplejpeg import decode_jpeg, encode_jpeg
    except ImportError:
        return None
    from PIL import Image

    noise = np.random.default_rng(0).integers(0, 256, (19, 37, 3), np.uint8)
    for subsampling in ("444", "422", "420"):
        file = encode_jpeg(noise, 80, "RGB", subsampling)
        theirs = np.asarray(Image.frombytes("RGB", (37, 19), file, "jpeg", "RGB", ""))
        if not np.array_equal(decode_jpeg(file, "RGB"), theirs):
            return None
    decoder: _Decoder = decode_jpeg
    return decoder


def into(raw: bytes, out: npt.NDArray[Any]) -> bool:
    """Whether `out` (H, W, 3) now holds the pixels of a JPEG of this size in colour.

    False where `out` is no plain uint8, and for a file that is damaged in any way: Pillow has the last word on it.
    """
    decoder = direct()
    if decoder is None or out.dtype != np.uint8 or not out.flags.c_contiguous:
        return False
    try:
        return decoder(raw, "RGB", buffer=out).shape == out.shape
    except ValueError:
        return False
