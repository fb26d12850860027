"""Pictures become pixels exactly as Pillow makes them, and hostile ones become a sentence."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from onbudget.core.errors import BadContent, RequestError, TooLarge, WrongType
from onbudget.core.recipe import Recipe
from onbudget.engine.headers import DEFAULT_ACCEPT, FORMATS
from onbudget.engine.images import decode, probe

ALL = tuple(FORMATS)
RESAMPLES = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")


def scene(width: int, height: int, seed: int = 0) -> Image.Image:
    """A picture with edges, gradients and noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [128 + 100 * np.sin(x / 5 + seed), 128 + 90 * np.cos(y / 7), (x * 7 + y * 3) % 256]
    noisy = np.stack(planes, -1) + rng.normal(0, 8, (height, width, 3))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def saved(picture: Image.Image, kind: str = "PNG", **how: Any) -> bytes:
    """The picture as a file's bytes."""
    file = io.BytesIO()
    picture.save(file, kind, **how)
    return file.getvalue()


def plain(data: bytes, mode: str = "RGB") -> np.ndarray[Any, Any]:
    """What training code gets: `Image.open(...).convert(...)`."""
    pixels = np.asarray(Image.open(io.BytesIO(data)).convert(mode))
    return pixels.reshape(*pixels.shape[:2], -1)


def as_is(data: bytes, colour: str = "rgb", **more: Any) -> np.ndarray[Any, Any]:
    """Decode with a recipe that neither resizes nor crops."""
    told = probe(data, ALL)
    shape = (told.height, told.width, 3 if colour == "rgb" else 1)
    return decode(data, Recipe(kind="picture", shape=shape, colour=colour, **more), accept=ALL)  # type: ignore[arg-type]


def crop_like_torchvision(picture: Image.Image, height: int, width: int) -> Image.Image:
    """CenterCrop, written out from torchvision.transforms.functional.center_crop."""
    w, h = picture.size
    if width > w or height > h:
        border = (
            (width - w) // 2 if width > w else 0,
            (height - h) // 2 if height > h else 0,
            (width - w + 1) // 2 if width > w else 0,
            (height - h + 1) // 2 if height > h else 0,
        )
        picture = ImageOps.expand(picture, border, fill=0)
        w, h = picture.size
    top, left = round((h - height) / 2.0), round((w - width) / 2.0)
    return picture.crop((left, top, left + width, top + height))


# ── equal to Pillow ──


@pytest.mark.parametrize("resample", RESAMPLES)
@pytest.mark.parametrize("colour", ["rgb", "grey"])
@pytest.mark.parametrize("size", [(37, 91), (90, 41), (16, 16)])
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_stretch_is_pillows_resize(resample: str, colour: str, size: tuple[int, int], kind: str) -> None:
    """Stretching gives the pixels of `convert(...).resize((w, h), filter)`, to the bit (pain 81, 82)."""
    data = saved(scene(*size), kind)
    channels, mode = (3, "RGB") if colour == "rgb" else (1, "L")
    recipe = Recipe(
        kind="picture",
        shape=(48, 64, channels),
        colour=colour,
        resize="stretch",
        size=(48, 64),
        resample=resample,  # type: ignore[arg-type]
    )
    wanted = Image.open(io.BytesIO(data)).convert(mode).resize((64, 48), Image.Resampling[resample.upper()])
    np.testing.assert_array_equal(decode(data, recipe), np.asarray(wanted).reshape(48, 64, channels))


@pytest.mark.parametrize("resample", RESAMPLES)
@pytest.mark.parametrize("size", [(37, 91), (91, 37), (41, 41), (500, 33)])
@pytest.mark.parametrize("crop", [(28, 28), (27, 24), (40, 60)])
def test_shortest_then_crop_is_torchvisions(resample: str, size: tuple[int, int], crop: tuple[int, int]) -> None:
    """`shortest` and the centre crop are Resize(int) and CenterCrop, padding with zeros where it is too small."""
    data, (width, height) = saved(scene(*size)), size
    recipe = Recipe(
        kind="picture",
        shape=(*crop, 3),
        resize="shortest",
        size=(32, 32),
        resample=resample,
        crop=crop,  # type: ignore[arg-type]
    )
    short, long = min(size), max(size)
    longer = int(32 * long / short)
    resized = scene(*size).resize((32, longer) if width <= height else (longer, 32), Image.Resampling[resample.upper()])
    np.testing.assert_array_equal(decode(data, recipe), np.asarray(crop_like_torchvision(resized, *crop)))


