"""Write the tables and plots of `results/` anew, into the pages that have a place for them: make figures.

    PYTHONPATH=src python benchmarks/render.py            writes what changed, and says what
    PYTHONPATH=src python benchmarks/render.py --check    writes nothing, and ends with 1 where something would change

A page's place is what stands between `<!-- render: NAME words -->` and `<!-- /render -->`. NAME is a record of
`results/` without `.json`, whose beginning says its kind (`rendering.tables`), and the words choose a part of it. A
NAME that ends in `*` is the last record by name that begins so, and its place stays empty until there is one.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from rendering import goodput, growth, tables
from rendering.records import Record

from onbudget.core.errors import OnbudgetError, UsageError
from onbudget.engine.files import write_atomically

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PLOTS = "benchmarks/results", "benchmarks/plots"
PAGES = ("README.md", "benchmarks/README.md")
CHARTED = "peers-tile-*"  # the record of README's chart
PLACE = re.compile(r"^<!-- render: (?P<name>\S+)(?P<words>[^\n>]*?) -->\n(?P<old>.*?)^<!-- /render -->$", re.M | re.S)
_MARKER = re.compile(r"^<!-- */?render.*$", re.M)


def find(root: Path, name: str) -> Record | None:
    """The record of that name, or None for a `…*` that there is none of yet. UsageError for any other name."""
    folder = root / RESULTS
    if name.endswith("*"):
        there = sorted(folder.glob(f"{name}.json"))
        return Record.read(there[-1]) if there else None
    path = folder / f"{name}.json"
    if not path.exists():
        raise UsageError(f"there is no {path}, which a marker names; name a record that is there, or end it in *")
    return Record.read(path)


def rendered(root: Path, name: str, words: list[str]) -> str:
    """What belongs between the two markers."""
    record = find(root, name)
    if record is None:
        return ""
    return f"\n{tables.render(record, words)}\n\n"


def page(root: Path, text: str) -> str:
    """The page with each place filled. UsageError for a marker without its other half, or that means nothing."""

    def fill(place: re.Match[str]) -> str:
        opening, _ = place[0].split("\n", 1)
        return f"{opening}\n{rendered(root, place['name'], place['words'].split())}<!-- /render -->"

    if len(_MARKER.findall(text)) != 2 * len(PLACE.findall(text)):
        raise UsageError("a render marker is without its other half, or inside another place")
    return PLACE.sub(fill, text)


def figures(root: Path) -> dict[Path, str]:
    """All files that are rendered, with what belongs in them: pages, README's chart and the plots."""
    files = {}
    for name in PAGES:
        try:
            files[root / name] = page(root, (root / name).read_text(encoding="utf-8"))
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from error
    charted = find(root, CHARTED)
    if charted is not None:
        files[root / goodput.PICTURE] = goodput.chart(charted)
    for path in sorted((root / RESULTS).glob("growth-*.json")):
        files |= {root / PLOTS / name: svg for name, svg in growth.plots(Record.read(path)).items()}
    return files


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where a file would change")
    chosen = parser.parse_args(arguments)
    try:
        changed = {
            path: text
            for path, text in figures(root).items()
            if not path.exists() or path.read_text(encoding="utf-8") != text
        }
        for path, text in changed.items():
            print(f"{path.relative_to(root)} {'would change' if chosen.check else 'written'}", file=sys.stderr)
            if not chosen.check:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, text.encode())
    except OnbudgetError as error:
        print(f"render.py: {error}", file=sys.stderr)
        return error.exit_code
    if chosen.check and changed:
        print("render.py: these are not what results/ says; `make figures` writes them", file=sys.stderr)
    return int(chosen.check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
