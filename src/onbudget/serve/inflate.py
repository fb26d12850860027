"""gzip bodies, unpacked in steps: a few bytes can declare gigabytes, and nobody else may wait for them.

A step makes at most STEP bytes, which takes well below a millisecond; between steps the event loop goes on. No more is
ever made than the limit of a body and one byte, which tells that there is more.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator

from onbudget.core.errors import NotParseable, WrongType

STEP = 64 * 1024  # bytes
MEMBERS = 10_000  # of one body; empty ones cost twenty bytes each, and make nothing
_GZIP = 16 + zlib.MAX_WBITS


class Inflater:
    """Unpacks one body of at most `limit` bytes; `check_size` is told of every size that was reached."""

    def __init__(self, limit: int, check_size: Callable[[int], None]) -> None:
        self._limit = limit
        self._check_size = check_size
        self._size = self._members = 0
        self._member = zlib.decompressobj(_GZIP)
        self._ended = True  # nothing of a member has been read

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The next bytes as they came → what they make, a step at a time. NotParseable for damage, or TooLarge."""
        full = False
        while data or full:
            if self._ended:
                self._begin()
            most = min(STEP, self._limit - self._size + 1)
            try:
                made = self._member.decompress(data, most)
            except zlib.error as error:
                raise NotParseable(f"the body is not valid gzip, as its content-encoding says: {error}") from None
            self._size += len(made)
            self._check_size(self._size)
            self._ended = self._member.eof
            data = self._member.unused_data if self._ended else self._member.unconsumed_tail
            full = not self._ended and len(made) == most  # more may lie in there, of bytes that it has read
            yield made

    def end(self) -> None:
        """The body is whole; NotParseable where its gzip is not."""
        if not self._ended or not self._members:
            raise NotParseable("the gzip body is cut short: its end is missing")

    def _begin(self) -> None:
        self._members += 1
        if self._members > MEMBERS:
            raise NotParseable(f"the gzip body has more than {MEMBERS:,} members")
        self._member = zlib.decompressobj(_GZIP)
        self._ended = False


def inflater(headers: Iterable[tuple[bytes, bytes]], limit: int, check_size: Callable[[int], None]) -> Inflater | None:
    """What unpacks the body behind these headers; None where it came as it is. WrongType for another encoding."""
    told = [
        part.strip().lower() for name, value in headers if name == b"content-encoding" for part in value.split(b",")
    ]
    codings = [one for one in told if one not in (b"", b"identity")]
    if not codings:
        return None
    if codings not in ([b"gzip"], [b"x-gzip"]):
        shown = b", ".join(codings)[:80].decode("latin-1")
        error = WrongType(f"content-encoding {shown!r} is not accepted; send the body with gzip, once, or as it is")
        error.headers = ((b"accept-encoding", b"gzip"),)
        raise error
    return Inflater(limit, check_size)