def test_known_sizes_of_shortest() -> None:
    """The longer side is rounded down, and a crop's odd half goes to the even pixel: numbers known from torchvision."""
    picture = scene(500, 375)
    recipe = Recipe(kind="picture", shape=(224, 224, 3), resize="shortest", size=(256, 256), crop=(224, 224))
    wanted = picture.resize((341, 256), Image.Resampling.BICUBIC).crop((58, 16, 282, 240))
    np.testing.assert_array_equal(decode(saved(picture), recipe), np.asarray(wanted))


def test_a_crop_can_be_rounded_down() -> None:
    """Where 3 pixels are left over, torchvision's crop begins at 2 and Hugging Face's at 1: the recipe says which."""
    picture = scene(31, 28)
    for rounding, left in (("half-even", 2), ("down", 1)):
        recipe = Recipe(kind="picture", shape=(28, 28, 3), crop=(28, 28), crop_rounding=rounding)  # type: ignore[arg-type]
        wanted = picture.crop((left, 0, left + 28, 28))
        np.testing.assert_array_equal(decode(saved(picture), recipe), np.asarray(wanted))


JPEGS: dict[str, Callable[[], bytes]] = {
    "grey": lambda: saved(scene(45, 70).convert("L"), "JPEG"),
    "colour": lambda: saved(scene(45, 70), "JPEG"),
    "finest colour": lambda: saved(scene(45, 70), "JPEG", quality=98, subsampling=0),
    "progressive": lambda: saved(scene(45, 70), "JPEG", progressive=True),
    "optimised": lambda: saved(scene(45, 70), "JPEG", optimize=True),
    "restart markers": lambda: saved(scene(45, 70), "JPEG", restart_marker_blocks=1),
    "CMYK": lambda: saved(scene(45, 70).convert("CMYK"), "JPEG"),
    "colour profile": lambda: saved(scene(45, 70), "JPEG", icc_profile=bytes(range(256)) * 600),
    "comment": lambda: saved(scene(45, 70), "JPEG", comment=b"\xff\xd8\xff\xda"),
    "trailing bytes": lambda: saved(scene(45, 70), "JPEG") + b"junk" * 5000,
    "junk before a marker": lambda: (d := saved(scene(45, 70), "JPEG"))[:20] + b"junk" + d[20:],
    "one pixel": lambda: saved(scene(1, 1), "JPEG"),
}


@pytest.mark.parametrize("kind", JPEGS)
@pytest.mark.parametrize("colour", ["rgb", "grey"])
def test_a_jpeg_is_decoded_as_image_open_does(kind: str, colour: str) -> None:
    """The short way to libjpeg gives the pixels of Image.open for every kind of JPEG."""
    data = JPEGS[kind]()
    np.testing.assert_array_equal(as_is(data, colour), plain(data, "RGB" if colour == "rgb" else "L"))


def _palette_with_alpha() -> Image.Image:
    picture = scene(20, 30).quantize(16)
    picture.info["transparency"] = bytes(range(0, 256, 16))
    return picture


