"""The one place where an application's own Python works on requests: before the model, and after it.

Both functions run in a lane's thread, never on the event loop, one item at a time. What they raise is told to the one
request that it was raised for; its batch-mates are answered as if it had not been there.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onbudget.core.errors import BadContent, RequestError, RunFailed, UsageError

log = logging.getLogger("onbudget")


@dataclass(frozen=True, slots=True)
class Seam:
    """`decode`: an item as it was sent (a JSON value, or bytes) → its array; `finish`: an answer → what is sent.

    UsageError for what can't be called in a thread.
    """

    decode: Callable[[Any], Any] | None = None
    finish: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        """Plain functions only."""
        for name in ("decode", "finish"):
            given = getattr(self, name)
            if given is not None and (not callable(given) or inspect.iscoroutinefunction(given)):
                what = "an async function" if callable(given) else f"{given!r}, which can't be called"
                raise UsageError(f"{name} is {what}; give a plain function: it runs in a thread of its own")

    def decoded(self, item: Any, place: str) -> Any:
        """What `decode` makes of an item: BadContent for its ValueError, RunFailed for all else, naming `place`."""
        assert self.decode is not None
        try:
            return self.decode(item)
        except RequestError as error:
            raise type(error)(f"{place}: {error}") if type(error) is BadContent else error  # noqa: B904 - the same one
        except ValueError as error:
            raise BadContent(f"{place}: {error}") from error
        except Exception as error:
            log.exception("decode raised for %s; its request is answered 500", place)
            raise RunFailed(
                f"{place}: it could not be decoded: {type(error).__name__}; the server's log has it"
            ) from error

    def finished(self, answer: Any, place: str) -> Any:
        """What `finish` makes of an answer; a RunFailed in its place where it raised."""
        if self.finish is None or isinstance(answer, RunFailed):
            return answer
        try:
            return self.finish(answer)
        except Exception as error:
            log.exception("finish raised for %s; its request is answered 500", place)
            failed = RunFailed(f"{place}: its answer could not be finished: {type(error).__name__}; the log has it")
            failed.__cause__ = error
            return failed
