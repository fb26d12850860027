"""A page as one HTML file that loads nothing: what the pages of a plan and of load tests share.

Rules of this file. All that is said is plain HTML; the charts say it again for the eye and need JavaScript. What comes
from a record passes `text`, or is JSON without `<`. The policy in the head allows the page's own scripts and styles by
their hashes and nothing else, so that what slips through all the same cannot run.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from onbudget.core.confidence import Interval
from onbudget.core.units import show_seconds

_WEB = Path(__file__).resolve().parents[1] / "web"
NONE = "–"
_CLASSES = dict.fromkeys(("met", "held", "better", "no worse"), "met")
_CLASSES |= dict.fromkeys(("missed", "worse"), "missed")
_CLASSES |= dict.fromkeys(("predicted to fit", "predicted to miss", "measured", ""), "")
# columns of no numbers
_TEXTS = ("configuration", "policy", "model", "verdict", "lanes × threads", "of", "note", "run", "reason", "fact")


def document(title: str, body: Iterable[str], charts: Mapping[str, Any]) -> str:
    """The whole file: styles, scripts and the charts' data inside, nothing from elsewhere."""
    style = _asset("uplot/uPlot.min.css.gz") + "\n" + _asset("page/page.css")
    licence = f"/*! {_asset('uplot/LICENSE')} */\n"
    scripts = [licence + _asset("uplot/uPlot.iife.min.js.gz"), _asset("page/charts.js")]
    data = json.dumps(charts, allow_nan=False).replace("<", "\\u003c")
    allowed = f"style-src {_hash(style)}; script-src {' '.join(map(_hash, scripts))}; img-src data:"
    made = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta http-equiv="Content-Security-Policy" '
        f"content=\"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">',
        f"<title>{text(title)}</title>",
        f"<style>{style}</style></head>\n<body>",
        *body,
        f'<script type="application/json" id="charts">{data}</script>',
        *(f"<script>{script}</script>" for script in scripts),
        "</body></html>\n",
    ]
    return "\n".join(made).encode("utf-8", "replace").decode()  # a file's name may be no text


def text(value: object) -> str:
    """Anything as text that is no markup, in an attribute too."""
    return html.escape(str(value), quote=True)


def time(seconds: float | None) -> str:
    """A measured time; "no bound" where it is infinite, a dash where it is not known."""
    if seconds is None or math.isnan(seconds):
        return NONE
    return show_seconds(seconds) if math.isfinite(seconds) else "no bound"


def between(interval: Interval | None) -> str:
    """Where a time lies; a dash where that is not known."""
    if interval is None:
        return NONE
    if not math.isfinite(interval.low):
        return "no bound"
    return f"{time(interval.low)} to {time(interval.high)}"


def percent(share: float) -> str:
    """Rounded so that only all is 100 % and only none is 0 %."""
    return f"{share * 100:.0f} %" if share in (0, 1) else f"{min(99.9, max(0.1, share * 100)):.1f} %"


def cards(told: Iterable[tuple[str, str, str]]) -> str:
    """Figures to see first: name, value, what to know of it."""
    made = (
        f'<div><dt>{text(name)}</dt><dd class="value">{text(value)}</dd><dd>{text(more)}</dd></div>'
        for name, value, more in told
    )
    return f'<dl class="facts">{"".join(made)}</dl>'


def notes(told: Iterable[tuple[str, bool]]) -> str:
    """Sentences, those in doubt marked and first."""
    marks = {True: ' class="doubt"><strong>In doubt:</strong> ', False: ">"}
    items = "".join(
        f"<li{marks[doubt]}{text(words)}</li>\n" for words, doubt in sorted(told, key=lambda one: not one[1])
    )
    return f'<ul class="notes">{items}</ul>'


def figure(name: str, caption: str, height: int) -> str:
    """Where the chart of this name is drawn."""
    told = text(caption)
    plot = (
        f'<div class="plot" id="{text(name)}" data-height="{height}" tabindex="0" role="img" '
        f'aria-label="{told} The tables say the same.">'
    )
    return f"<figure><figcaption>{told}</figcaption>{plot}</div></figure>"


def more(name: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table that opens on demand."""
    return f"<details><summary>{text(name)} in numbers</summary>{table(name, columns, rows)}</details>"


def table(name: str, columns: Sequence[str], rows: Sequence[Sequence[object]], classes: Sequence[str] = ()) -> str:
    """A table in a box of its own that scrolls; `classes` are the rows'."""
    kinds = ["text" if column in _TEXTS else "" for column in columns]
    head = "".join(f'<th scope="col" class="{kind}">{text(c)}</th>' for kind, c in zip(kinds, columns, strict=True))
    body = ""
    for row, marked in zip(rows, classes or [""] * len(rows), strict=True):
        cells = list(zip(columns, kinds, row, strict=True))
        body += f'<tr class="{marked}">'
        for column, kind, value in cells:
            word = " " + _CLASSES.get(str(value), "unsure") if column == "verdict" else ""
            body += f'<td class="{kind}{word}">{text(value)}</td>'
        body += "</tr>\n"
    box = f'<div class="scroll" tabindex="0" role="region" aria-label="{text(name)}">'
    return f"{box}<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"


def _asset(name: str) -> str:
    found = (_WEB / name).read_bytes()
    return (gzip.decompress(found) if name.endswith(".gz") else found).decode()


def _hash(inline: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'"
