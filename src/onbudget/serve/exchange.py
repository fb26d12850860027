"""One HTTP exchange as plain values, so that the ASGI app and the fast path share everything but their sockets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from onbudget.core.errors import RequestError

Headers = Sequence[tuple[bytes, bytes]]
JSON = (b"content-type", b"application/json")


@dataclass(slots=True)
class Request:
    """A whole request: `arrived` is when its last body byte was read (monotonic); header names are lower case."""

    headers: Headers
    body: bytes
    query: bytes
    arrived: float

    def header(self, name: bytes) -> bytes:
        """The first value of a header, or b""."""
        for key, value in self.headers:
            if key == name:
                return value
        return b""


@dataclass(slots=True)
class Response:
    """A whole answer."""

    status: int
    body: bytes
    headers: list[tuple[bytes, bytes]]


def as_json(status: int, value: object, *headers: tuple[bytes, bytes]) -> Response:
    """A small JSON answer (the hot path encodes its own)."""
    return Response(status, json.dumps(value, ensure_ascii=False).encode(), [JSON, *headers])


def refusal(error: RequestError) -> Response:
    """An error as its answer: `detail`, and for refusals the reason and when to come back."""
    value: dict[str, object] = {"detail": error.detail}
    headers: list[tuple[bytes, bytes]] = []
    if error.reason is not None:
        value["reason"] = error.reason
    if error.retry_after_s is not None:
        value["retry_after_ms"] = round(error.retry_after_s * 1000)
        headers.append((b"retry-after", str(max(1, ceil(error.retry_after_s))).encode()))
    return as_json(error.status, value, *headers)
