"""What a bundle is made from and what is written: labels, recipes, the gate, metadata, samples."""

from __future__ import annotations

import base64
import dataclasses
import json
import subprocess
import sys
from typing import Any

import numpy as np
import onnx
import pytest

from onbudget.core.errors import BundleError, DependencyError, GateFailed, UsageError
from onbudget.core.metadata import Metadata
from onbudget.core.recipe import Recipe
from onbudget.engine.bundle import read_metadata, with_metadata
from onbudget.engine.session import load_runner
from onbudget.make.fuse import BundleOptions, make_bundle, write_metadata
from tests import models
from tests.support.bundling import LABELS, PICTURE, PIXELS, Bundling

AXES = (0, 3, 1, 2)


# ---- labels and options ---------------------------------------------------------------------------------------------


def test_labels_must_fit_the_width(bundling: Bundling) -> None:
    """Five names for four columns are refused with both numbers."""
    with pytest.raises(UsageError, match=r"there are 5 labels, but no output .* \(a row of: 'logits' 4\)"):
        bundling.make(models.tile_cnn(), PICTURE, (*LABELS, "sky"))


def test_labels_that_occur_twice_are_told(bundling: Bundling) -> None:
    """Duplicates are said aloud, with an example, and kept: ImageNet has them."""
    report = bundling.make(models.tile_cnn(), PICTURE, ("crane", "wood", "crane", "field"))
    assert report.notes == ("1 labels occur more than once, so answers can't be told apart by them: ['crane']",)


