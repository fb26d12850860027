"""Two runs of a load test beside each other as a table, JSON and words. Layout only: `core.versus` decides."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from onbudget.core.summary import Summary
from onbudget.core.units import show_rate, show_seconds
from onbudget.core.versus import MARGIN, POINT, Change, Versus, versus
from onbudget.prove.load import Run

COLUMNS = ("", "first", "second", "change", "95 % sure of", "verdict")
Row = tuple[str, ...]


def compare(before: Run, after: Run, margin: float = MARGIN) -> Versus:
    """What the two say of each other."""
    return versus((before.header, before.summary()), (after.header, after.summary()), margin)


def rows(before: Run, after: Run, told: Versus) -> list[Row]:
    """Figures of both; a change only where it is known how far it can be trusted."""
    one, other = before.summary(), after.summary()
    out: list[Row] = [
        ("offered", *(f"{each.offered} ({_a_second(each.offered, each)})" for each in (one, other)), "", "", ""),
        ("answered", _share(one.answered, one), _share(other.answered, other), "", "", ""),
    ]
    if one.in_budget is not None and other.in_budget is not None:
        good = [_a_second(each.in_budget or 0, each) for each in (one, other)]
        change = told.in_budget
        seen = (_points(change.after - change.before), _between(change, _points), change.word) if change else ("",) * 3
        out.append(("in budget", _share(one.in_budget, one), _share(other.in_budget, other), *seen))
        out.append(("in budget, a second", *good, "", "", ""))
    for name in ("p50", "p95", "p99"):
        times = [_time(getattr(each.latency, name)) if each.word != "unsteady" else "–" for each in (one, other)]
        seen = ("", "", "")
        if name == "p95" and (change := told.p95) is not None:
            seen = (_ratio(change.after / change.before), _between(change, _ratio), change.word)
        out.append((name, *times, *seen))
    return out


def words(told: Versus, margin: float = MARGIN) -> str:
    """The conclusion as a sentence, with what to do where there is none. "It" is the second run."""
    if told.why:
        return f"not to be compared: {told.why}"
    parts = []
    for change, say in ((told.p95, _of_p95), (told.in_budget, _of_share)):
        if change is not None and (change.word == told.word):
            parts.append(say(change, margin))
    more, longest = "", max((one.longer or 0.0 for one in (told.p95, told.in_budget) if one is not None), default=0.0)
    if told.word == "undecided":
        never = all(one is None or one.longer is None for one in (told.p95, told.in_budget))
        more = (
            ". They are too near to each other to be settled by longer runs"
            if never
            else f". Runs about {math.ceil(longest) if longest > 2 else 2} times as long would settle it"
        )
    return f"{told.word}: {'; '.join(parts)}{more}"


def warnings(before: Run, after: Run, told: Versus) -> Iterator[str]:
    """What a reader should know before believing it."""
    if told.differs:
        yield f"the runs were not alike: {'; '.join(told.differs)}"
    for name, run in (("first", before), ("second", after)):
        if run.ending.partial:
            yield f"the {name} run is partial"
    if told.p95 is not None and told.in_budget is None:
        yield "shares in budget are not compared: the runs have no budget in common; --p95 20ms, say, judges both by it"


def to_json(before: Run, after: Run, told: Versus, margin: float) -> dict[str, Any]:
    """The comparison for machines; null for what is infinite or unknown."""
    return {
        "schema": 1,
        "kind": "load-comparison",
        "verdict": told.word,
        "words": words(told, margin),
        "margin": margin,
        "p95_ms": _change(told.p95, 1e3),
        "in_budget": _change(told.in_budget, 1.0),
        "differs": list(told.differs),
        "hashes": [before.header.hash, after.header.hash],
    }


def _change(change: Change | None, scale: float) -> dict[str, Any] | None:
    if change is None:
        return None
    return {
        "first": _finite(change.before * scale),
        "second": _finite(change.after * scale),
        "change_low": _finite(change.change.low),
        "change_high": _finite(change.change.high),
        "verdict": change.word,
        "times_longer": change.longer,
    }


def _finite(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


def _of_p95(change: Change, margin: float) -> str:
    low, high = change.change.low, change.change.high
    if low >= 1:
        told = f"{_size(low)} to {_size(high)} higher"
    elif high <= 1:
        told = f"{_size(high)} to {_size(low)} lower"
    else:
        told = f"{_size(low)} lower to {_size(high)} higher"
    return f"its p95 is {told}{_bound(change, f'{100 * margin:.4g} % higher')}"


def _of_share(change: Change, margin: float) -> str:
    low, high = 100 * change.change.low, 100 * change.change.high
    if low >= 0:
        told = f"{low:.2f} to {high:.2f} % more"
    elif high <= 0:
        told = f"{-high:.2f} to {-low:.2f} % fewer"
    else:
        told = f"{-low:.2f} % fewer to {high:.2f} % more"
    return f"{told} of all requests are in budget{_bound(change, f'{100 * POINT:.4g} % fewer')}"


def _bound(change: Change, allowed: str) -> str:
    """Where a margin made or unmade the verdict."""
    return f" (up to {allowed} counts as no worse)" if change.word in ("undecided", "no worse") else ""


def _size(ratio: float) -> str:
    return f"{100 * abs(ratio - 1):.3g} %" if math.isfinite(ratio) else "any number of %"


def _between(change: Change, show: Callable[[float], str]) -> str:
    low, high = show(change.change.low), show(change.change.high)
    return f"{low.removesuffix(' points')} to {high}"


def _ratio(value: float) -> str:
    """A factor as a change: +12 %, ×2.4 from double on; no bound where it is infinite."""
    if math.isnan(value):
        return "–"
    if not math.isfinite(value):
        return "no bound"
    if value >= 2:
        return f"×{value:.3g}"
    return f"{100 * (value - 1):+.1f} %"


def _points(value: float) -> str:
    return f"{100 * value:+.2f} points"


def _share(part: int, told: Summary) -> str:
    return f"{100 * part / told.offered:.2f} %" if told.offered else "–"


def _a_second(part: int, told: Summary) -> str:
    return f"{show_rate(part / told.seconds)}/s" if told.seconds else "–"


def _time(seconds: float) -> str:
    if math.isnan(seconds):
        return "–"
    return show_seconds(seconds) if math.isfinite(seconds) else "∞"
