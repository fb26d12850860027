"""`onbudget export` as a person meets it: what is on which stream, which exit code, and the how-to's own snippets."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from onbudget.cli.main import main
from tests.support.snippets import Reader, blocks

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
MODEL = """
import torch
print("making a model")
net = torch.nn.Linear(8, 3)

class FourRows(torch.nn.Module):
    def forward(self, x):
        return x.view(4, -1)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cli_model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "cli_model", raising=False)
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["onbudget", *words])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


def test_json_is_alone_on_stdout(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report goes to stdout; progress, notes and what the user's own module prints go to stderr."""
    words = ("cli_model:net", "--example", "1x8", "--exporter", "legacy", "--input-name", "x", "-o", "net.onnx")
    assert run(monkeypatch, "export", *words, "--json") == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert (report["path"], report["params"], report["exporter"]["name"]) == ("net.onnx", 27, "legacy")
    assert report["mates"]["ok"]
    assert "making a model" in err
    assert "training mode" in err


def test_the_table_tells_the_difference_at_every_size(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person sees the file, the exporter and the parity by rows."""
    words = ("cli_model:net", "--example", "1x8", "--exporter", "legacy", "--max-batch", "5")
    assert run(monkeypatch, "export", *words) == 0
    out = capsys.readouterr().out
    for told in ("model.onnx", "legacy, torch", "with 1 row", "with 2 rows", "with 3 rows", "with 5 rows", "sha256"):
        assert told in out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("cli_model:nett", "--example", "1x8"), 2, "did you mean 'net'?"),
        (("cli_model:net",), 2, "--example 1x3x64x64"),
        (("cli_model:net", "--example", "1x"), 2, "'1x' is not a shape"),
        (("cli_model:net", "--example", "1x8", "--opset", "new"), 2, "'new' is not an opset"),
        (("cli_model:net", "--example", "1x9", "--exporter", "legacy"), 1, "fails with float32 of 1x9"),
        (("cli_model:FourRows", "--example", "4x8", "--exporter", "legacy"), 12, "with the constant shape [4, -1]"),
    ],
)
def test_mistakes_are_one_message_and_an_exit_code(
    words: tuple[str, ...],
    code: int,
    said: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """2 for what cannot be meant, 1 for what cannot be exported, 12 for a failed gate; never a traceback."""
    assert run(monkeypatch, "export", *words) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "Traceback" not in err
    assert not (folder / "model.onnx").exists()


@pytest.mark.e2e
@pytest.mark.needs("bash")
def test_the_how_to_works_as_it_is_written(tmp_path: Path) -> None:
    """Every snippet of docs/howto/export.md runs in its order, with both exporters' noise kept from the user."""
    with Reader(tmp_path) as reader:
        said = [reader.follow(block) for block in blocks((ROOT / "docs" / "howto" / "export.md").read_text())]
    assert not any(word in printed for printed in said for word in ("Warning", "torchvision"))
    exported, checked, printed = (one for one in said if one)
    assert "dynamo, torch" in exported
    assert "rows answer alike alone and in batches of 2, 3, 32" in checked
    assert printed.split() == ["legacy", "276", "True"]
    assert sorted(p.name for p in tmp_path.glob("*.onnx*")) == ["model.onnx", "tiles.onnx"]
