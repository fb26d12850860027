"""The house keeps its shape: who may import whom, and how long a file or a function may grow."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[1] / "src" / "onbudget"
FILES = sorted(p for p in SRC.rglob("*.py"))

# room -> the rooms it may import. `onbudget` itself is the package's __init__ (version, lazy public names).
MAY = {
    "core": {"core"},
    "engine": {"core", "engine"},
    "make": {"core", "engine", "make"},
    "serve": {"core", "engine", "serve"},
    "prove": {"core", "engine", "prove"},
    "scale": {"core", "engine", "serve", "scale"},
    "cli": {"core", "engine", "make", "serve", "prove", "scale", "cli"},
}
CORE_MAY_NOT = {"time", "threading", "asyncio", "os", "logging", "socket", "pathlib", "subprocess", "random"}
CORE_THIRD_PARTY = {"numpy"}
# third-party library -> the only files that may import it
PLACES = {
    "onnxruntime": {"engine/session.py", "make/doctor.py", "make/parity.py", "cli/naive.py"},
    "PIL": {"engine/images.py", "engine/jpegs.py", "prove/payloads.py"},
    "simplejpeg": {"engine/jpegs.py"},
    "torch": {"make/needs.py"},
    "uvicorn": {"serve/protocol.py", "serve/server.py", "cli/naive.py"},
    "prometheus_client": {"serve/metrics.py"},
    "rich": {"cli/show.py"},
}


def _room(path: Path) -> str:
    parts = path.relative_to(SRC).parts
    return parts[0] if len(parts) > 1 else ""


def _imports(path: Path) -> Iterator[tuple[str, int]]:
    """Dotted names that the file imports, at module level or inside a function, with their lines."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield node.module or "", node.lineno


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SRC)))
def test_a_room_imports_only_what_it_may(path: Path) -> None:
    """Arrows between rooms point down, core stays pure, and each third-party library lives in its named files."""
    room, here = _room(path), str(path.relative_to(SRC))
    for name, line in _imports(path):
        top, _, rest = name.partition(".")
        where = f"{here}:{line} imports {name}"
        if top == "onbudget":
            other = rest.split(".")[0] if rest else ""
            if room and other in MAY:
                assert other in MAY[room], where
            continue
        if room == "core":
            assert top not in CORE_MAY_NOT, where
        if top in PLACES:
            assert here in PLACES[top], f"{where}; it belongs in {sorted(PLACES[top])}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SRC)))
def test_files_and_functions_stay_small(path: Path) -> None:
    """A file has at most 400 lines, a function 60 lines and 8 parameters."""
    text = path.read_text()
    assert len(text.splitlines()) <= 400, path
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= 60, f"{path}:{node.lineno} {node.name} has {length} lines"
            given = [
                a for a in node.args.posonlyargs + node.args.args + node.args.kwonlyargs if a.arg not in ("self", "cls")
            ]
            decorated = any("option" in ast.unparse(d) for d in node.decorator_list)
            assert decorated or len(given) <= 8, f"{path}:{node.lineno} {node.name} takes {len(given)} parameters"
