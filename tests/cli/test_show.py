"""What a person sees on a terminal, and what a pipe gets."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

from onbudget.cli import show

ROWS = [("quiet", 1.5, "20 ms"), ("peak", 120, None), ("[red]x", 3, "7 ms")]


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_aligned_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    """In a pipe a table is plain lines: words on the left, numbers on the right, nothing drawn."""
    show.table("load", ("name", "rate", "p95"), ROWS)
    assert capsys.readouterr().out.splitlines() == [
        "load",
        "name    rate    p95",
        "------  ----  -----",
        "quiet    1.5  20 ms",
        "peak     120",
        "[red]x     3   7 ms",
    ]


def test_an_empty_table_still_shows_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """A table without rows prints its header."""
    show.table("", ("a", "bb"), [])
    assert capsys.readouterr().out == "a  bb\n-  --\n"


def test_a_terminal_gets_a_drawn_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the table is drawn, brackets in cells are text, and NO_COLOR removes every colour."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Screen()
    show.table("load", ("name", "rate", "p95"), ROWS, file=screen)
    text = screen.getvalue()
    assert "╭" in text
    assert "[red]x" in text
    assert "\x1b[3" not in text.replace("\x1b[3m", "")  # 3m is italic; 30 to 39 are colours


def test_a_dumb_terminal_is_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """TERM=dumb cannot be drawn on."""
    monkeypatch.setenv("TERM", "dumb")
    screen = Screen()
    show.table("", ("a",), [(1,)], file=screen)
    assert screen.getvalue() == "a\n-\n1\n"


def test_a_crooked_row_is_refused() -> None:
    """A row with a missing cell is a mistake of ours, told at once."""
    with pytest.raises(ValueError, match="2 cells in a table of 3 columns"):
        show.table("", ("a", "b", "c"), [(1, 2)])


def test_notes_and_warnings_leave_stdout_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Only results reach stdout; `data` is one JSON document."""
    show.note("hello")
    show.warn("careful")
    show.data({"p95": "20 ms ≤"})
    out, err = capsys.readouterr()
    assert err == "hello\nwarning: careful\n"
    assert json.loads(out) == {"p95": "20 ms ≤"}


def test_a_warning_is_coloured_only_on_a_terminal_that_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal sees a yellow word, unless NO_COLOR is set."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    show.warn("careful")
    monkeypatch.setenv("NO_COLOR", "1")
    show.warn("again")
    assert screen.getvalue() == "\x1b[33mwarning:\x1b[0m careful\nwarning: again\n"


def test_progress_in_a_pipe_is_rate_limited(capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe gets the first line at once, at most one in five seconds after it, and the last word always."""
    now = 0.0
    with show.Progress("step 0", clock=lambda: now) as line:
        for i in range(1, 13):
            now = float(i)
            line.update(f"step {i}")
    assert capsys.readouterr().err.splitlines() == ["step 0", "step 5", "step 10", "step 12"]


def test_progress_on_a_terminal_is_one_line_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal's line is rewritten, cut to the width, and wiped at the end, leaving what was to stay."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "10")
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    now = 0.0
    with show.Progress("one", clock=lambda: now) as line:
        line.update("too soon")
        now = 1.0
        line.update("a line that is too long")
        line.done("ready")
    assert screen.getvalue() == "\r\x1b[Kone\r\x1b[Ka line th\r\x1b[Kready\n"


def test_quiet_progress_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """With --json nobody is watching."""
    with show.progress("one", quiet=True) as line:
        line.update("two")
        line.done("three")
    assert capsys.readouterr() == ("", "")


def test_importing_it_does_not_import_rich() -> None:
    """Cold start: rich is loaded only when a table is drawn on a terminal."""
    code = "import sys, onbudget.cli.show as s; s.table('', ('a',), [(1,)]); sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0