def test_without_the_onnx_package_the_model_is_not_called_damaged(
    bundling: Bundling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the environment that lacks something, and the error says what to install."""
    file = bundling.file(models.tile_cnn())
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "onnx.onnx_ml_pb2", raising=False)
    with pytest.raises(DependencyError, match=r"^this needs the onnx package: pip install 'onbudget\[make\]'$"):
        bundling.make(file, PICTURE, LABELS)


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("a\n\nc\nd\n", "label 2 of 4 is empty"),
        ("\n \n", "holds no labels"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
    ],
)
def test_label_files_are_checked(bundling: Bundling, content: Any, wanted: str) -> None:
    """Empty lines, empty files and other encodings are named."""
    path = bundling.folder / "odd.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError, match=wanted):
        make_bundle(bundling.file(models.tile_cnn()), BundleOptions(labels=path, output=bundling.target))


def test_labels_come_from_a_config_json_too(bundling: Bundling) -> None:
    """Hugging Face's id2label, sorted by id and not by text."""
    path = bundling.folder / "config.json"
    path.write_text(json.dumps({"id2label": {"3": "d", "0": "a", "2": "c", "1": "b"}}))
    report = make_bundle(bundling.file(models.tile_cnn()), BundleOptions(labels=path, output=bundling.target))
    assert report.metadata.labels == ("a", "b", "c", "d")


def test_classes_without_labels_are_numbered(bundling: Bundling) -> None:
    """`--task classify` alone names classes 0 … n−1 and says so."""
    report = bundling.make(models.tile_cnn(), PICTURE, task="classify")
    assert report.metadata.labels == ("0", "1", "2", "3")
    assert "no labels given" in report.notes[0]


def test_a_recipe_alone_makes_tensors(bundling: Bundling) -> None:
    """Without labels the answers are tensors, and nothing is added at the end."""
    report = bundling.make(models.tile_cnn(), PICTURE)
    assert (report.metadata.task, report.metadata.activation, report.metadata.output) == ("tensors", "none", "")
    assert [port.name for port in report.outputs] == ["logits"]


@pytest.mark.parametrize(
    ("recipe", "wanted"),
    [
        ({**PICTURE, "size": [9, 8]}, r"the recipe makes items of 3×9×8, but the model takes 3×8×8"),
        ({**PICTURE, "colour": "grey", "mean": 0, "std": 1}, r"the recipe makes items of 1×8×8"),
        ({**PIXELS, "shape": [2, 96]}, r"the recipe makes items of 2×96"),
        ({**PICTURE, "sise": [8, 8]}, r"recipe.json: recipe: unknown key 'sise'; did you mean 'size'\?"),
    ],
)
def test_recipes_must_fit_the_model(bundling: Bundling, recipe: Any, wanted: str) -> None:
    """A wrong size, colour, shape or key is refused with what was found and what is wanted."""
    with pytest.raises((BundleError, UsageError), match=wanted):
        bundling.make(models.tile_cnn(), recipe, LABELS)


def test_recipe_files_that_are_not_there_or_not_json_are_named(bundling: Bundling) -> None:
    """The flag and the file are in the message."""
    model = bundling.file(models.tile_cnn())
    with pytest.raises(UsageError, match=r"--recipe .*none\.json: no such file"):
        make_bundle(model, BundleOptions(recipe=bundling.folder / "none.json", output=bundling.target))
    (bundling.folder / "bad.json").write_text("{'kind': 1}")
    with pytest.raises(UsageError, match=r"--recipe .*bad\.json is not JSON: .* line 1 column 2"):
        make_bundle(model, BundleOptions(recipe=bundling.folder / "bad.json", output=bundling.target))
    with pytest.raises(UsageError, match="is a directory"):
        make_bundle(model, BundleOptions(recipe=bundling.folder, output=bundling.target))


def test_models_that_are_too_old_are_refused_with_the_way_out(bundling: Bundling) -> None:
    """Before opset 7 operators did not broadcast as numpy does."""
    model = models.tile_cnn()
    model.opset_import[0].version = 6
    with pytest.raises(BundleError, match=r"opset 6.*convert_version"):
        bundling.make(model, PICTURE, LABELS)


# ---- the gate and the file ------------------------------------------------------------------------------------------


def test_a_file_that_answers_differently_is_not_written(bundling: Bundling) -> None:
    """A model that is random cannot be checked: exit code 12, and an older bundle in its place stays as it was."""
    model = models.tile_cnn()
    model.graph.node[-1].output[0] = "steady"
    model.graph.node.append(onnx.helper.make_node("RandomNormalLike", ["steady"], ["noise"]))
    model.graph.node.append(onnx.helper.make_node("Add", ["steady", "noise"], ["logits"]))
    bundling.target.write_bytes(b"older")
    with pytest.raises(GateFailed, match=r"differs from the numpy recipe and the model by .* the tolerance is 0\.0001"):
        bundling.make(model, PICTURE, LABELS)
    assert GateFailed.exit_code == 12
    assert bundling.target.read_bytes() == b"older"
    assert sorted(p.name for p in bundling.folder.glob(".*")) == []


def test_a_model_that_answers_nan_is_not_bundled(bundling: Bundling) -> None:
    """NaN for ordinary items is the model's fault, and is said before anybody serves it."""
    model = models.tile_cnn()
    model.graph.node[-1].output[0] = "negative"
    model.graph.node.append(onnx.helper.make_node("Log", ["negative"], ["logits"]))
    with pytest.raises(GateFailed, match="is NaN for ordinary items"):
        bundling.make(model, PICTURE, LABELS)


def test_a_bundle_never_replaces_its_own_source(bundling: Bundling) -> None:
    """Not by its name and not through a link."""
    path = bundling.file(models.tile_cnn())
    link = bundling.folder / "link.onnx"
    link.symlink_to(path)
    for target in (path, link):
        with pytest.raises(UsageError, match="is the model itself"):
            make_bundle(path, BundleOptions(output=target))
    with pytest.raises(UsageError, match="there is no folder"):
        make_bundle(path, BundleOptions(output=bundling.folder / "none" / "x.onnx"))


def test_a_bundle_is_not_bundled_twice(bundling: Bundling) -> None:
    """Preprocessing and softmax would be doubled."""
    bundling.make(models.tile_cnn(), PICTURE, LABELS)
    with pytest.raises(BundleError, match="is a bundle already"):
        make_bundle(bundling.target, BundleOptions(output=bundling.folder / "again.onnx"))


def test_the_same_input_makes_the_same_bytes(bundling: Bundling) -> None:
    """Without measured costs there is no clock and no randomness: a bundle is reproducible."""
    first = bundling.make(models.tile_cnn(), PICTURE, LABELS, cost=False)
    content = bundling.target.read_bytes()
    again = bundling.make(models.tile_cnn(), PICTURE, LABELS, cost=False)
    assert bundling.target.read_bytes() == content
    assert first.sha256 == again.sha256


def test_only_the_measured_cost_differs_between_two_bundles(bundling: Bundling) -> None:
    """Graph and passport are the same bytes once the curve is taken out."""
    contents = []
    for _ in range(2):
        told = bundling.make(models.tile_cnn(), PICTURE, LABELS).metadata
        contents.append(with_metadata(bundling.target.read_bytes(), dataclasses.replace(told, cost=None)))
    assert contents[0] == contents[1]


def test_what_export_wrote_down_is_kept(bundling: Bundling) -> None:
    """Parameters, parity, exporter and the mark of unbatchable models pass from the source into the bundle."""
    before = Metadata(params=99, unbatchable="rows mix", exporter={"name": "dynamo"}, parity={"torch": {"worst": 1e-7}})
    path = bundling.file(models.tile_cnn())
    write_metadata(path, before, path)
    told = bundling.make(path, PICTURE, LABELS).metadata
    assert (told.params, told.unbatchable, told.exporter) == (99, "rows mix", {"name": "dynamo"})
    assert set(told.parity) == {"torch", "fused", "batch_mates"}
    assert told.source_sha256 == load_runner(path).sha256
    assert read_metadata(bundling.target) == told


def test_reference_samples_are_what_the_file_answers(bundling: Bundling) -> None:
    """Three distinct raw rows and their answers, run alone; none where an item is large."""
    told = bundling.make(models.tile_cnn(), PICTURE, LABELS).metadata
    runner = bundling.runner()
    assert len({sample.item for sample in told.samples}) == 3
    for sample in told.samples:
        item = np.frombuffer(base64.b64decode(sample.item), np.uint8).reshape(1, 8, 8, 3)
        (answer,) = runner.run({"tiles": item}, [told.output])
        np.testing.assert_allclose(answer[0], sample.output, atol=1e-6)
    large = {**PICTURE, "size": [160, 160]}
    assert bundling.make(models.echo(3, 160, 160), large).metadata.samples == ()


def test_weights_over_two_gigabytes_are_refused_by_their_size(bundling: Bundling) -> None:
    """The limit of one file is told before anything is read."""
    path = models.with_external_data(models.tile_cnn(), bundling.folder, "huge.onnx")
    model = onnx.load(path, load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "length":
            entry.value = str(3 * 10**9)
    models.write(model, path)
    with (bundling.folder / "huge.onnx.data").open("r+b") as file:
        file.truncate(3 * 10**9 + 10**6)  # sparse: it takes no room
    with pytest.raises(BundleError, match=r"is of 3\.0 GB with its weights; a bundle is one file of at most 2 GB"):
        bundling.make(path, PICTURE, LABELS)


def test_metadata_alone_keeps_every_weight(bundling: Bundling) -> None:
    """write_metadata changes nothing else; beside another folder's file, external data comes along."""
    path = bundling.file(models.tile_cnn())
    target = bundling.folder / "told.onnx"
    write_metadata(path, Metadata(params=3), target)
    write_metadata(target, Metadata(params=4), target)
    assert onnx.load(target).graph == onnx.load(path).graph
    assert len(onnx.load(target).metadata_props) == 1
    assert load_runner(target).metadata == Metadata(params=4)
    outside = models.with_external_data(models.tile_cnn(), bundling.folder, "outside.onnx")
    (bundling.folder / "far").mkdir()
    far = bundling.folder / "far" / "outside.onnx"
    write_metadata(outside, Metadata(params=5), far)
    assert [p.name for p in far.parent.iterdir()] == ["outside.onnx"]
    assert load_runner(far).metadata == Metadata(params=5)


def test_metadata_of_other_tools_is_kept(bundling: Bundling) -> None:
    """Keys that are not ours stay in the file."""
    model = models.tile_cnn()
    model.metadata_props.add(key="author", value="somebody")
    bundling.make(model, PICTURE, LABELS)
    assert {entry.key: entry.value for entry in onnx.load(bundling.target).metadata_props}["author"] == "somebody"


def test_bundling_imports_neither_torch_nor_all_of_onnx(bundling: Bundling) -> None:
    """Cold start is a promise: the message classes are loaded alone, and a later `import onnx` shares them."""
    path, recipe = bundling.file(models.tile_cnn()), bundling.folder / "recipe.json"
    recipe.write_text(json.dumps(PICTURE))
    options = f"task='classify', recipe=Path({str(recipe)!r}), output=Path({str(bundling.target)!r})"
    code = (
        "import sys\nfrom pathlib import Path\nfrom onbudget.make.fuse import BundleOptions, make_bundle\n"
        f"make_bundle(Path({str(path)!r}), BundleOptions({options}))\n"
        "loaded = [m for m in ('torch', 'onnx', 'fastapi', 'PIL', 'rich', 'numpy.random') if m in sys.modules]\n"
        "from onbudget.make import proto\nclasses = proto.messages()\nimport onnx\n"
        "print(loaded, onnx.ModelProto is classes.ModelProto)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] True"


def test_the_report_is_json(bundling: Bundling) -> None:
    """Everything a machine may want to know, in plain types."""
    report = bundling.make(models.tile_cnn(), PICTURE, LABELS)
    told = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert told["task"] == "classify"
    assert told["inputs"] == [{"name": "tiles", "dtype": "uint8", "shape": [None, 8, 8, 3]}]
    assert told["difference"] <= told["tolerance"] == 1e-4
    assert dataclasses.replace(report, notes=("x",)).to_dict()["notes"] == ["x"]


def test_a_difference_that_saturated_probabilities_hide_is_found(
    bundling: Bundling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logits a hundred apart are 0 and 1 whatever goes in, so the logits themselves are compared too."""
    model = models.tile_cnn()
    model.graph.node[-1].output[0] = "small"
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0, 0, 0, 100], np.float32), "apart"))
    model.graph.node.append(onnx.helper.make_node("Add", ["small", "apart"], ["logits"]))
    monkeypatch.setattr(Recipe, "affine", lambda self: (np.float32([1 / 90]), np.float32([-3])))  # the graph's numbers
    monkeypatch.setattr(Recipe, "tensor", lambda self, items: items.astype(np.float32).transpose(0, 3, 1, 2) / 255)
    with pytest.raises(GateFailed, match="output 'logits' with 1 rows"):
        bundling.make(model, PICTURE, LABELS)
