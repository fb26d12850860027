"""Tables and plots are what the records say, and nobody can type them by hand."""

from __future__ import annotations

import json
import re
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import render
from rendering import goodput, growth, tables, yardstick
from rendering.records import Record, fixed, percent, signed

from onbudget.core.errors import RecordError, UsageError

ROOT = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"


def _run(peer: str, rates: tuple[float, float], bare: float = 4000.0, form: str = "tile-json", **more: Any) -> Any:
    """A yardstick's run with goodput at 25 and 10 ms."""
    budgets = zip(("25", "10"), rates, strict=True)
    return {
        "peer": peer,
        "workload": "tile",
        "format": form,
        "note": "",
        "variant": {},
        "when": "2026-12-03T09:00:00",
        "physical": {"best": bare},
        "goodput": {budget: {"rate": rate, "ratio": rate / bare} for budget, rate in budgets},
        "quiet": {"p50": 1.0, "p95": 2.0},
        "overload": {"in_budget_rate": rates[0] / 2, "errors": 1, "rejected": 2, "n": 10},
        "cold_s": 1.0,
        "rss_mb": 100,
        "trials": [
            {"budget_ms": 25.0, "foreign": 0.0, "steal": 0.0},
            {"budget_ms": 10.0, "foreign": 0.0, "steal": 0.0},
        ],
        **more,
    }


def _peers(*runs: Any, **more: Any) -> Record:
    machine = {"cpu": "Intel(R) Xeon(R) Processor", "cores": 2, "kernel": "6.1", "python": "3.11.7"}
    return Record("peers-tile-2026-12-03", {"machine": machine, "records": list(runs), "failed": {}, **more})


