"""Line plots: where points stand, where lines break, and which ticks there are."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from rendering.svg import Bar, Panel, bars, lines, ticks

SVG = "{http://www.w3.org/2000/svg}"


def _dots(svg: str, series: int = 0) -> list[tuple[float, float]]:
    circles = ET.fromstring(svg).iter(f"{SVG}circle")
    return [(float(c.get("cx", "")), float(c.get("cy", ""))) for c in circles if c.get("class") == f"dot-{series}"]


def _plot(points: list[tuple[float, float | None]], *, log: bool = False, x_log: bool = True) -> str:
    return lines(["title"], [Panel("y", {"one": points}, log)], "x", {x: f"{x:g}" for x, _ in points}, x_log=x_log)


@pytest.mark.parametrize(
    ("low", "high", "log", "wanted"),
    [
        (0, 2200, False, [0, 500, 1000, 1500, 2000, 2500]),
        (0, 0.7, False, [0, 0.2, 0.4, 0.6, 0.8]),
        (0, 10, False, [0, 2, 4, 6, 8, 10]),
        (0, 0, False, [0, 0.2]),
        (3, 40, True, [2, 5, 10, 20, 50]),
        (9, 2000, True, [1, 10, 100, 1000, 10000]),
        (5, 5, True, [5, 10]),
    ],
)
def test_ticks_are_round_and_hold_the_values(low: float, high: float, log: bool, wanted: list[float]) -> None:
    """From a round value at or below the lowest to one at or above the highest."""
    assert ticks(low, high, log=log) == pytest.approx(wanted)


def test_equal_ratios_are_equal_distances_on_log_axes() -> None:
    """1, 10, 100 stand at equal steps on x and on y; on linear axes equal differences do."""
    (x1, y1), (x2, y2), (x3, y3) = _dots(_plot([(1, 1), (10, 10), (100, 100)], log=True))
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.02)
    assert y1 - y2 == pytest.approx(y2 - y3, abs=0.02)
    assert y1 > y2
    (x1, y1), (x2, y2), (x3, y3) = _dots(_plot([(1, 1), (2, 2), (3, 3)], x_log=False))
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.02)
    assert y1 - y2 == pytest.approx(y2 - y3, abs=0.02)


def test_a_linear_axis_begins_at_zero() -> None:
    """Twice the value stands twice as high over the bottom, so that nothing looks steeper than it is."""
    svg = _plot([(1, 100), (2, 200)])
    bottom = max(float(n.get("y1", "")) for n in ET.fromstring(svg).iter(f"{SVG}line"))
    (_, low), (_, high) = _dots(svg)
    assert bottom - high == pytest.approx(2 * (bottom - low), abs=0.02)


def test_a_line_breaks_where_a_value_is_missing() -> None:
    """What was infinite is not drawn as if its neighbours met."""
    svg = _plot([(1, 1.0), (2, None), (4, 3.0), (8, 4.0)])
    assert [len((n.get("points") or "").split()) for n in ET.fromstring(svg).iter(f"{SVG}polyline")] == [1, 2]
    assert len(_dots(svg)) == 3


def test_a_log_axis_refuses_what_it_has_no_place_for() -> None:
    """Zero is an error and not a point somewhere."""
    with pytest.raises(ValueError, match="no place for 0"):
        _plot([(0, 1.0), (1, 2.0)])
    with pytest.raises(ValueError, match="no place for 0"):
        _plot([(1, 0.0), (2, 2.0)], log=True)


def test_several_series_are_named_and_one_is_not() -> None:
    """A legend stands where there is a choice to tell."""
    both = Panel("y", {"p50": [(1, 1.0)], "p95": [(1, 2.0)]})
    svg = lines(["title"], [both], "x", {1: "1"})
    kinds = {n.text: n.get("class") for n in ET.fromstring(svg).iter(f"{SVG}text")}
    assert (kinds["p50"], kinds["p95"]) == ("dot-0", "dot-1")
    assert "one" not in {n.text for n in ET.fromstring(_plot([(1, 1.0)])).iter(f"{SVG}text")}


def test_a_label_that_would_cross_the_line_at_100_percent_stands_in_its_bar() -> None:
    """Long bars have their label inside, short ones beside them."""
    groups = [(name, False, [Bar(share, share, share, name)]) for name, share in (("long", 0.97), ("short", 0.1))]
    svg = bars(["title"], "whole", ["s"], groups)
    anchors = [(n.text, n.get("text-anchor")) for n in ET.fromstring(svg).iter(f"{SVG}text")]
    assert ("long", "end") in anchors
    assert ("short", "start") in anchors
    inside = next(n for n in ET.fromstring(svg).iter(f"{SVG}text") if n.text == "long" and n.get("class") == "on")
    assert float(inside.get("x", "")) < 440


def test_words_are_escaped() -> None:
    """A name with markup in it is shown and not obeyed."""
    svg = bars(["a < b & c"], "whole", ["s"], [("<b>", True, [Bar(0.5, 0.5, 0.5, "x")])])
    assert "<b>" in [n.text for n in ET.fromstring(svg).iter(f"{SVG}text")]
