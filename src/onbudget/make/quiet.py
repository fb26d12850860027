"""Keep a noisy library's warnings, prints and log lines from the user, and have them at hand when it fails."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from types import TracebackType

_FAMILIES = ("torch", "onnxscript", "onnx_ir", "onnx")  # loggers of these names, and below them


class Quiet:
    """A context that swallows Python warnings, stdout, stderr and the log lines of `_FAMILIES`, and remembers them.

    `text` is everything printed and logged; `warned` holds the warnings. Not for use by two threads at once, because
    Python's warnings and standard streams belong to the process.
    """

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._buffer = io.StringIO()
        self.warned: list[warnings.WarningMessage] = []

    @property
    def text(self) -> str:
        """All that was printed, logged or warned, in that order."""
        return self._buffer.getvalue() + "".join(f"{w.category.__name__}: {w.message}\n" for w in self.warned)

    def hear(self, text: str) -> None:
        """Add something that was not printed, a traceback for one."""
        self._buffer.write(text)

    def __enter__(self) -> Quiet:
        self.warned = self._stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        self._stack.enter_context(contextlib.redirect_stdout(self._buffer))
        self._stack.enter_context(contextlib.redirect_stderr(self._buffer))
        handler = logging.StreamHandler(self._buffer)
        for logger in _loggers():
            # torch's handlers keep the stderr of its first import, so redirecting the stream would not reach them
            self._stack.callback(_restore, logger, list(logger.handlers), logger.propagate)
            logger.handlers[:] = [handler]
            logger.propagate = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def _loggers() -> list[logging.Logger]:
    """The heads of the families, and every logger below them that has handlers of its own."""
    known = [logger for logger in logging.root.manager.loggerDict.values() if isinstance(logger, logging.Logger)]
    below = [one for one in known if one.handlers and one.name.startswith(tuple(f"{name}." for name in _FAMILIES))]
    return [logging.getLogger(name) for name in _FAMILIES] + below


def _restore(logger: logging.Logger, handlers: list[logging.Handler], propagate: bool) -> None:
    logger.handlers[:] = handlers
    logger.propagate = propagate