MODES: dict[str, Callable[[], bytes]] = {
    "RGBA": lambda: saved(Image.merge("RGBA", (*scene(20, 30).split(), scene(20, 30, 1).convert("L")))),
    "LA": lambda: saved(Image.merge("LA", (scene(20, 30).convert("L"), scene(20, 30, 1).convert("L")))),
    "one bit": lambda: saved(scene(20, 30).convert("1")),
    "palette": lambda: saved(scene(20, 30).quantize(50)),
    "palette with alpha": lambda: saved(_palette_with_alpha(), transparency=_palette_with_alpha().info["transparency"]),
    "palette with one transparent colour": lambda: saved(scene(20, 30).quantize(50), transparency=3),
    "transparent colour": lambda: saved(scene(20, 30), transparency=(1, 2, 3)),
    "grey of 16 bits": lambda: saved(
        Image.fromarray(np.random.default_rng(3).integers(0, 600, (30, 20), dtype=np.uint16))
    ),
    "interlaced": lambda: saved(scene(20, 30), interlace=1),
    "WebP": lambda: saved(scene(20, 30), "WEBP"),
    "WebP, lossless": lambda: saved(scene(20, 30), "WEBP", lossless=True),
    "WebP, alpha": lambda: saved(scene(20, 30).convert("RGBA"), "WEBP"),
    "GIF": lambda: saved(scene(20, 30), "GIF"),
    "BMP": lambda: saved(scene(20, 30), "BMP"),
    "BMP, palette": lambda: saved(scene(20, 30).quantize(9), "BMP"),
}


@pytest.mark.parametrize("kind", MODES)
@pytest.mark.parametrize("colour", ["rgb", "grey"])
@pytest.mark.filterwarnings(
    "ignore:Palette images with Transparency"
)  # from the plain Pillow call; ours must be silent
def test_every_mode_is_converted_as_pillow_does(kind: str, colour: str) -> None:
    """Alpha, palettes, one bit, 16 bits and other formats become what Pillow's convert makes of them."""
    data = MODES[kind]()
    np.testing.assert_array_equal(as_is(data, colour), plain(data, "RGB" if colour == "rgb" else "L"))


@pytest.mark.parametrize("kind", MODES)
def test_no_warning_of_pillows_comes_through(kind: str) -> None:
    """Decoding is silent, whatever the mode (warnings are errors in these tests)."""
    assert as_is(MODES[kind]()).dtype == np.uint8


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_exif_turns_only_when_the_recipe_says_so(kind: str, orientation: int) -> None:
    """All eight orientations are turned as ImageOps.exif_transpose does; without the field nothing is turned."""
    exif = Image.Exif()
    exif[0x010F] = "a maker"  # another tag, before the one that counts
    exif[0x0112] = orientation
    data = saved(scene(24, 40), kind, exif=exif, **({"lossless": True} if kind == "WEBP" else {}))
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    recipe = Recipe(kind="picture", shape=(upright.height, upright.width, 3), exif=True)
    np.testing.assert_array_equal(decode(data, recipe), np.asarray(upright))
    np.testing.assert_array_equal(as_is(data), plain(data))


def _with_exif(block: bytes) -> bytes:
    data = saved(scene(24, 40), "JPEG")
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 8) + b"Exif\0\0" + block + data[2:]


def test_exif_is_read_in_both_byte_orders() -> None:
    """A big-endian block (as phones write it) turns like a little-endian one."""
    big = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    little = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"
    recipe = Recipe(kind="picture", shape=(24, 40, 3), exif=True)
    for block in (big, little):
        data = _with_exif(block)
        wanted = Image.open(io.BytesIO(data)).transpose(Image.Transpose.ROTATE_270)
        np.testing.assert_array_equal(decode(data, recipe), np.asarray(wanted))


@pytest.mark.parametrize(
    "block", [b"", b"II*\0", b"nonsense", b"II*\0\xff\xff\xff\xff", b"MM\0*\0\0\0\x08\xff\xff" + b"\0" * 30]
)
def test_a_damaged_exif_block_counts_as_upright(block: bytes) -> None:
    """A picture is not refused for its metadata."""
    data = _with_exif(block)
    np.testing.assert_array_equal(as_is(data, exif=True), plain(saved(scene(24, 40), "JPEG")))


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF"])
def test_an_animation_is_its_first_frame(kind: str) -> None:
    """APNG, WebP and GIF animations give the frame that Image.open shows first."""
    frames = [scene(20, 30, seed) for seed in range(3)]
    more = {"lossless": True} if kind == "WEBP" else {}
    data = saved(frames[0], kind, save_all=True, append_images=frames[1:], duration=50, **more)
    assert Image.open(io.BytesIO(data)).n_frames == 3  # type: ignore[attr-defined]
    np.testing.assert_array_equal(as_is(data), plain(data))


