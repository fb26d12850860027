"""One HTTP exchange as plain values, so that the ASGI app and the fast path share everything but their sockets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from onbudget.core.errors import NotParseable, RequestError
from onbudget.core.priority import LAST, NORMAL, priority_of

Headers = Sequence[tuple[bytes, bytes]]
JSON = (b"content-type", b"application/json")


class Head:
    """What a request says before its body, read once: names in lower case, and of several values the first.

    `fault` says what is wrong with a header that the policy needs; `priority` is the caller's class. `reading` is for
    whoever reads bodies, to keep how this one is read.
    """

    __slots__ = ("_envoys", "_ours", "fault", "headers", "priority", "query", "reading", "values")

    def __init__(self, headers: Headers, query: bytes = b"") -> None:
        self.headers = headers
        self.query = query
        self.values: dict[bytes, bytes] = {}
        for name, value in headers:
            self.values.setdefault(name, value)
        self.reading: Any = None
        self.fault = ""
        self.priority = NORMAL
        self._ours = self._envoys = None
        try:
            self._ours = _milliseconds("X-Deadline-Ms", self.values.get(b"x-deadline-ms"))
            if self._ours is None:
                envoys = self.values.get(b"x-envoy-expected-rq-timeout-ms")
                self._envoys = _milliseconds("x-envoy-expected-rq-timeout-ms", envoys)
            self.priority = _class(self.values.get(b"x-priority"))
        except NotParseable as error:
            self.fault = error.detail

    def within(self, budget: float | None) -> float | None:
        """For how many seconds the caller waits, counted from the last body byte; None where it does not say.

        `X-Deadline-Ms` is meant for us and may be longer than the budget. Envoy's own header tells a proxy's time-out,
        which most callers never chose: it only shortens.
        """
        envoys = self._envoys
        return envoys if envoys is not None and (budget is None or envoys < budget) else self._ours


@dataclass(slots=True)
class Request:
    """A whole request: `arrived` is when its last body byte was read (monotonic)."""

    head: Head
    body: bytes
    arrived: float


def _class(value: bytes | None) -> int:
    if value is None:
        return NORMAL
    try:
        return priority_of(int(value) if value.isdigit() else -1)
    except ValueError:  # too many digits are one, too
        told = value[:40].decode("latin-1")
        raise NotParseable(
            f"X-Priority: {told!r} is not a whole number from 0 to {LAST}; 1 is the most urgent, {NORMAL} is usual"
        ) from None


def _milliseconds(name: str, value: bytes | None) -> float | None:
    """Seconds; NotParseable for a value that is no time above zero."""
    if value is None:
        return None
    try:
        told = float(value)
    except ValueError:
        told = 0.0
    if not 0 < told < 1e9:
        raise NotParseable(f"{name}: {value[:40].decode('latin-1')!r} is not a number of milliseconds above 0")
    return told / 1e3


EMPTY = Head(())  # one that says nothing


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
    headers = list(error.headers)
    if error.reason is not None:
        value["reason"] = error.reason
    if error.retry_after_s is not None:
        value["retry_after_ms"] = round(error.retry_after_s * 1000)
        headers.append((b"retry-after", str(max(1, ceil(error.retry_after_s))).encode()))
    return as_json(error.status, value, *headers)


class Refusal:
    """A refusal at the door, which many may share: its error, its answer, and what the fast path last sent for it.

    `sent` is all that comes before and after what differs from one request to the next; `below` are the headers that
    it was made with.
    """

    __slots__ = ("below", "error", "response", "sent")

    def __init__(self, error: RequestError) -> None:
        self.error = error
        self.response = refusal(error)
        self.below: bytes | None = None
        self.sent = (b"", b"")
