"""`onbudget profile` as a person meets it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from onbudget.cli.main import main
from onbudget.core.profile import parse
from tests import models

QUICK = ("--threads", "1", "--lanes", "1", "--time-budget", "200ms", "--max-batch", "2")


def run(monkeypatch: pytest.MonkeyPatch, *words: Any) -> int:
    monkeypatch.setattr(sys, "argv", ["onbudget", "profile", *map(str, words)])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


def test_a_table_a_sentence_and_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row a batch, whether batching pays, and the record under -o; progress and notes are on stderr."""
    path, out = models.write(models.tile_cnn(), tmp_path / "m.onnx"), tmp_path / "p.json"
    assert run(monkeypatch, path, *QUICK, "-o", out) == 0
    told, err = capsys.readouterr()
    lines = told.splitlines()
    assert lines[0].startswith("m.onnx on ")
    assert lines[1] == "1 lane × 1 thread"
    assert lines[2].split()[:2] == ["batch", "ms"]
    assert [line.split()[0] for line in lines[4:6]] == ["1", "2"]
    assert "1 lane × 1 thread: batching " in told
    assert lines[-1].startswith("most items: ")
    assert f"written: {out}" in err
    assert "profiling" in err
    found = parse(out.read_bytes(), "p.json")
    assert [p.batch for p in found.points] == [1, 2]


def test_json_is_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One document on stdout, the same that -o writes, and nothing else there."""
    path, out = models.write(models.tile_cnn(batch=4), tmp_path / "m.onnx"), tmp_path / "p.json"
    assert run(monkeypatch, path, *QUICK, "--json", "-o", out) == 0
    told = capsys.readouterr().out
    assert json.loads(told) == json.loads(out.read_bytes())
    assert [p["batch"] for p in json.loads(told)["points"]] == [4]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["none.onnx"], 1, "none.onnx"),
        (["m.onnx", "--lanes", "0"], 2, "whole numbers from 1 to 256"),
        (["m.onnx", "--threads", "200", "--lanes", "200"], 2, "wants 40000 cores"),
        (["m.onnx", "--max-batch", "0"], 2, "--max-batch must be from 1"),
        (["m.onnx", "--time-budget", "3"], 2, "a unit is needed"),
        (["m.onnx", "--provider", "nonsense"], 1, "nonsense is not in this onnxruntime"),
        (["m.onnx", *QUICK, "-o", "no/such/folder/p.json"], 2, "there is no folder no/such/folder"),
    ],
)
def test_mistakes_are_one_sentence(
    words: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The exit code, the reason, nothing on stdout and never a traceback."""
    models.write(models.tile_cnn(), tmp_path / "m.onnx")
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, *words) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "Traceback" not in err
