"""The protocol of a server that asks for API keys, or that lets other origins' pages call.

A server without either does not run a line of this. A caller without a key is refused when its head has been read, and
its connection closed: nothing of its body is kept. Heads are known without the key that they show, and each request is
judged by the key that it shows itself: so no key is ever compared by its bytes, and who has none finds no known head.
"""

from __future__ import annotations

import re
from typing import ClassVar

from onbudget.serve.access import Access, refused
from onbudget.serve.cors import Origins
from onbudget.serve.exchange import Head
from onbudget.serve.fast import Fast
from onbudget.serve.heads import BEGINS, END, LONGEST, Heads, Known, Seen
from onbudget.serve.protocol import Protocol

_SHOWN = re.compile(rb"\r\n(?:authorization: ?bearer |x-api-key: ?)([!-~]{1,512})(?=\r\n)", re.IGNORECASE)


class KeyedHeads(Heads):
    """Heads that show one key each, in the usual way. All others are left to the parser, and so are wrong keys."""

    def __init__(self, access: Access) -> None:
        super().__init__()
        self._access = access

    def find(self, data: bytes) -> Known | Seen | None:
        """As `Heads.find`, for who may ask."""
        if not data.startswith(BEGINS):
            return None
        end = data.find(END, 0, LONGEST) + len(END)
        shown = _SHOWN.finditer(data, 0, end)
        one = next(shown, None)
        if one is None or next(shown, None) is not None or not self._access.allows(one[1]):
            return None
        first, last = one.span(1)
        found = super().find(data[:first] + data[last:end])
        return found._replace(end=end) if found is not None else None


class Guarded(Protocol):
    """One connection. `access` and `origins` are set on the class, as `service` is."""

    access: ClassVar[Access | None] = None
    origins: ClassVar[Origins | None] = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.access is not None:
            cls.heads = KeyedHeads(cls.access)

    def _quickly(self, head: Head, seen: Seen | None) -> None:
        if self.access is None or self.access.lets(head.values):
            super()._quickly(head, seen)
            return
        self._fast = self.cycle = Fast(head, head.values.get(b"x-request-id"), False)
        self._refuse(refused(head.values))

    def _told(self, head: Head) -> bytes:
        told = super()._told(head)
        return self.origins.told(told, head.values.get(b"origin")) if self.origins is not None else told
