"""onbudget.Classifier: a bundle by itself, a plain file with what its caller says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onbudget
from onbudget.core.errors import BundleError, UsageError
from onbudget.engine.embedded import bundle_path
from onbudget.serve.classifier import Classifier
from tests.models import fixed_batch, no_batch, softmaxed, tile_cnn, two_inputs, write
from tests.support.tiles import Tiles

CLASSES = ["a", "b", "c", "d"]
RECIPE = onbudget.Recipe("picture", (8, 8, 3), scale=1 / 255)


def some(count: int, kind: str = "uint8") -> np.ndarray[Any, Any]:
    pixels = np.random.default_rng(2).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    return pixels if kind == "uint8" else RECIPE.tensor(pixels)


def told(answers: list[dict[str, Any]]) -> list[tuple[str, float]]:
    return [(answer["label"], pytest.approx(answer["confidence"], abs=1e-5)) for answer in answers]


def test_a_bundle_brings_its_preprocessing_and_labels(tiles: Tiles) -> None:
    """Raw uint8 items in, the bundle's own labels and probabilities out, in order; a list of items does too."""
    classifier = Classifier(tiles.bundle)
    assert classifier.classes == list(tiles.labels)
    assert told(classifier.predict(tiles.some(4))) == tiles.expect(tiles.some(4))
    assert told(classifier.predict(list(tiles.some(4)))) == tiles.expect(tiles.some(4))
    assert classifier.predict([]) == []
    assert Classifier(str(tiles.bundle), classes=tiles.labels).classes == list(tiles.labels)  # the same is no quarrel


def test_a_recipe_and_its_function_answer_alike(tmp_path: Path) -> None:
    """A plain file takes a Recipe, a function, or items that are ready for it."""
    path = write(tile_cnn(), tmp_path / "m.onnx")
    by_recipe = Classifier(path, CLASSES, RECIPE).predict(some(3))
    assert Classifier(path, CLASSES, RECIPE.tensor).predict(some(3)) == by_recipe
    assert Classifier(path, CLASSES).predict(some(3, "float32")) == by_recipe


def test_softmax_is_not_taken_twice(tmp_path: Path) -> None:
    """A plain file that ends in its own softmax answers as its twin without."""
    twins = [write(make(), tmp_path / f"{make.__name__}.onnx") for make in (tile_cnn, softmaxed)]
    logits, already = (Classifier(path, CLASSES).predict(some(3, "float32")) for path in twins)
    assert told(already) == [(answer["label"], answer["confidence"]) for answer in logits]


def test_a_file_that_fixes_its_batch_answers_any_number(tmp_path: Path) -> None:
    """Five rows through a file of two: as many runs as it takes, the last one filled up."""
    path = write(fixed_batch(2), tmp_path / "m.onnx")
    classifier = Classifier(path, CLASSES)
    rows = some(5, "float32")
    together = classifier.predict(rows)
    assert told(together) == [(a["label"], a["confidence"]) for row in rows for a in classifier.predict(row[None])]


@pytest.mark.parametrize(
    ("items", "wanted"),
    [
        (np.zeros((2, 8, 9, 3), np.uint8), "n×3×8×8 float32, not 2×3×8×9 float32, from items of 2×8×9×3"),
        (np.zeros((8, 8, 3), np.uint8), "not 8×3 float32"),
    ],
)
def test_items_that_do_not_fit_are_told(tmp_path: Path, items: Any, wanted: str) -> None:
    """A ValueError in the model's own terms, and not a runtime's."""

    def preprocess(tiles: Any) -> Any:
        return np.moveaxis(tiles, -1, 1).astype(np.float32) if tiles.ndim == 4 else np.zeros((8, 3), np.float32)

    with pytest.raises(ValueError, match=wanted):
        Classifier(write(tile_cnn(), tmp_path / "m.onnx"), CLASSES, preprocess).predict(items)


def test_a_wrong_dtype_is_told(tiles: Tiles) -> None:
    """Floats for a bundle of bytes are not cut to bytes in silence."""
    with pytest.raises(ValueError, match=r"n×16×16×3 uint8, not 1×16×16×3 float64"):
        Classifier(tiles.bundle).predict(np.zeros((1, 16, 16, 3)))


def test_arguments_that_do_not_fit_the_file(tiles: Tiles, tmp_path: Path) -> None:
    """Said when it is made, with what to do."""
    plain = write(tile_cnn(), tmp_path / "m.onnx")
    with pytest.raises(UsageError, match="no labels of its own: give classes"):
        Classifier(plain)
    with pytest.raises(UsageError, match=r"'logits' has 4 columns, but classes has 3"):
        Classifier(plain, CLASSES[:3])
    with pytest.raises(UsageError, match="leave preprocess out"):
        Classifier(tiles.bundle, preprocess=RECIPE)
    with pytest.raises(UsageError, match="leave classes out"):
        Classifier(tiles.bundle, classes=["x", "y"])
    with pytest.raises(UsageError, match="one input, and this model has a, b"):
        Classifier(write(two_inputs(), tmp_path / "two.onnx"), CLASSES)
    with pytest.raises(BundleError, match="no such file"):
        Classifier(tmp_path / "none.onnx", CLASSES)
    with pytest.raises(UsageError, match="'logits' has 1 axes; a Classifier reads rows × classes"):
        Classifier(write(no_batch(), tmp_path / "alone.onnx"), CLASSES)


def test_the_embedded_bundle_answers_its_own_tiles() -> None:
    """The package's model, in three lines of a notebook."""
    from onbudget.engine.embedded import tiles as shipped
    from onbudget.engine.images import decode

    classifier = onbudget.Classifier(bundle_path())
    assert classifier.recipe is not None
    answers = classifier.predict([decode(tile.png, classifier.recipe) for tile in shipped()])
    assert [answer["label"] for answer in answers] == [tile.label for tile in shipped()]
