"""The satellite example: its labels follow the rule, its areas keep apart, and its pages say what its files say."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from onbudget.core.dialects import read_recipe
from onbudget.engine.bundle import read_metadata
from onbudget.engine.embedded import bundle_path

HERE = Path(__file__).resolve().parents[2] / "examples" / "harrow_tiles"


@pytest.fixture(scope="module")
def data() -> ModuleType:
    """The example's data.py, under a name of its own: other examples have one too."""
    spec = importlib.util.spec_from_file_location("harrow_tiles_data", HERE / "data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _constants(name: str) -> dict[str, object]:
    """Module-level literals of one of the example's files, without importing torch."""
    tree = ast.parse((HERE / name).read_text())
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                found[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    return found


def _scene(data: ModuleType, water: int = 0, green: int = 0) -> np.ndarray:
    """A scene whose columns are `water` of water, then `green` of vegetation, then built-up, in every tile's width."""
    bands = {"water": (60, 70, 60, 10, 10), "green": (60, 60, 50, 100, 90), "built": (80, 70, 70, 60, 100)}
    scene = np.zeros((*data.SCENE, 6), np.uint8)
    for column in range(data.SCENE[1]):
        place = column % data.SIZE
        kind = "water" if place < water else "green" if place < water + green else "built"
        scene[:, column, :5] = bands[kind]
    return scene


@pytest.mark.parametrize(
    ("water", "green", "label", "clear"),
    [
        (64, 0, "water", True),
        (50, 0, "water", False),
        (32, 0, "coast", True),
        (11, 0, "coast", False),
        (0, 64, "vegetation", True),
        (0, 36, "vegetation", False),
        (0, 0, "built-up", True),
        (0, 30, "built-up", False),
        (7, 50, "vegetation", False),
    ],
)
def test_labels_follow_the_shares_of_pixels(data: ModuleType, water: int, green: int, label: str, clear: bool) -> None:
    """A tile's label and whether it is clear follow from its pixels' infrared indices, at every threshold."""
    tiles = data.cut(_scene(data, water, green), data.HELD_OUT, data.SIZE)
    assert {data.LABELS[place] for place in tiles.truth} == {label}
    assert set(tiles.clear) == {clear}
    assert len(tiles.only_clear().truth) == (len(tiles.truth) if clear else 0)


def test_tiles_show_red_green_and_blue_and_no_infrared(data: ModuleType) -> None:
    """A tile is the scene's third, second and first band at its corner, whatever the other bands are."""
    rng = np.random.default_rng(3)
    scene = rng.integers(1, 255, (*data.SCENE, 6), dtype=np.uint8)
    tiles = data.cut(scene, data.HELD_OUT, 16)
    row, column = tiles.corners[5]
    np.testing.assert_array_equal(tiles.pixels[5], scene[row : row + 64, column : column + 64, [2, 1, 0]])
    scene[..., 3:] = 255 - scene[..., 3:]
    np.testing.assert_array_equal(data.cut(scene, data.HELD_OUT, 16).pixels, tiles.pixels)


def test_no_tile_crosses_from_training_to_held_out(data: ModuleType) -> None:
    """Every row of pixels belongs to one side, together they are the scene, and no tile has rows of both."""
    sides = {name: {r for a, b in getattr(data, name) for r in range(a, b)} for name in ("TRAINING", "HELD_OUT")}
    assert not sides["TRAINING"] & sides["HELD_OUT"]
    assert sides["TRAINING"] | sides["HELD_OUT"] == set(range(data.SCENE[0]))
    for (name, rows), stride in zip(sides.items(), data.STRIDES, strict=True):
        corners = list(data.corners(getattr(data, name), stride))
        assert len(corners) >= 60
        assert all(set(range(row, row + data.SIZE)) <= rows for row, _ in corners)


def test_shipped_tiles_lie_in_the_held_out_area(data: ModuleType) -> None:
    """The tiles in the package are among those that the network was never trained on."""
    held_out = set(data.corners(data.HELD_OUT, data.STRIDES[1]))
    listed = json.loads((bundle_path().parent / "tiles.json").read_text())["held_out"]
    assert {(tile["row"], tile["column"]) for tile in listed} <= held_out


def test_training_and_serving_have_one_definition() -> None:
    """recipe.json and the embedded bundle carry model.py's MEAN and STD, and labels.txt is data.py's LABELS."""
    model, labels = _constants("model.py"), _constants("data.py")["LABELS"]
    told = read_metadata(bundle_path())
    assert told is not None
    assert told.recipe is not None
    recipe = read_recipe(json.loads((HERE / "recipe.json").read_text()))
    assert recipe == told.recipe
    assert (recipe.mean, recipe.std) == (model["MEAN"], model["STD"])
    assert tuple((HERE / "labels.txt").read_text().split("\n")[:-1]) == labels == told.labels


def test_the_page_says_what_the_figures_say() -> None:
    """The README's accuracies, intervals and confusion matrix are those that train.py wrote to figures.json."""
    page = (HERE / "README.md").read_text()
    held_out = json.loads((HERE / "figures.json").read_text())["held_out"]
    for name, row in (("clear", "clear tiles"), ("clear_and_ambiguous", "with the ambiguous ones")):
        found = held_out[name]
        told = re.search(rf"^\| {row} \| (.+) \|$", page, re.MULTILINE)
        assert told, row
        numbers = [float(n) for n in re.findall(r"\d+\.?\d*", told[1])]
        ends = [100 * end for key in ("as_if_independent", "at_disjoint_tiles") for end in found[f"wilson_95_{key}"]]
        expected = [found["right"], found["tiles"], 100 * found["accuracy"], *ends, found["disjoint_tiles"]]
        np.testing.assert_allclose(numbers, expected, atol=0.06)
    for truth, answers in held_out["clear"]["confusion_truth_then_answer"].items():
        assert f"| {truth} | " + " | ".join(str(n) for n in answers.values()) + " |" in page
    assert held_out["clear"]["tiles"] >= 60
    assert all(held_out["clear"]["by_label"].values())


def test_it_is_better_than_always_saying_the_same() -> None:
    """The lower end of the honest interval is above the share of the commonest label."""
    clear = json.loads((HERE / "figures.json").read_text())["held_out"]["clear"]
    assert clear["wilson_95_at_disjoint_tiles"][0] > clear["always_the_commonest_label"]


@pytest.mark.torch
def test_weights_are_those_of_the_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch with weights.pt and the recipe answers the shipped tiles as the embedded bundle does."""
    torch = pytest.importorskip("torch")
    from onbudget.engine.embedded import tiles
    from onbudget.engine.images import decode
    from onbudget.make.factory import load_module

    monkeypatch.chdir(HERE)
    net = load_module("model:build", Path("weights.pt"))
    told = read_metadata(bundle_path())
    assert told is not None
    assert told.recipe is not None
    pixels = np.stack([decode(tile.png, told.recipe) for tile in tiles()])
    with torch.inference_mode():
        answers = net(torch.from_numpy(told.recipe.tensor(pixels))).softmax(1).numpy()
    assert [told.labels[row.argmax()] for row in answers] == [tile.label for tile in tiles()]
    np.testing.assert_allclose(answers.max(axis=1), [tile.confidence for tile in tiles()], atol=1e-3)
