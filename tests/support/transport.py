"""A transport without a socket."""

from __future__ import annotations

import asyncio
from typing import Any


class Wire(asyncio.Transport):
    """Keeps what a protocol writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...
