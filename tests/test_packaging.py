"""What a user installs: one version, a whole wheel, and no import that serving does not need."""

from __future__ import annotations

import email.message
import email.parser
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest

import onbudget
from tests.support.children import Child

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src" / "onbudget"
PYTHONS = runpy.run_path(str(ROOT / "scripts" / "pythons.py"))


def _imported(importtime: str) -> set[str]:
    """Top-level names of all modules in what `-X importtime` wrote."""
    names = re.findall(r"^import time:\s+\d+ \|\s+\d+ \|\s+([\w.]+)$", importtime, re.MULTILINE)
    return {name.split(".")[0] for name in names}


def test_the_version_stands_in_one_place_and_heads_the_changelog() -> None:
    """pyproject reads the version from the package, and the changelog's first heading is that version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" not in project
    assert project["dynamic"] == ["version"]
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading
    assert heading[1] == onbudget.__version__


def test_every_pin_is_exact_and_every_dependency_has_one() -> None:
    """constraints.txt pins each of the package's dependencies, exactly, in order, and names no address."""
    text = (ROOT / "constraints.txt").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    names = [line.partition("==")[0] for line in lines]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line) for line in lines)
    assert names == sorted(set(names))
    assert "://" not in text
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = project["dependencies"] + [one for extra in project["optional-dependencies"].values() for one in extra]
    plain = {re.split(r"[\[<>=;~! ]", one)[0].lower().replace("_", "-") for one in asked} - {"onbudget"}
    assert plain <= set(names)


@pytest.mark.e2e
def test_serving_imports_neither_onnx_nor_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has answered a request has imported onnxruntime, but neither onnx nor torch nor a table drawer."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    child = Child(None, folder=tmp_path).ready()
    rows = bytes(64 * 64 * 3)
    answer = httpx.post(f"{child.url}/predict", content=rows, headers={"content-type": "application/octet-stream"})
    assert child.end() == 0
    assert answer.status_code == 200
    imported = _imported(child.log)
    assert "onnxruntime" in imported
    assert not imported & {"torch", "onnx", "onnxscript", "rich"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """The wheel of this tree, built with the tools that are installed."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = folder.glob("onbudget-*.whl")
    with zipfile.ZipFile(built) as opened:
        yield opened


def _metadata(wheel: zipfile.ZipFile) -> email.message.Message:
    (name,) = [n for n in wheel.namelist() if n.endswith(".dist-info/METADATA")]
    return email.parser.Parser().parsestr(wheel.read(name).decode())


def test_the_wheel_is_whole(wheel: zipfile.ZipFile) -> None:
    """The wheel has every file of the package, with bundle, tiles and page, and both licence files."""
    inside = {name for name in wheel.namelist() if name.startswith("onbudget/")}
    beside = {Path(name).name for name in wheel.namelist() if ".dist-info/" in name}
    files = {
        p.relative_to(SRC.parent).as_posix() for p in SRC.rglob("*") if p.is_file() and "__pycache__" not in p.parts
    }
    assert inside == files
    assert {"onbudget/data/tiles.onnx", "onbudget/py.typed", "onbudget/web/swagger/swagger-ui-bundle.js.gz"} <= inside
    assert {"onbudget/web/uplot/uPlot.iife.min.js.gz", "onbudget/web/uplot/LICENSE"} <= inside
    assert any(name.startswith("onbudget/data/tiles/") for name in inside)
    assert {"LICENSE", "NOTICE", "entry_points.txt"} <= beside
    assert _metadata(wheel)["Version"] == onbudget.__version__


def test_without_extras_the_wheel_asks_for_neither_onnx_nor_torch(wheel: zipfile.ZipFile) -> None:
    """onnx comes with the extra `make` only, and torch with none: the user brings it."""
    asked = _metadata(wheel).get_all("Requires-Dist") or []
    plain = {re.split(r"[<>=;~! ]", one)[0] for one in asked if "extra ==" not in one}
    everything = {re.split(r"[<>=;~! ]", one)[0] for one in asked}
    assert {"onnxruntime", "numpy", "fastapi"} <= plain
    assert not plain & {"onnx", "onnxscript", "torch"}
    assert "torch" not in everything
    assert "onnx" in everything


@pytest.mark.slow
@pytest.mark.timeout(900)  # a package index may be slow; on a quiet machine it takes half a minute
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_an_installed_wheel_serves_on_every_python_here(version: str, wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    """In an empty venv, without extras: the embedded model answers, and neither onnx nor torch is there (smoke.py)."""
    found = PYTHONS["pythons"]()
    python = found.get(tuple(map(int, version.split("."))))
    if python is None:
        pytest.skip(f"this machine has no Python {version}")
    assert wheel.filename is not None
    said = PYTHONS["smoke"](python, Path(wheel.filename), tmp_path)
    assert said.startswith(f"Python {version}.")
    assert said.endswith("2 tiles answered")