# ── where the pixels go ──


def test_a_picture_is_written_into_its_row() -> None:
    """`out` is filled in place, of any dtype, and its neighbours stay as they were."""
    data = saved(scene(64, 64))
    recipe = Recipe(kind="picture", shape=(64, 64, 3))
    for dtype in (np.uint8, np.float32):
        batch = np.full((3, 64, 64, 3), 7, dtype)
        assert decode(data, recipe, batch[1]).base is not None
        np.testing.assert_array_equal(batch[1], plain(data))
        assert (batch[[0, 2]] == 7).all()


def test_a_memoryview_is_read_like_bytes() -> None:
    """A slice of a request's body needs no copy by the caller."""
    data = saved(scene(64, 64), "JPEG")
    view = memoryview(b"--boundary" + data + b"--")[10:-2]
    recipe = Recipe(kind="picture", shape=(64, 64, 3))
    assert probe(view) == probe(data)
    np.testing.assert_array_equal(decode(view, recipe), plain(data))


def test_a_size_that_the_model_does_not_take_is_told_both_ways() -> None:
    """Without a resize the sizes must agree; the message has both, width first."""
    recipe = Recipe(kind="picture", shape=(64, 48, 3))
    with pytest.raises(BadContent, match=r"is 65×64 pixels; this model takes 48×64"):
        decode(saved(scene(65, 64)), recipe)


def test_many_threads_decode_at_once() -> None:
    """Eight threads decoding different pictures of every format get each its own pixels."""
    kinds = [("JPEG", {}), ("PNG", {}), ("WEBP", {"lossless": True}), ("GIF", {}), ("BMP", {})]
    files = [saved(scene(50, 40, seed), *kind[:1], **kind[1]) for seed in range(8) for kind in kinds]
    recipe = Recipe(kind="picture", shape=(32, 32, 3), resize="stretch", size=(32, 32))
    alone = [decode(data, recipe, accept=ALL) for data in files]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda data: decode(data, recipe, accept=ALL), files * 10))
    for i, pixels in enumerate(together):
        np.testing.assert_array_equal(pixels, alone[i % len(files)])


# ── refusals ──


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP"])
def test_the_size_is_read_without_decoding(kind: str) -> None:
    """Format and size come from the first bytes alone."""
    data = saved(scene(321, 123), kind)
    told = probe(data[:1000], ALL)
    assert (told.format, told.width, told.height) == (kind.lower(), 321, 123)


def _png_that_says(width: int, height: int) -> bytes:
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(b"\0" * 1000)
    chunks = [header, b"IDAT" + body, b"IEND"]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in chunks
    )


def _jpeg_that_says(width: int, height: int) -> bytes:
    data = saved(scene(8, 8), "JPEG")
    at = data.index(b"\xff\xc0") + 5
    return data[:at] + struct.pack(">HH", height, width) + data[at + 4 :]


def _webp_that_says(width: int, height: int) -> bytes:
    extended = (
        b"VP8X"
        + struct.pack("<I", 10)
        + bytes(4)
        + struct.pack("<I", width - 1)[:3]
        + struct.pack("<I", height - 1)[:3]
    )
    return b"RIFF" + struct.pack("<I", 4 + len(extended)) + b"WEBP" + extended


@pytest.mark.parametrize("bomb", [_png_that_says, _jpeg_that_says, _webp_that_says])
def test_a_bomb_is_refused_before_decoding(bomb: Callable[[int, int], bytes]) -> None:
    """A small file that declares billions of pixels is 413, and names the limit and its flag."""
    data = bomb(60_000, 60_000)
    with pytest.raises(
        TooLarge, match=r"60000×60000 pixels is 3600\.0 megapixels; the limit is 50 megapixels \(--max-pixels\)"
    ):
        probe(data)
    with pytest.raises(TooLarge):
        decode(data, Recipe(kind="picture", shape=(8, 8, 3), resize="stretch", size=(8, 8)))


