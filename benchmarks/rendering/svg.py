"""Bars and lines as SVG text that follows the reader's light or dark mode.

Written by hand, because the colours of both modes must stand in one file as CSS classes, which plotting libraries that
write colours into each shape can't do; and the bytes are the same on every machine, with nothing to install.
A drawing is 440 units wide and its smallest letters 13, so that on a telephone they are still 10 pixels high.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH = 440
MARGIN = 16
LETTER = 7.2  # mean width of a letter of size 13: enough to see what fits where, nothing hangs on it

# class → (property, in light mode, in dark mode); the page's own background, in case it does not follow the same switch
COLOURS = {
    "page": ("fill", "#ffffff", "#0d1117"),
    "halo": ("stroke", "#ffffff", "#0d1117"),
    "edge": ("stroke", "#d1d9e0", "#3d444d"),
    "text": ("fill", "#1f2328", "#f0f6fc"),
    "soft": ("fill", "#59636e", "#9198a1"),
    "grid": ("stroke", "#d1d9e0", "#3d444d"),
    "mark": ("stroke", "#1f2328", "#f0f6fc"),
    "ours": ("fill", "#0969da", "#4493f8"),
    "ours-pale": ("fill", "#9ec9f7", "#1f4a80"),
    "other": ("fill", "#818b98", "#8b949e"),
    "other-pale": ("fill", "#cdd4dc", "#4a525c"),
    "on": ("fill", "#ffffff", "#0d1117"),
    "line-0": ("stroke", "#0969da", "#4493f8"),
    "line-1": ("stroke", "#bc4c00", "#f0883e"),
    "line-2": ("stroke", "#1a7f37", "#3fb950"),
    "dot-0": ("fill", "#0969da", "#4493f8"),
    "dot-1": ("fill", "#bc4c00", "#f0883e"),
    "dot-2": ("fill", "#1a7f37", "#3fb950"),
}
FONT = (
    "text{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}.head{font-size:15px;font-weight:600}"
    ".halo{stroke-width:4px;paint-order:stroke}"  # a gap in the grid around letters that stand on it
)


def _style() -> str:
    light, dark = (
        "".join(f".{name}{{{colours[0]}:{colours[which]}}}" for name, colours in COLOURS.items()) for which in (1, 2)
    )
    return f"<style>{FONT}{light}@media(prefers-color-scheme:dark){{{dark}}}</style>"


def num(value: float) -> str:
    """A coordinate, to a hundredth."""
    return f"{round(value, 2):g}"


def text(x: float, y: float, words: str, kind: str = "text", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{num(x)}" y="{num(y)}" text-anchor="{anchor}">{escape(words)}</text>'


def rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{num(x)}" y="{num(y)}" width="{num(width)}" height="{num(height)}"/>'


def line(kind: str, start: tuple[float, float], end: tuple[float, float], dashes: str = "") -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    (x1, y1), (x2, y2) = start, end
    return f'<line class="{kind}" x1="{num(x1)}" y1="{num(y1)}" x2="{num(x2)}" y2="{num(y2)}"{dashed}/>'


def drawing(title: str, height: float, parts: Sequence[str]) -> str:
    """A whole file: `title` is what a screen reader says and what shows beside the pointer."""
    size = f'width="{WIDTH}" height="{num(height)}" viewBox="0 0 {WIDTH} {num(height)}"'
    card = f'<rect class="page edge" x="0.5" y="0.5" width="{WIDTH - 1}" height="{num(height - 1)}" rx="6"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>'
    return "\n".join([head, f"<title>{escape(title)}</title>", _style(), card, *parts, "</svg>", ""])


def heading(lines: Sequence[str]) -> tuple[list[str], float]:
    """The title's lines, the first one bold, and the height below which there is room."""
    parts = [text(MARGIN, 28, lines[0], "text head")]
    parts += [text(MARGIN, 28 + 19 * row, words, "soft") for row, words in enumerate(lines[1:], 1)]
    return parts, 28 + 19 * len(lines)


# ---- bars -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """`share` of the whole that is 1, from `low` to `high` in the single runs; `label` stands at its end."""

    share: float
    low: float
    high: float
    label: str


LEFT = 112  # where bars begin, right of their names
THICK, GAP, BETWEEN = 19, 2, 14


def bars(
    heads: Sequence[str],
    whole: str,
    series: Sequence[str],
    groups: Sequence[tuple[str, bool, Sequence[Bar]]],
) -> str:
    """Horizontal bars as shares of a `whole`, which is the dashed line at 100 %.

    Each group is (name, whether it is ours, a bar for each of the one or two `series`); the second series is paler.
    A thin line over a bar goes from the lowest to the highest of its runs.
    """
    parts, top = heading(heads)
    for index, name in enumerate(series):
        x = MARGIN + index * 130
        for shift, owner in enumerate(("ours", "other")):
            parts.append(rect(_shade(owner, index), x + 15 * shift, top - 8, 13, 13))
        parts.append(text(x + 35, top + 3, name, "soft"))
    parts.append(text(WIDTH - MARGIN, top + 32, whole, "text", "end"))
    top += 42
    pitch = len(series) * (THICK + GAP) - GAP + BETWEEN
    bottom = top + pitch * len(groups)
    scale = WIDTH - 2 * MARGIN - LEFT + MARGIN
    for quarter in range(5):
        x = LEFT + scale * quarter / 4
        last = quarter == 4
        parts.append(line("mark" if last else "grid", (x, top), (x, bottom), "5 3" if last else ""))
        parts.append(text(x, bottom + 17, f"{25 * quarter} %", "soft", "end" if last else "middle"))
    for row, (name, mine, values) in enumerate(groups):
        y = top + BETWEEN / 2 + pitch * row
        middle = y + (pitch - BETWEEN) / 2
        parts.append(text(LEFT - 8, middle + 4.5, name, "text head" if mine else "text", "end"))
        for index, bar in enumerate(values):
            parts += _bar(_shade("ours" if mine else "other", index), y + index * (THICK + GAP), scale, bar)
    return drawing(" ".join(heads), bottom + 30, parts)