THREE = _peers(
    _run("plain", (700, 600)),
    _run("mosec", (1000, 400)),
    _run("onbudget", (2400, 2000)),
    _run("onbudget", (2000, 1800)),
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What is rendered, in a folder that a test may change."""
    for name in render.PAGES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name in (render.RESULTS, "docs/images"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


def _bars(svg: str) -> list[tuple[str, float]]:
    """(class, width) of the bars, without the swatches of the legend."""
    rects = ET.fromstring(svg).iter(f"{SVG}rect")
    every = [(r.get("class", ""), float(r.get("width", "")), r.get("height")) for r in rects]
    return [(kind, width) for kind, width, height in every if height == "19"]


def _texts(svg: str) -> list[str]:
    return [node.text or "" for node in ET.fromstring(svg).iter(f"{SVG}text")]


# ---- the pages ------------------------------------------------------------------------------------------------------


def test_the_pages_say_what_the_records_say(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing would change if tables and plots were rendered now; `make figures` mends it."""
    assert render.main(["--check"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("name", render.PAGES)
def test_no_numbers_stand_in_a_table_outside_of_a_place(name: str) -> None:
    """A table column of numbers is rendered from a record, wherever it stands."""
    hand_written = re.sub(render.PLACE, "", (ROOT / name).read_text())
    assert "---:|" not in hand_written
    assert not re.search(r"^\|.*\|\s*[~*+-]?\d[\d,.]*(?: ?%)?\**\s*\|", hand_written, re.MULTILINE)


def test_a_cell_typed_by_hand_is_seen_and_written_anew(tree: Path) -> None:
    """`--check` fails and changes nothing; without it the page is as before, and then the check passes."""
    page = tree / "benchmarks/README.md"
    right = page.read_text()
    typed = right.replace("| 1 | 3,220 | 1,293 |", "| 1 | 3,220 | 1,993 |")
    assert typed != right
    page.write_text(typed)
    assert render.main(["--check"], tree) == 1
    assert page.read_text() == typed
    assert render.main([], tree) == 0
    assert page.read_text() == right
    assert render.main(["--check"], tree) == 0


def test_prose_around_a_place_stays(tree: Path) -> None:
    """What is written by hand outlives rendering, word for word."""
    page = tree / "README.md"
    page.write_text(page.read_text().replace("## Sixty seconds", "By hand.\n\n## Sixty seconds"))
    before = page.read_text()
    assert render.main([], tree) == 0
    assert page.read_text() == before


def test_a_new_record_of_peers_puts_chart_and_table_in_place(tree: Path) -> None:
    """One command after the file is there: the picture, README's words for it and the table of all servers."""
    for old in (tree / render.RESULTS).glob(f"{render.CHARTED}.json"):
        old.unlink()
    assert render.main([], tree) == 0
    assert goodput.PICTURE not in (tree / "README.md").read_text()
    (tree / render.RESULTS / "peers-tile-2026-12-02.json").write_text(json.dumps({"older": "and so not read"}))
    (tree / render.RESULTS / f"{THREE.name}.json").write_text(json.dumps(THREE.data))
    assert render.main([], tree) == 0
    assert (tree / goodput.PICTURE).read_text() == goodput.chart(THREE)
    front = (tree / "README.md").read_text()
    assert f"]({goodput.PICTURE})" in front
    assert f"](benchmarks/results/{THREE.name}.json)" in front
    assert f"### {THREE.name}.json\n" in (tree / "benchmarks/README.md").read_text()
    assert render.main(["--check"], tree) == 0


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ("<!-- render: serve-of-nobody -->\n<!-- /render -->", "serve-of-nobody.json"),
        ("<!-- render: gc-2026-12-02 -->\n<!-- /render -->", "no known kind"),
        ("<!-- render: overload-2026-12-03 half -->\n<!-- /render -->", "no part half"),
        ("<!-- render: prediction-2026-12-03 -->\n<!-- /render -->", "errors, p95 and limit"),
        ("<!-- render: simulated-policies-2026-12-03 3+3b -->\n<!-- /render -->", "no curve 3+3b"),
        ("<!-- render: overload-2026-12-03 -->", "other half"),
        ("<!-- /render -->", "other half"),
    ],
)
def test_a_marker_that_means_nothing_is_an_error(
    tree: Path, marker: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page and what is wrong are named, and no file is written."""
    page = tree / "README.md"
    page.write_text(f"{page.read_text()}\n{marker}\n")
    before = page.read_text()
    assert render.main([], tree) == UsageError.exit_code
    told = capsys.readouterr().err
    assert said in told
    assert "README.md" in told
    assert page.read_text() == before


def test_a_record_that_is_cut_off_is_named(tmp_path: Path) -> None:
    """Half a JSON file is an error that says which."""
    path = tmp_path / "serve-x.json"
    path.write_text('{"records": [')
    with pytest.raises(RecordError, match=r"serve-x\.json is not JSON"):
        Record.read(path)


def test_every_kind_of_record_there_is_can_be_rendered() -> None:
    """Each record whose kind is known gives a table, whatever its words."""
    words = {"prediction": ["p95"]}
    for path in sorted((ROOT / render.RESULTS).glob("*.json")):
        kind = next((kind for kind in (*tables.WHOLE, *tables.IN_PARTS) if path.name.startswith(f"{kind}-")), None)
        if kind is not None and kind != "growth":
            assert "---:|" in tables.render(Record.read(path), words.get(kind, [])), path


def test_a_soak_is_told_by_thirds() -> None:
    """The first and the last third stand beside the whole; a window without a p95 counts as infinite."""
    windows = [
        {"sent": 100, "refused": number, "errors": {"500": 1} if number == 5 else {}, "p50_ms": 1.0, "p95_ms": p95}
        for number, p95 in enumerate((2.0, 2.0, 3.0, 3.0, None, None))
    ]
    told = {
        "memory_mb": {"after a quarter": 120.0, "last": 121.5},
        "memory_mb_per_hour": 0.25,
        "memory_mb_per_hour_error": 0.5,
        "p95_drift": 1.5,
        "left_in_flight": {"tile": 0},
    }
    said = tables.soak(Record("soak-x", {"machine": THREE.data["machine"], "told": told, "windows": windows}))
    assert "| first third | 2 | 200 | 1.00 | 2.00 | 0.50 % | 0 |" in said
    assert "| last third | 2 | 200 | 1.00 | – | 4.50 % | 1 |" in said
    assert "+0.25 ± 0.50 MB an hour" in said


# ---- numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "digits", "said"),
    [(2358.5, 0, "2,359"), (0.645, 2, "0.65"), (1.45, 1, "1.5"), (-0.2, 0, "0"), (None, 1, "–"), (1e6, 0, "1,000,000")],
)
def test_halves_go_up(value: float | None, digits: int, said: str) -> None:
    """Numbers are rounded as readers round, with commas between thousands; what there is not is a dash."""
    assert fixed(value, digits) == said


def test_shares_and_errors_are_percent() -> None:
    """A share is percent of one, and an error has its sign."""
    assert percent(0.4016) == "40.2 %"
    assert (signed(-0.0775, 1), signed(0.031, 0)) == ("-7.8 %", "+3 %")


# ---- servers side by side -------------------------------------------------------------------------------------------


def test_a_server_is_the_median_of_its_runs() -> None:
    """Rates and shares are medians over runs, each share of its own run's bare session."""
    record = _peers(_run("a", (100, 50), bare=1000), _run("a", (300, 60), bare=1000), _run("a", (200, 90), bare=500))
    (server,) = yardstick.servers(record)
    assert server.rate("25") == 200
    assert sorted(server.shares("25")) == [0.1, 0.3, 0.4]
    assert server.of(yardstick.bare) == 1000


def test_runs_with_other_budgets_are_not_mixed() -> None:
    """A median over different budgets would mean nothing."""
    odd = _run("b", (1, 1))
    odd["goodput"] = {"250": {"rate": 1, "ratio": 1}}
    with pytest.raises(RecordError, match="different budgets"):
        yardstick.servers(_peers(_run("a", (1, 1)), odd))


def test_servers_are_compared_with_the_body_that_most_of_them_take() -> None:
    """Our easier bodies are in the table and not in the chart; who takes no other body is in both."""
    record = _peers(
        _run("onbudget", (2000, 1800)),
        _run("onbudget", (3000, 2800), form="tile-octet"),
        _run("mosec", (1000, 400)),
        _run("triton", (300, 20), form="tile-v2bin"),
    )
    shown = [(one.name, one.form) for one in yardstick.comparable(record)]
    assert shown == [("onbudget", "tile-json"), ("mosec", "tile-json"), ("triton", "tile-v2bin")]
    assert "`tile-octet`" in yardstick.peers(record)


def test_ahead_is_over_the_best_other_at_each_budget() -> None:
    """The best other may be another one at another budget, and without others there is no ratio."""
    assert yardstick.times(THREE, "25") == (2.2, "mosec")
    assert yardstick.times(THREE, "10") == (1900 / 600, "plain")
    assert yardstick.times(_peers(_run("onbudget", (1, 1))), "25") is None
    assert yardstick.times(_peers(_run("onbudget", (1, 1)), _run("ray", (0, 0))), "25") is None


@pytest.mark.parametrize(("foreign", "mark"), [(0.05, ""), (0.2, "~")])
def test_a_disturbed_figure_is_marked(foreign: float, mark: str) -> None:
    """Where more than a fifth of the trials were disturbed, table and chart say so at the figure."""
    trials = [{"budget_ms": 25.0, "foreign": foreign, "steal": 0.0}, {"budget_ms": 10.0, "foreign": 0.0, "steal": 0.0}]
    record = _peers(_run("onbudget", (2000, 1800), trials=trials))
    assert f"| {mark}2,000 |" in yardstick.peers(record)
    assert "| 1,800 |" in yardstick.peers(record)
    assert f"{mark}2,000/s · 50 %" in _texts(goodput.chart(record))


def test_a_server_that_held_no_rate_has_its_row() -> None:
    """Without goodput there was no overload to measure, and a dash says so."""
    nothing = _run("ray", (0, 0))
    del nothing["overload"]
    (row,) = (line for line in yardstick.peers(_peers(nothing)).splitlines() if line.startswith("| ray"))
    assert "| 0 | 0.0 % | 0 | 0.0 % | – | – | – |" in row


def test_versions_notes_and_what_failed_are_told() -> None:
    """What the record says of itself stands under the table; a version that is not recorded is said to be missing."""
    record = _peers(
        _run("mosec", (1, 1)), _run("plain", (1, 1)), versions={"mosec": "0.9.8"}, notes=["n"], failed={"x": "why"}
    )
    told = yardstick.peers(record)
    assert "* mosec (`tile-json`): 0.9.8" in told
    assert "* plain (`tile-json`): version not recorded" in told
    assert "* n\n* not measured: x: why" in told


# ---- the chart ------------------------------------------------------------------------------------------------------


def test_bars_are_shares_of_the_bare_session_the_highest_first() -> None:
    """Two bars a server, sorted by the first budget, as long as their share of the way to the line at 100 %."""
    svg = goodput.chart(THREE)
    bars = _bars(svg)
    assert [kind for kind, _ in bars] == ["ours", "ours-pale", "other", "other-pale", "other", "other-pale"]
    (whole,) = (node for node in ET.fromstring(svg).iter(f"{SVG}line") if node.get("stroke-dasharray"))
    axis = [float(node.get("x1", "")) for node in ET.fromstring(svg).iter(f"{SVG}line") if node.get("class") == "grid"]
    scale = float(whole.get("x1", "")) - min(axis)
    shares = [round(width / scale, 3) for _, width in bars]
    assert shares == [0.55, 0.475, 0.25, 0.1, 0.175, 0.15]
    names = [text for text in _texts(svg) if text in ("onbudget", "mosec", "plain")]
    assert names == ["onbudget", "mosec", "plain"]


def test_the_chart_says_machine_misses_and_rates() -> None:
    """Its title names the processor and that refusals are misses; labels have rates, the line what is 100 %."""
    texts = _texts(goodput.chart(THREE))
    assert texts[0] == "Goodput on one core (Intel Xeon)"
    assert "refusals are misses" in texts[1]
    assert texts[2] == "medians of 1–2 runs, 2026-12-03"
    assert {"bare session = 100 % (4,000/s)", "2,200/s · 55 %", "600/s · 15 %"} <= set(texts)


def test_a_line_spans_the_runs_of_a_bar() -> None:
    """From the lowest to the highest run, and none where there was one run."""
    marks = [n for n in ET.fromstring(goodput.chart(THREE)).iter(f"{SVG}line") if n.get("class") == "mark"]
    assert len([n for n in marks if not n.get("stroke-dasharray")]) == 2


def test_both_modes_colour_every_class() -> None:
    """Whatever a drawing shows has its colour in light and in dark mode."""
    for svg in (goodput.chart(THREE), growth.plot(GROWTH, "items")):
        light, dark = svg.split("@media(prefers-color-scheme:dark)")
        used = {kind for kinds in re.findall(r'class="([^"]+)"', svg) for kind in kinds.split()} - {"head"}
        for kind in used:
            assert f".{kind}{{" in light
            assert f".{kind}{{" in dark.split("</style>")[0]


def test_the_words_for_the_picture_hold_every_server() -> None:
    """Who does not see the picture reads the same shares; nothing in them ends the Markdown early."""
    said = goodput.peers(THREE, ["chart"])
    alt = re.match(r"!\[([^\[\]]*)\]\(docs/images/goodput\.svg\)\n", said)
    assert alt
    assert "onbudget 55 % at 25 ms and 48 % at 10 ms; mosec 25 % at 25 ms and 10 % at 10 ms; plain 18 %" in alt[1]
    assert "2.2 times the best other (mosec) at 25 ms, 3.2 times the best other (plain) at 10 ms" in said
    with pytest.raises(UsageError):
        goodput.peers(THREE, ["pie"])


# ---- growth ---------------------------------------------------------------------------------------------------------


def _point(axis: str, value: int, rate: float, p95: float | None) -> list[dict[str, Any]]:
    shared = {"axis": axis, "value": value, "p50_ms": 1.0, "cpu_us_per_request": 300.0, "rss_mb": 120.0, "void": 0}
    over = {"load": "over", "answered_rate": rate, "answered_items_rate": rate * value, "p95_ms": None, "refused": 0.5}
    low = {"load": "fixed", "answered_rate": 0.6 * rate, "answered_items_rate": 0.6 * rate * value, "p95_ms": p95}
    return [{**shared, **over, "rate": 2 * rate}, {**shared, **low, "rate": 0.6 * rate, "refused": 0.0}]


def _growth(*rows: list[dict[str, Any]]) -> Record:
    machine = {"cpu": "AMD EPYC", "cores": 2.0, "system": "Debian", "python": "3.11.7", "onnxruntime": "1.32.0"}
    every = [row for pair in rows for row in pair]
    about = {"when": "2026-12-03T10:00:00", "share": 0.6, "p95": "25ms", "machine": machine}
    return Record("growth-2026-12-03", {**about, "rows": every})


GROWTH = _growth(
    _point("items", 10, 200, 4.0),
    _point("items", 1, 2000, 2.0),
    _point("items", 100, 20, None),
    _point("photo", 1_200_000, 30, 9.0),
)


def test_growth_tells_throughput_from_over_and_p95_from_fixed() -> None:
    """A row a value in order; an infinite p95 is a dash; one axis at a time."""
    rows = [line for line in growth.tables(GROWTH, ["items"]).splitlines() if re.match(r"\| \d", line)]
    assert [row.split(" | ")[:3] for row in rows] == [
        ["| 1", "2,000", "2,000"],
        ["| 10", "2,000", "200"],
        ["| 100", "2,000", "20"],
    ]
    assert [row.split(" | ")[6] for row in rows] == ["2.00", "4.00", "–"]
    assert "| 1.2 MB |" in growth.tables(GROWTH, ["photo"])
    with pytest.raises(UsageError, match="items, photo"):
        growth.tables(GROWTH, [])


def test_growth_draws_each_axis_into_the_file_that_its_table_shows() -> None:
    """One plot an axis, under the name in the page."""
    files = growth.plots(GROWTH)
    assert set(files) == {"growth-2026-12-03-items.svg", "growth-2026-12-03-photo.svg"}
    for axis in ("items", "photo"):
        assert f"](plots/growth-2026-12-03-{axis}.svg)" in growth.tables(GROWTH, [axis])


def test_growth_is_written_where_its_record_is(tree: Path) -> None:
    """A record in results/ has its plots beside the page after one command."""
    (tree / render.RESULTS / f"{GROWTH.name}.json").write_text(json.dumps(GROWTH.data))
    assert render.main([], tree) == 0
    assert (tree / render.PLOTS / "growth-2026-12-03-items.svg").read_text() == growth.plot(GROWTH, "items")
