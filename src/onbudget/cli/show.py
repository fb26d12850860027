"""What a person sees: tables, notes, warnings and one line of progress. The only file that knows rich.

Results go to stdout; everything else (notes, warnings, progress) goes to stderr, so that `--json` and pipes stay clean.
On a terminal a table is drawn; in a pipe it is aligned plain text. `NO_COLOR` and `TERM=dumb` are honoured.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, TextIO

_PLAIN_EVERY_S = 5.0  # in a pipe: at most one line of progress in this time
_DRAWN_EVERY_S = 0.05  # on a terminal: at most one redraw in this time


def is_terminal(file: TextIO) -> bool:
    """Whether `file` is a screen that can be redrawn (a terminal, and not TERM=dumb)."""
    return file.isatty() and os.environ.get("TERM") != "dumb"


def _coloured(file: TextIO) -> bool:
    return is_terminal(file) and not os.environ.get("NO_COLOR")


def _is_number(cell: str) -> bool:
    return cell[:1].isdigit() or (cell[:1] in "-+±≤≥<>~.–—" and (cell[1:2].isdigit() or len(cell) == 1))


def _right_aligned(rows: Sequence[Sequence[str]], column: int) -> bool:
    """A column whose every filled cell begins like a number is aligned on its right."""
    filled = [row[column] for row in rows if row[column]]
    return bool(filled) and all(_is_number(cell) for cell in filled)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, file: TextIO | None = None) -> None:
    """Print a table (stdout unless `file` says otherwise): drawn on a terminal, aligned plain text in a pipe.

    Cells are shown by `str`; None is shown empty. ValueError where a row has not one cell a column.
    """
    out = sys.stdout if file is None else file
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    for row in cells:
        if len(row) != len(columns):
            raise ValueError(f"a row of {len(row)} cells in a table of {len(columns)} columns: {row}")
    right = [_right_aligned(cells, i) for i in range(len(columns))]
    if is_terminal(out):
        _draw(title, columns, cells, right, out)
    else:
        out.write(_plain(title, columns, cells, right))
        out.flush()


def _draw(
    title: str, columns: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool], out: TextIO
) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=Text(title) if title else None, title_justify="left", box=box.ROUNDED, title_style="bold")
    for name, is_right in zip(columns, right, strict=True):
        drawn.add_column(Text(name), justify="right" if is_right else "left", overflow="fold")
    for row in cells:
        drawn.add_row(*(Text(cell) for cell in row))  # Text: a cell with [brackets] is not markup
    Console(file=out, no_color=not _coloured(out)).print(drawn)


def _plain(title: str, columns: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    widths = [max(len(name), *(len(row[i]) for row in cells), 0) for i, name in enumerate(columns)]

    def line(row: Sequence[str]) -> str:
        padded = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True))
        return "  ".join(padded).rstrip()

    head = [title] if title else []
    return "\n".join([*head, line(columns), line(["-" * w for w in widths]), *map(line, cells)]) + "\n"


def say(text: str) -> None:
    """One line of a command's result, on stdout."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def data(value: Any) -> None:
    """A command's result for machines (`--json`): one JSON document on stdout."""
    say(json.dumps(value, ensure_ascii=False, allow_nan=False))


def note(text: str) -> None:
    """One line on stderr: what happened, for a person."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def warn(text: str) -> None:
    """One line on stderr that a person should act on."""
    word = "\x1b[33mwarning:\x1b[0m" if _coloured(sys.stderr) else "warning:"
    note(f"{word} {text}")


class Progress:
    """One line that tells what is going on, on stderr; a context manager.

    On a terminal the line is rewritten and is gone at the end; in a pipe a plain line appears at once, then at most one
    in five seconds, and the last one always. `quiet` shows nothing at all.
    """

    def __init__(self, text: str, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = sys.stderr
        self._quiet = quiet
        self._drawn = is_terminal(self._file)
        self._clock = clock
        self._last = -float("inf")
        self._pending = ""
        self.update(text)

    def update(self, text: str) -> None:
        """Say what is going on now; cheap enough to call often, because most calls only remember the text."""
        self._pending = text
        now = self._clock()
        if not self._quiet and now - self._last >= (_DRAWN_EVERY_S if self._drawn else _PLAIN_EVERY_S):
            self._last = now
            self._write()

    def _write(self) -> None:
        text, self._pending = self._pending, ""
        if not text:
            return
        if self._drawn:
            room = shutil.get_terminal_size().columns - 1
            self._file.write("\r\x1b[K" + text.replace("\n", " ")[:room])
        else:
            self._file.write(text + "\n")
        self._file.flush()

    def done(self, text: str = "") -> None:
        """End it: the drawn line is wiped; `text`, where there is one, stays behind as a plain line."""
        if self._quiet:
            return
        if self._drawn:
            self._file.write("\r\x1b[K")
        else:
            self._write()
        if text:
            self._file.write(text + "\n")
        self._file.flush()
        self._quiet = True  # done twice says nothing twice

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.done()


def progress(text: str, *, quiet: bool = False) -> Progress:
    """Start a line of progress: `with progress("exporting") as line: line.update("checking batch 3")`."""
    return Progress(text, quiet=quiet)
