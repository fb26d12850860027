"""`--log-format json`: all that a server says, one JSON object a line on stderr.

There is no line for each request: `/metrics` and `/status` count them. Bodies and headers are never logged.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

LOG = logging.getLogger("onbudget")
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}  # the last is uvicorn's
_OWN = ("time", "level", "logger", "event", "exception", "stack")


class JsonLines(logging.Formatter):
    """A record as one line: `time` (ISO 8601, UTC), `level`, `logger`, `event`, what was given as `extra`, `exception`.

    A field of `extra` that has one of these names gets an underscore behind it; values that JSON has no form for are
    told by `str`. A line is ASCII, whatever the stream's encoding is.
    """

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        for name, value in vars(record).items():
            if name not in _USUAL:
                told[f"{name}_" if name in _OWN else name] = value
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            told["stack"] = record.stack_info
        try:
            return json.dumps(told, default=str, allow_nan=False)
        except ValueError:  # NaN or infinity: a collector that is strict would lose the line
            plain = {name: value if isinstance(value, str | int | None) else str(value) for name, value in told.items()}
            return json.dumps(plain)


def use_json() -> None:
    """Send all records, warnings and uncaught exceptions to stderr as lines of JSON, for a server's process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    for name in ("onbudget", "uvicorn"):
        logging.getLogger(name).setLevel(logging.INFO)
    logging.captureWarnings(True)
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    LOG.critical("the server ends by an exception that nobody caught", exc_info=(kind, error, trace))


def _uncaught_in_thread(told: threading.ExceptHookArgs) -> None:
    if told.exc_value is not None and told.exc_type is not SystemExit:
        thread = told.thread.name if told.thread else "?"
        LOG.critical(
            "a thread ended by an exception that nobody caught",
            exc_info=(told.exc_type, told.exc_value, told.exc_traceback),
            extra={"in_thread": thread},
        )
