"""Which other origins' pages may call, as browsers ask it (Fetch standard, CORS protocol): none, unless it is named."""

from __future__ import annotations

import re
from collections.abc import Mapping

from onbudget.core.errors import UsageError
from onbudget.serve.exchange import Response, as_json

Lines = list[tuple[bytes, bytes]]
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:\d{1,5})?")
_USUAL = {"http": ":80", "https": ":443"}
SHOWN = b"retry-after, server-timing, x-onbudget-late, x-request-id"  # of an answer's headers, to the page's script
SENT = b"authorization, content-encoding, content-type, traceparent, x-api-key, x-deadline-ms, x-priority, x-request-id"
KEPT_S = 600  # for how long a browser need not ask again
VARY = (b"vary", b"origin")


def parse_origin(text: str) -> str:
    """An origin as browsers write it; UsageError for what none would ever send."""
    told = text.strip().lower()
    found = _ORIGIN.fullmatch(told)
    if found is None:
        hint = "; name each origin that may call" if told in ("*", "null") else ""
        raise UsageError(f"{text!r} is not an origin; write it like https://app.example.com, without a path{hint}")
    if found[3] is not None and found[3] == _USUAL.get(found[1]):
        raise UsageError(f"{text!r}: browsers leave out {found[3]}; write {told.removesuffix(found[3])}")
    return told


class Origins:
    """The origins that may call. Each answer says that it depends on the origin; an allowed one is named in it."""

    def __init__(self, allowed: tuple[str, ...]) -> None:
        self._lines: dict[bytes, Lines] = {}
        for one in allowed:
            origin = one.encode()
            named = (b"access-control-allow-origin", origin)
            self._lines[origin] = [VARY, named, (b"access-control-expose-headers", SHOWN)]
        self._kept: dict[bytes | None, tuple[bytes, bytes]] = {}  # origin → what came before it, and both together

    def lines(self, origin: bytes | None) -> Lines:
        """The headers of an answer to a request of this origin; None: it named none."""
        return self._lines.get(origin, [VARY]) if origin is not None else [VARY]

    def told(self, before: bytes, origin: bytes | None) -> bytes:
        """`before`, and behind it the same headers as bytes: the same object as long as `before` is."""
        if origin not in self._lines:
            origin = None  # all of them hear the same; and nobody fills our memory with made-up ones
        known, told = self._kept.get(origin, (None, b""))
        if known is not before:
            told = before + b"".join([b"%b: %b\r\n" % line for line in self.lines(origin)])
            self._kept[origin] = before, told
        return told

    def preflight(self, method: str, values: Mapping[bytes, bytes]) -> Response | None:
        """The answer where a browser asks before it sends: 204, or 403 for an origin that is not allowed."""
        origin = values.get(b"origin")
        if method != "OPTIONS" or origin is None or b"access-control-request-method" not in values:
            return None
        if origin not in self._lines:
            shown = origin[:200].decode("latin-1")
            return as_json(403, {"detail": f"pages of {shown!r} may not call; see --cors-origin"}, VARY)
        may = [
            (b"access-control-allow-methods", b"GET, HEAD, POST"),
            (b"access-control-allow-headers", SENT),
            (b"access-control-max-age", b"%d" % KEPT_S),
        ]
        return Response(204, b"", [*self.lines(origin), *may])