def test_fill_bytes_cost_no_step_each() -> None:
    """A JPEG of megabytes of 0xFF is looked at in a few steps: probing runs on the event loop."""

    class Counted(bytes):
        steps = 0

        def __getitem__(self, key: Any) -> Any:
            Counted.steps += 1
            return super().__getitem__(key)

    with pytest.raises(BadContent, match="before its size is told"):
        probe(Counted(b"\xff\xd8\xff" + b"\xff" * 100_000))
    assert Counted.steps < 20


def test_the_pixel_limit_is_inclusive() -> None:
    """Exactly the limit is taken, one pixel more is not."""
    data = saved(scene(10, 10))
    assert probe(data, max_pixels=100).width == 10
    with pytest.raises(TooLarge):
        probe(data, max_pixels=99)


def test_a_thin_picture_cannot_be_blown_up() -> None:
    """Making the shorter side of a 1×20000 picture 224 would be a billion pixels: refused, and says so."""
    recipe = Recipe(kind="picture", shape=(224, 224, 3), resize="shortest", size=(224, 224), crop=(224, 224))
    with pytest.raises(TooLarge, match="would be resized to 224×4480000"):
        decode(saved(Image.new("RGB", (1, 20_000))), recipe)


def test_a_gif_frame_larger_than_its_screen_is_measured_too() -> None:
    """The limit holds for what is decoded, not only for what the first header says."""
    data = bytearray(saved(scene(200, 200), "GIF"))
    data[6:10] = struct.pack("<HH", 1, 1)
    with pytest.raises(TooLarge, match="200×200"):
        decode(bytes(data), Recipe(kind="picture", shape=(1, 1, 3)), accept=ALL, max_pixels=10_000)


def test_a_format_outside_the_accepted_set_is_415() -> None:
    """A picture of a known but not accepted format names the set."""
    for data in (saved(scene(8, 8), "GIF"), saved(scene(8, 8), "BMP")):
        with pytest.raises(WrongType, match=r"JPEG, PNG, WebP are taken \(--accept\)"):
            probe(data, DEFAULT_ACCEPT)
    with pytest.raises(WrongType, match=r"a PNG picture; JPEG are taken"):
        probe(saved(scene(8, 8)), ("jpeg",))


@pytest.mark.parametrize("data", [b"", b"GIF", b"hello, world", b"\xff\xd8", b"%PDF-1.7", b"RIFF\0\0\0\0WAVEfmt "])
def test_bytes_that_are_no_picture_are_422(data: bytes) -> None:
    """Other bytes are refused with their beginning, so that a person sees what was sent."""
    with pytest.raises(
        BadContent, match=r"not a picture: it (is empty|begins with the bytes [0-9a-f ]+); JPEG, PNG, WebP"
    ):
        probe(data)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP"])
def test_a_truncated_picture_is_a_sentence(kind: str) -> None:
    """Cut anywhere, a file is 422 that names its format, never an error of Pillow's (pain 45)."""
    data = saved(scene(64, 64), kind)
    recipe = Recipe(kind="picture", shape=(64, 64, 3))
    for cut in range(len(data) // 40, len(data) * 9 // 10, len(data) // 40):
        with pytest.raises(BadContent, match=r"^(a (damaged|JPEG|PNG|WebP|GIF|BMP) ?|not a picture)"):
            decode(data[:cut], recipe, accept=ALL)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xff\xd8" + b"\xff\xfe\0\x02" * 2000, "more than 1000 segments"),
        (b"\xff\xd8\xff\xfe\0\x02" + b"\0" * 5000, "ends before its size"),
        (b"\xff\xd8\xff\xda\0\x02", "never tells its size"),
        (b"\xff\xd8\xff\xc0\0\x0b\x0c\0\x08\0\x08\x01", "1 channels of 12 bits"),
        (b"\xff\xd8\xff\xc0\0\x0b\x08\0\0\0\x08\x01", "8×0 pixels"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 30, "a PNG without its header"),
        (b"RIFF\0\0\0\0WEBPVP8 " + b"\0" * 30, "a WebP without its header"),
        (b"BM" + b"\0" * 12 + struct.pack("<IiiHHI", 40, 8, 8, 1, 8, 1), "run-length"),
        (saved(scene(16, 16), "JPEG", progressive=True) + b"\xff\xda" * 100, "more than 100 scans"),
    ],
)
def test_damaged_or_costly_headers_are_422(data: bytes, why: str) -> None:
    """Each kind of damage, and each small file made to cost much, has its own sentence."""
    with pytest.raises(BadContent, match=why):
        decode(data, Recipe(kind="picture", shape=(16, 16, 3)), accept=ALL)


