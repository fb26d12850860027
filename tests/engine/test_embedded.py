"""What ships inside the package: small, whole, and answering as it did when it was made."""

from __future__ import annotations

import numpy as np

from onbudget.core.metadata import Metadata
from onbudget.engine.embedded import bundle_path, tiles
from onbudget.engine.images import decode
from onbudget.engine.session import OrtRunner, load_runner


def _opened() -> tuple[OrtRunner, Metadata]:
    runner = load_runner(bundle_path())
    assert runner.metadata is not None
    return runner, runner.metadata


def test_the_bundle_classifies_its_tiles_as_recorded() -> None:
    """Every shipped tile gets the label and the confidence that tiles.json says it got when the bundle was made."""
    runner, told = _opened()
    assert told.recipe is not None
    pixels = np.stack([decode(tile.png, told.recipe) for tile in tiles()])
    (answers,) = runner.run({"tiles": pixels}, ["probabilities"])
    assert [told.labels[row.argmax()] for row in answers] == [tile.label for tile in tiles()]
    np.testing.assert_allclose(answers.max(axis=1), [tile.confidence for tile in tiles()], atol=1e-3)


def test_tiles_are_twelve_three_of_each_label() -> None:
    """The tiles show every label alike often, under distinct names, and are distinct pictures."""
    _, told = _opened()
    shipped = tiles()
    assert sorted(tile.truth for tile in shipped) == sorted(told.labels * 3)
    assert len({tile.name for tile in shipped}) == len({tile.png for tile in shipped}) == 12


def test_the_bundle_has_a_whole_passport() -> None:
    """The embedded bundle was exported and bundled by our own commands: field, labels, parity, recipe and samples."""
    runner, told = _opened()
    assert (told.field, told.task, told.activation) == ("tiles", "classify", "softmax")
    assert told.labels == ("water", "coast", "vegetation", "built-up")
    assert {"batch_mates", "fused", "torch_vs_onnx"} <= set(told.parity)
    assert told.samples
    assert not told.unbatchable
    assert (runner.inputs[0].dtype, runner.inputs[0].shape) == ("uint8", (None, 64, 64, 3))


def test_all_of_it_is_under_a_megabyte() -> None:
    """A wheel that carries a model stays small."""
    folder = bundle_path().parent
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 1_000_000
