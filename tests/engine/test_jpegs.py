"""The short way of a JPEG into its row makes what Pillow makes, or is not taken."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from onbudget.core.errors import RequestError
from onbudget.core.recipe import Recipe
from onbudget.engine import images, jpegs
from onbudget.engine.images import decode

RECIPE = Recipe(kind="picture", shape=(24, 40, 3))
NOISE = np.random.default_rng(7).integers(0, 256, (24, 40, 3), np.uint8)


def jpeg(**how: Any) -> bytes:
    """40×24 pixels of noise as a JPEG."""
    file = io.BytesIO()
    Image.fromarray(NOISE).save(file, "JPEG", **how)
    return file.getvalue()


WHOLE = jpeg()


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    jpegs.direct.cache_clear()
    yield
    jpegs.direct.cache_clear()


def by_pillow(data: bytes, recipe: Recipe = RECIPE) -> np.ndarray[Any, Any]:
    """The same picture without the short way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jpegs, "direct", lambda: None)
        return decode(data, recipe)


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("quality", [20, 75, 100])
def test_the_pixels_are_pillows(subsampling: int, quality: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit by bit, and Pillow was not asked."""
    data = jpeg(subsampling=subsampling, quality=quality, restart_marker_rows=1)
    theirs = by_pillow(data)
    assert np.array_equal(theirs, np.asarray(Image.open(io.BytesIO(data))))
    batch = np.zeros((3, *RECIPE.shape), np.uint8)
    assert jpegs.direct() is not None
    monkeypatch.setattr(images, "_pixels", lambda *given: pytest.fail("Pillow decoded"))
    decode(data, RECIPE, out=batch[1])
    assert np.array_equal(batch[1], theirs)
    assert not batch[0].any()
    assert not batch[2].any()


def _outcome(read: Any, data: bytes) -> Any:
    try:
        return read(data, RECIPE).tobytes()
    except RequestError as error:
        return type(error), str(error)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(2, len(WHOLE) - 1), st.binary(max_size=3)), min_size=1, max_size=4), st.booleans()
)
def test_damage_ends_as_with_pillow_alone(cuts: list[tuple[int, bytes]], short: bool) -> None:
    """The same pixels or the same sentence, whatever is overwritten or cut off."""
    data = bytearray(WHOLE)
    for at, what in cuts:
        data[at : at + len(what)] = what
    if short:
        del data[cuts[0][0] :]
    assert _outcome(decode, bytes(data)) == _outcome(by_pillow, bytes(data))


def _turned() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 2
    return jpeg(exif=exif)


@pytest.mark.parametrize(
    ("data", "recipe"),
    [
        (_turned(), Recipe(kind="picture", shape=(24, 40, 3), exif=True)),
        (WHOLE, Recipe(kind="picture", shape=(24, 24, 3), resize="shortest", size=(30, 30), crop=(24, 24))),
        (WHOLE, Recipe(kind="picture", shape=(24, 30, 3), crop=(24, 30))),
        (WHOLE, Recipe(kind="picture", shape=(24, 40, 1), colour="grey")),
        (jpeg(progressive=True), RECIPE),
    ],
    ids=["turned", "resized", "cropped", "grey", "progressive"],
)
def test_pictures_that_a_step_changes_go_through_pillow(
    data: bytes, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The short way knows no steps."""
    monkeypatch.setattr(jpegs, "into", lambda *given: pytest.fail("the short way was taken"))
    assert decode(data, recipe).shape == recipe.shape


def test_a_row_of_another_dtype_or_with_gaps_is_written_by_numpy() -> None:
    """Only plain uint8 can be written by a decoder."""
    rows = np.zeros((24, 40, 3), np.float32)
    gaps = np.zeros((24, 40, 6), np.uint8)[:, :, ::2]
    for out in (rows, gaps):
        assert np.array_equal(decode(WHOLE, RECIPE, out=out), by_pillow(WHOLE))


@pytest.mark.parametrize("why", ["missing", "differs"])
def test_without_a_decoder_that_agrees_pillow_decodes(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not installed, or built on a library that makes other pixels: nothing changes but the time."""
    simplejpeg = pytest.importorskip("simplejpeg")
    wanted = by_pillow(WHOLE)
    if why == "missing":
        monkeypatch.setitem(sys.modules, "simplejpeg", None)
    else:
        real = simplejpeg.decode_jpeg
        monkeypatch.setattr(simplejpeg, "decode_jpeg", lambda *given, **more: real(*given, **more) ^ 1)
    assert jpegs.direct() is None
    assert np.array_equal(decode(WHOLE, RECIPE), wanted)