SEEDS = [
    saved(scene(24, 20), "JPEG", exif=Image.Exif()),
    saved(scene(24, 20), "JPEG", progressive=True),
    saved(scene(24, 20)),
    saved(scene(24, 20).quantize(8), transparency=2),
    saved(scene(24, 20), save_all=True, append_images=[scene(24, 20, 1)]),
    saved(scene(24, 20), "WEBP"),
    saved(scene(24, 20), "WEBP", lossless=True),
    saved(scene(24, 20), "GIF"),
    saved(scene(24, 20), "BMP"),
]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.sampled_from(SEEDS), st.lists(st.tuples(st.integers(0, 10**6), st.binary(min_size=0, max_size=6)), max_size=4)
)
@pytest.mark.filterwarnings("ignore:Invalid APNG")  # the product ignores it for the process; pytest resets that
def test_damaged_bytes_give_pixels_or_a_sentence(data: bytes, edits: list[tuple[int, bytes]]) -> None:
    """However a file is damaged, the answer is pixels or one of our refusals."""
    for at, new in edits:
        at %= len(data)
        data = data[:at] + new + data[at + max(1, len(new)) :]
    recipe = Recipe(kind="picture", shape=(16, 16, 3), exif=True, resize="stretch", size=(16, 16))
    try:
        pixels = decode(data, recipe, accept=ALL, max_pixels=10_000)
    except RequestError as error:
        said = str(error)
    else:
        said = f"a {pixels.shape}"
    named = (f"a {one.name} " for one in FORMATS.values())
    assert said.startswith(("a (16, 16, 3)", "a damaged", "a picture", "a progressive", "not a picture", *named))


# ── what it costs to have ──


def _python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)


def test_probing_needs_no_pillow_and_a_jpeg_no_other_format() -> None:
    """Only the accepted formats' code is loaded, and only when a picture is decoded."""
    data = saved(scene(8, 8), "JPEG")
    code = (
        "import sys\n"
        "from onbudget.core.recipe import Recipe\n"
        "from onbudget.engine.images import decode, probe, warm\n"
        f"data = {data!r}\n"
        "probe(data)\n"
        "print('PIL' in sys.modules)\n"
        "decode(data, Recipe(kind='picture', shape=(8, 8, 3)))\n"
        "print(sorted(m for m in sys.modules if m.startswith('PIL.') and m.endswith('Plugin')))\n"
        "warm(('webp',))\n"
        "print(sorted(m for m in sys.modules if m.startswith('PIL.') and m.endswith('Plugin')))\n"
    )
    assert _python(code).stdout.splitlines() == ["False", "[]", "['PIL.WebPImagePlugin']"]


def test_a_damaged_animation_does_not_write_to_the_servers_log() -> None:
    """A PNG whose animation header is nonsense gives its picture, and Pillow's warning stays inside."""
    data = saved(scene(8, 8))
    bad = b"acTL" + struct.pack(">II", 0, 0)
    chunk = struct.pack(">I", 8) + bad + struct.pack(">I", zlib.crc32(bad))
    code = (
        "from onbudget.core.recipe import Recipe\n"
        "from onbudget.engine.images import decode\n"
        f"print(decode({data[:33] + chunk + data[33:]!r}, Recipe(kind='picture', shape=(8, 8, 3))).shape)\n"
    )
    ran = _python(code)
    assert (ran.stdout, ran.stderr) == ("(8, 8, 3)\n", "")
