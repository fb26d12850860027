"""A picture's format and size from its first bytes, before anything is decoded.

This runs on the event loop for every uploaded picture, so it costs microseconds, and it is where a decompression bomb
is refused: a few bytes can declare billions of pixels. Parsers follow the formats' own documents: ITU-T T.81 annex B
(JPEG), W3C PNG 11.2.2, RFC 9649 (WebP), GIF89a, and Microsoft's BITMAPINFOHEADER.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Collection
from typing import NamedTuple

from onbudget.core.errors import BadContent, TooLarge, WrongType

MAX_PIXELS = 50_000_000
_MAX_SEGMENTS = 1_000  # of a JPEG, before its size is known; real ones have below 100


class Probe(NamedTuple):
    """What the first bytes say. `channels` and `exif` (start, end of the EXIF block) are a JPEG's; else 0 and None."""

    format: str
    width: int
    height: int
    channels: int = 0
    progressive: bool = False
    exif: tuple[int, int] | None = None


class Format(NamedTuple):
    """One picture format: how a person writes it, its content types, and how its header is read."""

    name: str
    types: tuple[str, ...]
    read: Callable[[bytes], Probe]


_SOF = struct.Struct(">BHHB")  # precision, height, width, components
_SIZE_BE = struct.Struct(">II")
_START_OF_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
_FILL = re.compile(rb"\xff+")  # before a marker may lie any number of them: megabytes in a hostile file
_BARE = frozenset({0x01, *range(0xD0, 0xD8)})  # markers without a length
_SCAN, _END, _APP1 = 0xDA, 0xD9, 0xE1


def _jpeg(data: bytes) -> Probe:
    at, exif = 2, None
    for _ in range(_MAX_SEGMENTS):
        at = data.find(b"\xff", at)  # like libjpeg, junk before a marker is skipped
        if at < 0:
            raise BadContent("a JPEG that ends before its size is told")
        at = _FILL.match(data, at).end()  # type: ignore[union-attr]  # there is one at least
        head = data[at : at + 3]
        if len(head) < 3:
            raise BadContent("a JPEG that ends before its size is told")
        marker, length = head[0], head[1] << 8 | head[2]
        if marker in _START_OF_FRAME:
            if len(data) < at + 9:
                raise BadContent("a JPEG that ends before its size is told")
            precision, height, width, channels = _SOF.unpack_from(data, at + 3)
            if precision != 8 or channels not in (1, 3, 4):
                raise BadContent(f"a JPEG of {channels} channels of {precision} bits; 1, 3 or 4 of 8 bits are read")
            return Probe("jpeg", width, height, channels, marker in _PROGRESSIVE, exif)
        if marker in (_SCAN, _END):
            raise BadContent("a JPEG that never tells its size")
        if marker == 0 or marker in _BARE:
            at += 1
            continue
        if marker == _APP1 and exif is None and data[at + 3 : at + 9] == b"Exif\0\0":
            exif = (at + 9, at + 1 + length)
        at += 1 + length
    raise BadContent(f"a JPEG of more than {_MAX_SEGMENTS} segments before its picture")


def _png(data: bytes) -> Probe:
    if len(data) < 24 or data[12:16] != b"IHDR":
        raise BadContent("a PNG without its header")
    width, height = _SIZE_BE.unpack_from(data, 16)
    return Probe("png", width, height)


def _webp(data: bytes) -> Probe:
    kind = data[12:16]
    if len(data) >= 30:
        if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
            width, height = struct.unpack_from("<HH", data, 26)
            return Probe("webp", width & 0x3FFF, height & 0x3FFF)
        if kind == b"VP8L" and data[20] == 0x2F:
            bits = int.from_bytes(data[21:25], "little")
            return Probe("webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
        if kind == b"VP8X":
            width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
            return Probe("webp", width, height)
    raise BadContent("a WebP without its header")


def _gif(data: bytes) -> Probe:
    if len(data) < 10:
        raise BadContent("a GIF without its header")
    width, height = struct.unpack_from("<HH", data, 6)
    return Probe("gif", width, height)


def _bmp(data: bytes) -> Probe:
    if len(data) < 34:
        raise BadContent("a BMP without its header")
    if int.from_bytes(data[14:18], "little") == 12:  # OS/2
        width, height = struct.unpack_from("<HH", data, 18)
        return Probe("bmp", width, height)
    width, height = struct.unpack_from("<ii", data, 18)
    if int.from_bytes(data[30:34], "little") in (1, 2):
        # Pillow decodes these in Python, so slowly that a small file could hold a lane for a minute.
        raise BadContent("a run-length encoded BMP; save it uncompressed, or as PNG")
    return Probe("bmp", width, abs(height))


FORMATS = {
    "jpeg": Format("JPEG", ("image/jpeg", "image/jpg", "image/pjpeg"), _jpeg),
    "png": Format("PNG", ("image/png", "image/x-png"), _png),
    "webp": Format("WebP", ("image/webp",), _webp),
    "gif": Format("GIF", ("image/gif",), _gif),
    "bmp": Format("BMP", ("image/bmp", "image/x-ms-bmp"), _bmp),
}
DEFAULT_ACCEPT = ("jpeg", "png", "webp")
TYPES = {kind: name for name, one in FORMATS.items() for kind in one.types}  # content type → format


def shown(accept: Collection[str]) -> str:
    """The accepted formats as a person reads them: "JPEG, PNG, WebP"."""
    return ", ".join(one.name for key, one in FORMATS.items() if key in accept)


def sniff(data: bytes | memoryview) -> str | None:
    """The format by its magic bytes, or None; reads 12 bytes."""
    head = bytes(data[:12])
    if head[:3] == b"\xff\xd8\xff":
        return "jpeg"
    if head[:8] == b"\x89PNG\r\n\x1a\n":
        return "png"
    if head[:4] == b"RIFF" and head[8:] == b"WEBP":
        return "webp"
    if head[:6] in (b"GIF87a", b"GIF89a"):
        return "gif"
    if head[:2] == b"BM":
        return "bmp"
    return None


def probe(data: bytes | memoryview, accept: Collection[str] = DEFAULT_ACCEPT, max_pixels: int = MAX_PIXELS) -> Probe:
    """The picture's format and size, without decoding a pixel; `bytes` are read without a copy.

    BadContent for bytes that are no picture or whose header is damaged, WrongType for a format outside `accept`,
    TooLarge for more than `max_pixels` pixels.
    """
    kind = sniff(data)
    if kind is None:
        begins = f"begins with the bytes {bytes(data[:8]).hex(' ')}" if len(data) else "is empty"
        raise BadContent(f"not a picture: it {begins}; {shown(accept)} are taken")
    if kind not in accept:
        raise WrongType(f"a {FORMATS[kind].name} picture; {shown(accept)} are taken (--accept)")
    told = FORMATS[kind].read(data if isinstance(data, bytes) else bytes(data))
    if told.width <= 0 or told.height <= 0:
        raise BadContent(f"a {FORMATS[kind].name} of {told.width}×{told.height} pixels")
    if told.width * told.height > max_pixels:
        raise TooLarge(
            f"a picture of {told.width}×{told.height} pixels is {told.width * told.height / 1e6:.1f} megapixels; "
            f"the limit is {max_pixels / 1e6:g} megapixels (--max-pixels)"
        )
    return told
