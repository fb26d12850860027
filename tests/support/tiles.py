"""A small picture bundle and its numpy reference, for everything that serves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onbudget.core.recipe import Recipe
from onbudget.core.tasks import softmax
from onbudget.engine.session import load_runner
from onbudget.make.fuse import BundleOptions, make_bundle


def picture_cnn(classes: int) -> bytes:
    """A convolution, a mean and a matrix: (n, 3, 16, 16) float32 → (n, classes) logits that differ from row to row."""
    rng = np.random.default_rng(7)
    weights = {
        "w": rng.standard_normal((8, 3, 3, 3)).astype(np.float32),
        "m": rng.standard_normal((8, classes)).astype(np.float32) * 2,
    }
    nodes = [
        helper.make_node("Conv", ["tiles", "w"], ["c"], kernel_shape=[3, 3], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "tiles",
        [helper.make_tensor_value_info("tiles", TensorProto.FLOAT, ["n", 3, 16, 16])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", classes])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


class Tiles:
    """A small picture bundle, made by `onbudget bundle`'s own function, and its numpy reference."""

    def __init__(self, folder: Path) -> None:
        self.labels = ("water", "town", "wood", "field")
        self.recipe = Recipe(
            kind="picture",
            shape=(16, 16, 3),
            resize="stretch",
            size=(16, 16),
            resample="bilinear",
            scale=1 / 255,
            mean=(0.485, 0.456, 0.406),
            std=(0.229, 0.224, 0.225),
        )
        self.source = folder / "tiles.onnx"
        self.bundle = folder / "served.onnx"
        self.source.write_bytes(picture_cnn(len(self.labels)))
        recipe, labels = folder / "recipe.json", folder / "labels.txt"
        recipe.write_text(json.dumps(self.recipe.to_dict()))
        labels.write_text("\n".join(self.labels))
        make_bundle(self.source, BundleOptions(recipe=recipe, labels=labels, field="tiles", output=self.bundle))
        self._bare = load_runner(self.source)

    def some(self, count: int, seed: int = 1) -> np.ndarray[Any, Any]:
        """Distinct uint8 tiles, (count, 16, 16, 3)."""
        return np.random.default_rng(seed).integers(0, 256, (count, 16, 16, 3), dtype=np.uint8)

    def expect(self, tiles: np.ndarray[Any, Any]) -> list[tuple[str, float]]:
        """Label and probability by the numpy recipe, the unfused model one row at a time, and softmax."""
        answers = []
        for tile in tiles:
            feeds = {self._bare.inputs[0].name: self.recipe.tensor(tile[None])}
            row = softmax(self._bare.run(feeds)[0])[0]
            answers.append((self.labels[int(row.argmax())], float(row.max())))
        return answers
