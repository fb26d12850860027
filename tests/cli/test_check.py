"""`onbudget check` as a person meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from onbudget.cli.main import main
from onbudget.core.metadata import Metadata
from onbudget.core.recipe import Recipe
from onbudget.engine.bundle import read_metadata, with_metadata

RECIPE = Recipe("tensor", (4,), input_dtype="float32", input_range=(0.0, 1.0), layout="as-is")
PASSPORT = Metadata(
    task="classify",
    field="rows",
    labels=tuple(f"class {i}" for i in range(4)),
    recipe=RECIPE,
    output="y",
    params=1234,
    exporter={"name": "dynamo", "opset": 17},
    parity={"torch_vs_onnx": {"worst": 2e-7, "tolerance": 1e-4}},
    made_by="onbudget 9.9",
    source_sha256="ab" * 32,
)


def file(path: Path, *, leaky: bool = False, passport: Metadata | None = PASSPORT) -> Path:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    if leaky:
        nodes = [
            helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
            helper.make_node("Mul", ["x", "m"], ["y"]),
        ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, ["n", 4])], [value("y", TensorProto.FLOAT, ["n", 4])]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    path.write_bytes(model if passport is None else with_metadata(model, passport))
    return path


def run(monkeypatch: pytest.MonkeyPatch, *words: Any) -> int:
    monkeypatch.setattr(sys, "argv", ["onbudget", "check", *map(str, words)])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


def test_the_passport_and_every_check_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Labels, task, recipe, parameters, exporter, parity and hashes; then the checks with their numbers."""
    assert run(monkeypatch, file(tmp_path / "m.onnx")) == 0
    out = capsys.readouterr().out
    for told in (
        "classify, field 'rows', reads 'y'",
        "class 0, class 1, class 2, class 3",
        "tensor, shape 4, input_dtype float32, input_range 0.0 1.0",
        "1,234",
        "name dynamo, opset 17",
        "at most 2e-07 (tolerance 0.0001)",
        "onbudget 9.9",
        "ab" * 32,
        "opset 17 (up to",
        "in batches of 2, 3, 32",
    ):
        assert told in out


def test_a_bundle_whose_rows_mix_exits_12_and_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mark, its reason and what it means for serving are told; a second look exits 0."""
    path = file(tmp_path / "m.onnx", leaky=True)
    assert run(monkeypatch, path, "--max-batch", "4") == 12
    out, err = capsys.readouterr()
    assert "depends on its batch-mates" in out
    assert "is now marked: it is served one request at a time, because" in err
    passport = read_metadata(path)
    assert passport is not None
    assert passport.unbatchable
    assert run(monkeypatch, path) == 0
    assert f"one request at a time: {passport.unbatchable}" in capsys.readouterr().out


def test_no_mark_and_plain_files_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate fails all the same."""
    for path, words in (
        (file(tmp_path / "bundle.onnx", leaky=True), ["--no-mark"]),
        (file(tmp_path / "plain.onnx", leaky=True, passport=None), []),
    ):
        before = path.read_bytes()
        assert run(monkeypatch, path, *words) == 12
        assert path.read_bytes() == before


def test_json_is_one_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Everything that the tables show, for machines."""
    assert run(monkeypatch, file(tmp_path / "m.onnx"), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"]
    assert told["passport"]["recipe"]["shape"] == [4]
    assert [finding["level"] for finding in told["findings"]] == ["ok"] * 4
    assert told["mates"]["sizes"] == [2, 3, 32]


@pytest.mark.parametrize(("content", "said"), [(None, "no such file"), (b"PK\x03\x04" + bytes(99), "zip archive")])
def test_what_is_no_model_is_one_message(
    content: bytes | None,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A missing file and a PyTorch checkpoint are told apart; never a traceback."""
    path = tmp_path / "m.onnx"
    if content is not None:
        path.write_bytes(content)
    assert run(monkeypatch, path) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "Traceback" not in err


def test_random_bytes_are_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Damage anywhere in the file is one message."""
    whole = bytearray(file(tmp_path / "m.onnx").read_bytes())
    rng = np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(whole)
        for at in rng.integers(0, len(whole), 3):
            damaged[at] = rng.integers(0, 256)
        (tmp_path / "d.onnx").write_bytes(bytes(damaged))
        assert run(monkeypatch, tmp_path / "d.onnx") in (0, 1, 12)


def test_a_pipe_without_a_form_for_a_letter_gets_a_question_mark(tmp_path: Path) -> None:
    """A table with × ends as a table, not in a traceback, where a pipe is ASCII or Windows' cp1252."""
    command = [sys.executable, "-m", "onbudget", "check", str(file(tmp_path / "m.onnx")), "--max-batch", "2"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert b"x: float32 N?4" in done.stdout