def _shade(owner: str, index: int) -> str:
    return owner if index == 0 else f"{owner}-pale"


def _bar(kind: str, y: float, scale: float, bar: Bar) -> list[str]:
    end = LEFT + scale * bar.share
    parts = [rect(kind, LEFT, y, scale * bar.share, THICK)]
    if bar.high > bar.low:
        middle = y + THICK / 2
        parts.append(line("mark", (LEFT + scale * bar.low, middle), (LEFT + scale * bar.high, middle)))
        end = max(end, LEFT + scale * bar.high)
    inside = end + 6 + LETTER * len(bar.label) > LEFT + scale
    if inside:  # left of the runs' line, which would cross the letters
        colour = "text" if kind.endswith("-pale") else "on"
        return [*parts, text(LEFT + scale * min(bar.low, bar.share) - 6, y + 14, bar.label, colour, "end")]
    return [*parts, text(end + 6, y + 14, bar.label, "text halo")]


# ---- lines ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Panel:
    """One plot of several series over the same x: name → (x, y), where a y of None breaks the line."""

    title: str
    series: dict[str, list[tuple[float, float | None]]]
    log: bool = False


TALL, ROOM = 120, 58  # of a panel, and between one and the next
INSET = 16  # of the first and the last point, so that the words below them have room
FEW = 3  # decades in which a log axis has ticks at 2 and 5 too
INDENT = 62  # where a panel begins, right of its ticks


def ticks(low: float, high: float, *, log: bool) -> list[float]:
    """Round values that hold [low, high] between the first and the last.

    Linear ones are steps of 1, 2 or 5. On a log axis they are 1, 2, 5, 10, …, or decades where those would be many.
    """
    if log:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        factors = (1, 2, 5) if len(powers) <= FEW else (1,)
        every = [factor * 10.0**power for power in powers for factor in factors]
        below = max(value for value in every if value <= low)
        above = next((value for value in every if value >= high and value > below), 10 * below)
        return [*(value for value in every if below <= value < above), above]
    span = (high - low) or abs(high) or 1.0
    unit = 10.0 ** math.floor(math.log10(span / 5))
    step = next(unit * factor for factor in (1, 2, 5, 10) if span / (unit * factor) <= 5)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(step * index, 10) for index in range(first, max(last, first + 1) + 1)]


def lines(
    heads: Sequence[str], panels: Sequence[Panel], x_name: str, x_ticks: dict[float, str], *, x_log: bool = True
) -> str:
    """Panels one below the other, with the same x; `x_ticks` are the values that get a tick, and what it says.

    A linear y begins at 0, so that a line that looks steep is. ValueError for a value that a log axis has no place for.
    """
    if x_log and min(x_ticks) <= 0:
        raise ValueError(f"a log axis has no place for {min(x_ticks)}")
    low, high = (math.log(x) if x_log else x for x in (min(x_ticks), max(x_ticks)))
    wide = WIDTH - INDENT - MARGIN - 2 * INSET

    def across(x: float) -> float:
        return INDENT + INSET + wide * ((math.log(x) if x_log else x) - low) / ((high - low) or 1)

    parts, top = heading(heads)
    for panel in panels:
        top += ROOM - 22
        parts += _panel(panel, top, across, x_ticks)
        top += TALL + 22
    parts.append(text(WIDTH - MARGIN, top + 12, x_name, "soft", "end"))
    return drawing(" ".join(heads), top + 26, parts)


def _panel(panel: Panel, top: float, across: Callable[[float], float], x_ticks: dict[float, str]) -> list[str]:
    known = [y for points in panel.series.values() for _, y in points if y is not None]
    if panel.log and min(known, default=1) <= 0:
        raise ValueError(f"{panel.title}: a log axis has no place for {min(known)}")
    marks = ticks(min(known, default=1) if panel.log else 0, max(known, default=1), log=panel.log)
    low, high = (math.log(y) if panel.log else y for y in (marks[0], marks[-1]))

    def up(y: float) -> float:
        return top + TALL - TALL * ((math.log(y) if panel.log else y) - low) / (high - low)

    parts = [text(MARGIN, top - 12, panel.title)]
    for y in marks:
        parts.append(line("grid", (INDENT, up(y)), (WIDTH - MARGIN, up(y))))
        parts.append(text(INDENT - 6, up(y) + 4.5, f"{y:,.10g}", "soft", "end"))
    parts += [text(across(x), top + TALL + 18, words, "soft", "middle") for x, words in x_ticks.items()]
    right = float(WIDTH - MARGIN)
    for index, (name, points) in reversed(list(enumerate(panel.series.items()))):
        if len(panel.series) > 1:
            parts.append(text(right, top - 12, name, f"dot-{index}", "end"))
            right -= LETTER * len(name) + 14
        for stretch in _stretches(points):
            path = " ".join(f"{num(across(x))},{num(up(y))}" for x, y in stretch)
            parts.append(f'<polyline class="line-{index}" points="{path}" fill="none" stroke-width="2"/>')
            parts += [
                f'<circle class="dot-{index}" cx="{num(across(x))}" cy="{num(up(y))}" r="3.5"/>' for x, y in stretch
            ]
    return parts


def _stretches(points: Sequence[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    """Neighbours that are there, without those that are not."""
    found: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if y is None:
            found.append([])
        else:
            found[-1].append((x, y))
    return [stretch for stretch in found if stretch]
