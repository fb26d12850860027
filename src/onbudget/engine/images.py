"""A picture's bytes become a model's row of pixels, exactly as Pillow makes them: the picture half of a recipe.

In the order in which training code does it: decode, turn by EXIF (where the recipe says so), convert, resize, crop.

* **Convert** is Pillow's `convert("RGB")` or `convert("L")`: alpha is dropped and not composited, palettes are looked
  up, CMYK is inverted as Adobe writes it, grey of 16 bits is what the installed Pillow makes of it.
* **Resize** is Pillow's `resize`. `stretch` ignores the aspect. `shortest` makes the shorter side `size` and the longer
  one `int(size * long / short)`, rounded down: the rule of torchvision's `Resize(int)` and of Hugging Face's
  `get_resize_output_image_size`.
* **Crop** is torchvision's `CenterCrop`: the offset is `round(difference / 2)` with halves to even, and a picture that
  is too small is padded with zeros first. With `crop_rounding` "down" the offset is rounded down, as Hugging Face does:
  where the difference is 3, 7, 11 … pixels, its crop lies one pixel further up or left.
* **EXIF turning** follows the orientation in the EXIF block; one that only XMP tells is ignored, a damaged one counts
  as upright. An animation is its first frame.

A JPEG's entropy-coded data carries no checksum: bytes damaged in its middle are decoded to wrong pixels, here as
everywhere. Everything here may be called from many threads at once; Pillow releases the GIL while it decodes.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from onbudget.core.errors import BadContent, RequestError, TooLarge
from onbudget.core.recipe import Recipe
from onbudget.engine import jpegs
from onbudget.engine.headers import DEFAULT_ACCEPT, FORMATS, MAX_PIXELS, Probe, probe

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["DEFAULT_ACCEPT", "MAX_PIXELS", "Probe", "decode", "probe", "warm"]

_MODES = {"rgb": "RGB", "grey": "L"}
_JPEG_MODES = {1: ("L", "L"), 3: ("RGB", "RGB"), 4: ("CMYK", "CMYK;I")}  # channels → Pillow's mode and raw mode
_MAX_SCANS = 100  # of a progressive JPEG: each is a pass over all pixels, so a small file of many costs minutes
# EXIF orientation → the turn that undoes it, by the name in PIL.Image.Transpose
_TURNS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}


def warm(accept: Collection[str] = DEFAULT_ACCEPT) -> None:
    """Import what these formats need, so that the first picture does not pay for it."""
    for name in accept:
        _plugin(name)


def decode(
    data: bytes | memoryview,
    recipe: Recipe,
    out: npt.NDArray[Any] | None = None,
    *,
    accept: Collection[str] = DEFAULT_ACCEPT,
    max_pixels: int = MAX_PIXELS,
) -> npt.NDArray[Any]:
    """One picture as `recipe.shape` (H, W, C) of values 0 to 255, written to `out` where it is given.

    `out` may be a row of a batch, of any dtype; without it a new uint8 array is returned. BadContent, WrongType or
    TooLarge say in a sentence why there are no pixels; nothing of Pillow's comes through.
    """
    raw = data if isinstance(data, bytes) else bytes(data)
    told = probe(raw, accept, max_pixels)
    if out is None:
        out = np.empty(recipe.shape, np.uint8)
    if _as_it_is(told, recipe) and jpegs.into(raw, out):
        return out
    try:
        picture, exif = _pixels(raw, told, max_pixels)
    except (RequestError, MemoryError):
        raise
    except Exception as error:  # a decoder may raise anything on hostile bytes; each means that it cannot be read
        raise BadContent(f"a damaged or truncated {FORMATS[told.format].name}: {error}") from error
    if recipe.exif and (turn := _TURNS.get(_orientation(exif))):
        from PIL import Image

        picture = picture.transpose(Image.Transpose[turn])
    picture = _shaped(_converted(picture, _MODES[recipe.colour]), recipe, max_pixels)
    found = (picture.height, picture.width)
    if found != recipe.shape[:2]:
        turned = (
            "is" if recipe.resize == "none" and not recipe.crop else f"of {told.width}×{told.height} pixels becomes"
        )
        raise BadContent(
            f"the picture {turned} {found[1]}×{found[0]} pixels; "
            f"this model takes {recipe.shape[1]}×{recipe.shape[0]}, and its recipe does not make them so"
        )
    out[...] = np.frombuffer(picture.tobytes(), np.uint8).reshape(recipe.shape)
    return out


def _as_it_is(told: Probe, recipe: Recipe) -> bool:
    """Whether a JPEG's pixels are the row: three channels of the right size, nothing to turn, and quickly decoded."""
    size = (told.width, told.height)
    return (
        told.channels == 3
        and recipe.shape == (told.height, told.width, 3)
        and _target(size, recipe) == size
        and not told.progressive
        and not (recipe.exif and told.exif)
    )


