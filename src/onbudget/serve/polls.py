"""How long has a request lain unread? The event loop's own rounds, so that the queue in the sockets is no blind spot.

One round of the loop: it polls, reads what came (`read`, once a segment), then does the rest of its work, a batch too
where the lane is inline, and polls again. What comes while a round is under way is read in the next one. So a request
that is read at once after a busy round may be as old as that round; one that a waiting loop was woken for is new.
"""

from __future__ import annotations

import asyncio
import time

clock = time.monotonic
AT_ONCE = 0.0003  # seconds: the loop polled and found something that was there already


class Polls:
    """Ages of what is read, by the loop's rounds; `lag` is how long the last whole round took, in seconds."""

    __slots__ = ("_began", "_behind", "_ended", "_loop", "_open", "lag")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._open = False  # whether a round is under way
        self._began = self._ended = clock()
        self._behind = 0.0  # how old what this round reads may have been when it began
        self.lag = 0.0

    def read(self) -> float:
        """The most seconds that what is being read now may have lain unread."""
        now = clock()
        if not self._open:
            self._open = True
            # Work that is queued now runs after this round's reads and before the next poll.
            self._loop.call_soon(self.end)
            self._behind = now - self._began if now - self._ended < AT_ONCE else 0.0
            self._began = now
        return self._behind + now - self._began

    def end(self) -> None:
        """The round's work is done and the loop polls next; an inline lane calls it again after its batch."""
        self._ended = clock()
        self.lag = self._ended - self._began
        self._open = False
