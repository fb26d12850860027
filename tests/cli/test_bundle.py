"""`onbudget bundle` as a person and as a script meet it: tables, JSON, exit codes, and no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from onbudget.core.errors import GateFailed, UsageError
from tests import models
from tests.support.bundling import LABELS

# Hugging Face's form, letter by letter as a processor saves it.
RECIPE = """{"do_resize": true, "size": {"height": 8, "width": 8}, "resample": 2, "do_rescale": true,
 "rescale_factor": 0.00392156862745098, "do_normalize": true, "image_mean": [0.485, 0.456, 0.406],
 "image_std": [0.229, 0.224, 0.225], "image_processor_type": "ViTImageProcessor"}"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    models.write(models.tile_cnn(), tmp_path / "tile.onnx")
    (tmp_path / "recipe.json").write_text(RECIPE)
    (tmp_path / "labels.txt").write_text("\n".join(LABELS) + "\n")
    return tmp_path


def bundle(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a fresh interpreter, warnings being errors."""
    command = [sys.executable, "-W", "error", "-m", "onbudget", "bundle", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


FLAGS = ("tile.onnx", "--recipe", "recipe.json", "--labels", "labels.txt", "--field", "tiles")


def test_a_bundle_is_made_and_its_passport_shown(folder: Path) -> None:
    """What goes in, what comes out, what is in the graph, and the largest difference; what to do next on stderr."""
    done = bundle(folder, *FLAGS, "-o", "served.onnx")
    assert done.returncode == 0, done.stderr
    for text in (
        "tiles: uint8 N×8×8×3",
        "probabilities: float32 N×4",
        "classify, 4 labels (water, wood, town …), from probabilities",
        "rgb, stretch to 8×8 (bilinear)",
        "scale 0.00392157, mean 0.485 0.456 0.406, std 0.229 0.224 0.225, NCHW, softmax",
        "(tolerance 0.0001)",
    ):
        assert text in done.stdout
    assert "onbudget serve served.onnx" in done.stderr
    assert (folder / "served.onnx").is_file()


def test_json_is_alone_on_stdout(folder: Path) -> None:
    """One document for machines; the default file lies beside the model."""
    done = bundle(folder, *FLAGS, "--json")
    told = json.loads(done.stdout)
    assert told["path"] == "tile.bundle.onnx"
    assert (told["task"], told["field"], told["labels"], told["activation"]) == ("classify", "tiles", 4, "softmax")
    assert told["difference"] < told["tolerance"]
    assert (folder / "tile.bundle.onnx").stat().st_size == told["bytes"]


@pytest.mark.parametrize(
    ("arguments", "code", "wanted"),
    [
        (("none.onnx",), 1, "none.onnx: no such file; did you mean tile.onnx?"),
        (("tile.onnx", "--recipe", "none.json"), 2, "--recipe none.json: no such file"),
        ((*FLAGS, "-o", "tile.onnx"), 2, "is the model itself"),
        (("tile.onnx", "--task", "clasify"), 2, "'clasify' is not one of 'auto', 'classify'"),
        (("tile.onnx", "--labels", "labels.txt", "--task", "tensors"), 2, "--labels say nothing of tensors"),
        ((), 2, "Missing argument 'MODEL'"),
    ],
)
def test_mistakes_are_one_sentence_and_an_exit_code(
    folder: Path, arguments: tuple[str, ...], code: int, wanted: str
) -> None:
    """Nothing on stdout, nothing written, no traceback."""
    done = bundle(folder, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert wanted in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(p.name for p in folder.glob("*.onnx")) == ["tile.onnx"]
    assert UsageError.exit_code == 2


def test_a_failed_gate_is_exit_code_12(folder: Path) -> None:
    """A model that answers differently each time cannot be fused, and a script sees that by the code."""
    model = models.tile_cnn()
    model.graph.node[-1].output[0] = "steady"
    model.graph.node.append(onnx.helper.make_node("RandomNormalLike", ["steady"], ["noise"]))
    model.graph.node.append(onnx.helper.make_node("Add", ["steady", "noise"], ["logits"]))
    models.write(model, folder / "tile.onnx")
    done = bundle(folder, *FLAGS, "-o", "served.onnx")
    assert done.returncode == GateFailed.exit_code == 12
    assert "the fused file differs from the numpy recipe" in done.stderr
    assert not (folder / "served.onnx").exists()


def test_options_come_from_the_environment_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag wins over ONBUDGET_…, which wins over the default."""
    monkeypatch.setenv("ONBUDGET_RECIPE", "recipe.json")
    monkeypatch.setenv("ONBUDGET_LABELS", "labels.txt")
    monkeypatch.setenv("ONBUDGET_FIELD", "pictures")
    assert json.loads(bundle(folder, "tile.onnx", "--json").stdout)["field"] == "pictures"
    assert json.loads(bundle(folder, "tile.onnx", "--json", "--field", "tiles").stdout)["field"] == "tiles"


def test_help_has_examples(folder: Path) -> None:
    """The flags, the dialects and how it is used."""
    done = bundle(folder, "--help")
    assert done.returncode == 0
    for text in ("--recipe FILE", "preprocessor_config.json", "onbudget bundle model.onnx", "Exit code", "12"):
        assert text in done.stdout
