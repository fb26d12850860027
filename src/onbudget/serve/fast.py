"""A fast request in the clothes of one of uvicorn's cycles, so that uvicorn's protocol treats it as its own."""

from __future__ import annotations

from onbudget.core.queue import Group
from onbudget.serve.exchange import Head, Refusal


class _Nobody:
    """Stands where uvicorn keeps the event that an ASGI app waits on."""

    def set(self) -> None:
        """Nobody waits."""


_NOBODY = _Nobody()


class Fast:
    """A fast request, with the attributes that uvicorn's protocol touches of its cycles."""

    __slots__ = (
        "chunks",
        "disconnected",
        "group",
        "head",
        "keep_alive",
        "message_event",
        "refused",
        "request_id",
        "response_complete",
        "size",
    )

    def __init__(self, head: Head, request_id: bytes | None, keep_alive: bool) -> None:
        self.head = head
        self.request_id = request_id  # this request's own: the head may be another's as well
        self.keep_alive = keep_alive
        self.chunks: list[bytes] = []
        self.size = 0
        self.group: Group | None = None
        self.refused: Refusal | None = None  # at its head; told once its body has gone by
        self.response_complete = False
        self.disconnected = False
        self.message_event = _NOBODY
