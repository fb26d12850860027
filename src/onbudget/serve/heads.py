"""Heads that came before: a client repeats its head to the byte, but for a length and the ids of a request.

Rules of this file. A head is known by its bytes, without what differs from one request to the next, and is only learnt
from what the HTTP parser made of the very same bytes at the beginning of a message. So nothing is understood here that
the parser would understand otherwise, and whatever is unusual (chunks, an upgrade, `Expect`, folded or bare lines, a
connection that is not to stay) is never learnt and stays with the parser. What differs may only be what every parser
takes: digits for a length, visible characters for an id.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from onbudget.serve.exchange import Head

BEGINS = b"POST /predict"
LONGEST = 2048  # bytes of a head that is worth keeping
MOST = 64  # heads; callers that make theirs unique would fill any number of them
END = b"\r\n\r\n"
# What proxies and tracers set anew for each request. Group 1 is the length, 2 the id that we answer with.
_DIFFERS = re.compile(
    rb"\r\n(?:content-length: ?([0-9]{1,12})|x-request-id: ?([!-~]{1,200})"
    rb"|(?:traceparent|x-b3-[a-z]{1,20}|x-amzn-trace-id|x-cloud-trace-context): ?([!-~]{1,200}))(?=\r\n)",
    re.IGNORECASE,
)
_UNUSUAL = frozenset((b"transfer-encoding", b"expect", b"upgrade"))


class Seen(NamedTuple):
    """A head at the beginning of what came: its bytes but for what differs, its length, its request id, its end."""

    key: bytes
    length: int
    request_id: bytes | None
    end: int


def look(data: bytes) -> Seen | None:
    """The whole head that `data` begins with, of a `POST /predict` that tells its length; None for all others."""
    if not data.startswith(BEGINS):
        return None
    end = data.find(END, 0, LONGEST) + len(END)
    if end < len(END):
        return None
    length, request_id, begin = -1, None, 0
    key = b""
    for found in _DIFFERS.finditer(data, 0, end):
        group = found.lastindex
        assert group is not None
        first, last = found.span(group)
        key += data[begin:first]
        begin = last
        if group == 1 and length < 0:
            length = int(found[1])
        elif group == 2 and request_id is None:
            request_id = found[2]
        elif group != 3:  # two of them: which one counts is the parser's to say
            return None
    return Seen(key + data[begin:end], length, request_id, end) if length >= 0 else None


class Known(NamedTuple):
    """A head that was learnt, with the length and the request id that it tells this time, and where it ends."""

    head: Head
    length: int
    request_id: bytes | None
    end: int


class Heads:
    """The heads of one server's clients, which all of its connections share."""

    def __init__(self) -> None:
        self._known: dict[bytes, Head] = {}
        self._last = b""  # the whole head that was found last, and most often comes again
        self._found: Known | None = None

    def find(self, data: bytes) -> Known | Seen | None:
        """The known head that `data` begins with, or one that might be learnt, or nothing."""
        if self._found is not None and data.startswith(self._last):
            return self._found
        seen = look(data)
        head = self._known.get(seen.key) if seen is not None else None
        if seen is None or head is None:
            return seen
        self._last, self._found = data[: seen.end], Known(head, *seen[1:])
        return self._found

    def learn(self, seen: Seen, head: Head, keep_alive: bool) -> None:
        """`head` is what the parser made of `seen`; kept where it would make the same of it again."""
        values = head.values
        lines = len(head.headers) + 2  # the request's and the empty one: none that the parser joined, or read as body
        if (
            keep_alive
            and seen.key.count(b"\n") == lines
            and values.get(b"content-length", b"").strip() == b"%d" % seen.length
            and values.get(b"x-request-id") == seen.request_id
            and not values.keys() & _UNUSUAL
        ):
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[seen.key] = head
