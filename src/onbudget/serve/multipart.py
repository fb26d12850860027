"""`multipart/form-data` bodies that are already in memory → their parts, by python-multipart's parser."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from onbudget.core.errors import NotParseable, TooLarge

MAX_HEAD = 1024  # bytes of a part's headers that are remembered
MAX_PARTS = 4200  # a little over the largest --max-items: more is an attack, not a form


@dataclass(slots=True)
class Part:
    """One field of the form; `content_type` is lower case and "" where the part names none."""

    name: str = ""
    content_type: str = ""
    data: bytes = b""
    chunks: list[bytes] = field(default_factory=list)


class _Collector:
    """The parser's callbacks: it speaks in slices, we want whole parts."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.ended = False
        self._key = b""
        self._value = b""

    def callbacks(self) -> dict[str, object]:
        return {
            "on_part_begin": self._begin,
            "on_part_data": lambda data, start, end: self.parts[-1].chunks.append(data[start:end]),
            "on_part_end": self._finish,
            "on_header_field": self._on_key,
            "on_header_value": self._on_value,
            "on_header_end": self._header,
            "on_end": self._on_end,
        }

    def _begin(self) -> None:
        if len(self.parts) == MAX_PARTS:
            raise TooLarge(f"the form has more than {MAX_PARTS} parts")
        self.parts.append(Part())
        self._key = self._value = b""

    def _on_key(self, data: bytes, start: int, end: int) -> None:
        self._key += data[start:end]

    def _on_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header(self) -> None:
        key, value = self._key.lower(), self._value
        self._key = self._value = b""
        if key == b"content-disposition":
            _, options = parse_options_header(value)
            self.parts[-1].name = options.get(b"name", b"").decode("utf-8", "replace")
        elif key == b"content-type":
            self.parts[-1].content_type = parse_options_header(value)[0].decode("latin-1").lower()

    def _finish(self) -> None:
        part = self.parts[-1]
        part.data = b"".join(part.chunks)
        part.chunks.clear()

    def _on_end(self) -> None:
        self.ended = True


def parse_form(body: bytes, boundary: bytes) -> list[Part]:
    """The form's parts in order; NotParseable for a form that is broken or cut short.

    Most forms are one picture under the same few headers. Where the next delimiter after these is the closing one, what
    lies between is cut out and the rest, which is remembered, is all that the parser sees.
    """
    delimiter = b"\r\n--" + boundary
    begin, end = body.find(b"\r\n\r\n", 0, MAX_HEAD) + 4, body.find(delimiter)
    if (
        body.startswith(delimiter[2:] + b"\r\n")
        and 4 <= begin <= end
        and body[end + len(delimiter) :] in (b"--\r\n", b"--")
    ):
        (part,) = _remembered(body[:begin] + body[end:], boundary)
        return [Part(part.name, part.content_type, body[begin:end])]
    return _parsed(body, boundary)


@lru_cache(maxsize=64)
def _remembered(body: bytes, boundary: bytes) -> list[Part]:
    return _parsed(body, boundary)


def _parsed(body: bytes, boundary: bytes) -> list[Part]:
    collector = _Collector()
    try:
        parser = MultipartParser(boundary, collector.callbacks())  # type: ignore[arg-type]  # its TypedDict wants literals
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise NotParseable(f"the multipart body can't be parsed: {error}") from error
    if not collector.ended:
        raise NotParseable("the multipart body is cut short: its closing boundary is missing")
    return collector.parts