def _plugin(name: str) -> Any:
    """Pillow's class for one format: used directly, so that Pillow neither imports nor tries any other."""
    if name == "jpeg":  # decoded without its plugin, which would parse every marker again in Python
        from PIL import Image

        jpegs.direct()
        return Image
    if name == "png":
        from PIL import PngImagePlugin

        # A picture whose animation is damaged still has its first frame, which is all that is wanted.
        warnings.filterwarnings("ignore", "Invalid APNG", UserWarning)
        return PngImagePlugin.PngImageFile
    if name == "webp":
        from PIL import WebPImagePlugin

        return WebPImagePlugin.WebPImageFile
    if name == "gif":
        from PIL import GifImagePlugin

        return GifImagePlugin.GifImageFile
    from PIL import BmpImagePlugin

    return BmpImagePlugin.BmpImageFile


def _pixels(raw: bytes, told: Probe, max_pixels: int) -> tuple[Image.Image, bytes]:
    """The decoded first frame in the file's own mode, and its EXIF block (empty where there is none)."""
    if told.format == "jpeg":
        return _jpeg(raw, told), raw[slice(*told.exif)] if told.exif else b""
    opened: Image.Image = _plugin(told.format)(io.BytesIO(raw))
    if opened.width * opened.height > max_pixels:  # a GIF's frame may be larger than its header says
        raise TooLarge(f"a picture of {opened.width}×{opened.height} pixels; the limit is {max_pixels} (--max-pixels)")
    opened.load()
    return opened, opened.info.get("exif") or b""


def _jpeg(raw: bytes, told: Probe) -> Image.Image:
    """What `Image.open` would decode, by the same decoder, in half its time for a small picture."""
    from PIL import Image

    if told.progressive and raw.count(b"\xff\xda") > _MAX_SCANS:
        raise BadContent(f"a progressive JPEG of more than {_MAX_SCANS} scans")
    mode, raw_mode = _JPEG_MODES[told.channels]
    return Image.frombytes(mode, (told.width, told.height), raw, "jpeg", raw_mode, "")


def _orientation(exif: bytes) -> int:
    """The orientation (1 to 8) in an EXIF block's first directory; 1 where there is none or it is damaged."""
    tiff = exif.removeprefix(b"Exif\0\0")
    order = {b"II*\0": "little", b"MM\0*": "big"}.get(tiff[:4])
    if order is None:
        return 1

    def number(at: int, size: int) -> int:
        return int.from_bytes(tiff[at : at + size], "little" if order == "little" else "big")

    start = number(4, 4)
    for at in range(start + 2, start + 2 + 12 * min(number(start, 2), 1000), 12):
        if number(at, 2) == 0x0112 and number(at + 2, 2) == 3:  # the tag, as a short
            return number(at + 8, 2)
    return 1


def _converted(picture: Image.Image, mode: str) -> Image.Image:
    if picture.mode == mode:
        return picture
    # It only decides what an alpha channel would get, which there is none of; with it, Pillow warns about palettes.
    picture.info.pop("transparency", None)
    return picture.convert(mode)


def _shaped(picture: Image.Image, recipe: Recipe, max_pixels: int) -> Image.Image:
    """Resized and cropped as the recipe says; TooLarge where the resized picture would be over the limit."""
    size = _target(picture.size, recipe)
    if size != picture.size:
        from PIL import Image

        if size[0] * size[1] > max_pixels:  # a picture of 1×1,000,000 pixels, its shorter side made 224
            raise TooLarge(
                f"a picture of {picture.width}×{picture.height} pixels would be resized to {size[0]}×{size[1]}; "
                f"the limit is {max_pixels} pixels (--max-pixels)"
            )
        picture = picture.resize(size, Image.Resampling[recipe.resample.upper()])
    return _cropped(picture, recipe.crop, recipe.crop_rounding) if recipe.crop else picture


def _target(size: tuple[int, int], recipe: Recipe) -> tuple[int, int]:
    """(width, height) after the resize, of a picture of `size` (width, height)."""
    if recipe.resize == "none" or recipe.size is None:
        return size
    if recipe.resize == "stretch":
        return recipe.size[1], recipe.size[0]
    edge, (width, height) = recipe.size[0], size
    if width <= height:
        return edge, int(edge * height / width)
    return int(edge * width / height), edge


def _cropped(picture: Image.Image, crop: tuple[int, int], rounding: str) -> Image.Image:
    """The centre of (height, width) pixels."""
    height, width = crop
    left, top = max(0, width - picture.width) // 2, max(0, height - picture.height) // 2
    if picture.width < width or picture.height < height:
        from PIL import Image

        padded = Image.new(picture.mode, (max(width, picture.width), max(height, picture.height)))
        padded.paste(picture, (left, top))
        picture = padded
    halved = round if rounding == "half-even" else int
    left, top = halved((picture.width - width) / 2), halved((picture.height - height) / 2)
    if (width, height) == picture.size:
        return picture
    return picture.crop((left, top, left + width, top + height))
