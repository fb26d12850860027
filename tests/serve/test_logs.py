"""`--log-format json`: one object a line, with what a record carries and nothing that a client sent."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from datetime import datetime, timedelta
from typing import Any

import pytest

from onbudget.serve.logs import JsonLines


def line(level: int = logging.INFO, text: str = "told", *values: object, **extra: Any) -> dict[str, Any]:
    record = logging.getLogger("a.b").makeRecord("a.b", level, "f.py", 1, text, values, None, None, extra)
    written = JsonLines().format(record)
    assert "\n" not in written
    assert written.isascii()
    told: dict[str, Any] = json.loads(written)
    return told


def test_a_record_is_time_level_logger_event_and_fields() -> None:
    """The time is ISO 8601 in UTC; fields keep their types, and what JSON has no form for is text."""
    told = line(logging.WARNING, "%d lanes\nat most", 2, lanes=2, url=None, path=logging.Formatter)
    assert datetime.fromisoformat(told.pop("time")).utcoffset() == timedelta(0)
    assert told.pop("path").startswith("<class")
    assert told == {"level": "warning", "logger": "a.b", "event": "2 lanes\nat most", "lanes": 2, "url": None}


def test_a_field_does_not_take_the_place_of_the_line_s_own() -> None:
    """A field called `time` or `logger` stands beside it, with an underscore."""
    told = line(time="later", logger=7, event="other")
    assert (told["time_"], told["logger_"], told["event_"]) == ("later", 7, "other")
    assert (told["logger"], told["event"]) == ("a.b", "told")


def test_what_is_no_number_in_json_stays_readable_for_strict_parsers() -> None:
    """NaN and infinity are told as text: a line that a strict parser refuses would be lost."""
    told = line(share=float("nan"), deep={"most": float("inf")})
    assert (told["share"], told["deep"]) == ("nan", "{'most': inf}")


def test_everything_that_a_process_says_is_a_line() -> None:
    """Records of any logger with their tracebacks, warnings, a thread's end and the process's own."""
    program = """
import logging, threading, warnings
from onbudget.serve.logs import use_json
use_json()
logging.getLogger("uvicorn.error").info("up", extra={"color_message": "\\x1b[1mup"})
logging.getLogger("onbudget").debug("too quiet")
logging.getLogger("else").info("too quiet")
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("onbudget").exception("a run failed")
warnings.warn("old", DeprecationWarning, stacklevel=1)
thread = threading.Thread(target=lambda: [][1], name="lane-0")
thread.start()
thread.join()
raise KeyError("the end")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    told = [json.loads(text) for text in done.stderr.splitlines()]
    assert [(one["logger"], one["level"]) for one in told] == [
        ("uvicorn.error", "info"),
        ("onbudget", "error"),
        ("py.warnings", "warning"),
        ("onbudget", "critical"),
        ("onbudget", "critical"),
    ]
    assert "color_message" not in told[0]
    assert told[1]["exception"].endswith("ZeroDivisionError: division by zero")
    assert told[3]["in_thread"] == "lane-0"
    assert "IndexError" in told[3]["exception"]
    assert "KeyError: 'the end'" in told[4]["exception"]
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.parametrize("text", ["ünïcode ✓", "a\x00b\x1b[31m", 'say "so"'])
def test_any_text_stays_one_line(text: str) -> None:
    """Line ends, quotes and control characters of a message are escaped, so that nobody can forge a line."""
    assert line(logging.INFO, "%s", text + "\n{}")["event"] == text + "\n{}"
