"""The batch-mate probe: what it lets through, and every way in which a model can mix its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onbudget.core.recipe import Recipe
from onbudget.engine.invariance import Invariance, probe
from onbudget.engine.session import Port, load_runner

ROW = 8
WEIGHTS = np.random.default_rng(7).standard_normal((ROW, 5)).astype(np.float32)


@dataclass
class Numpy:
    """A Runner made of one numpy function of the first input; remembers the batch sizes that it was run at."""

    function: Callable[[Any], Any]
    inputs: tuple[Port, ...] = (Port("x", "float32", (None, ROW)),)
    outputs: tuple[Port, ...] = (Port("y", "float32", (None, 5)),)
    seen: list[Any] = field(default_factory=list)

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, stop: Any = None) -> list[Any]:
        self.seen.append(next(iter(feeds.values())))
        result = self.function(*feeds.values())
        return list(result) if isinstance(result, tuple) else [result]


def linear(x: Any) -> Any:
    return x @ WEIGHTS


def test_a_model_that_treats_rows_alike_is_invariant() -> None:
    """A row-wise model passes at 2, 3 and the maximum, and there is no reason to give."""
    found = probe(Numpy(linear), max_batch=16)
    assert found == Invariance(True, found.worst, "y", (2, 3, 16), "")
    assert found.worst < 1e-5


def test_ordinary_rows_are_tried_first_in_the_middle_and_last_among_loud_and_quiet_mates() -> None:
    """At each size the ordinary row meets loud and quiet mates in every kind of place."""
    runner = Numpy(linear)
    probe(runner, max_batch=9)
    for size in (2, 3, 9):
        places: dict[str, set[int]] = {"loud": set(), "quiet": set()}
        for batch in (x for x in runner.seen if len(x) == size):
            strength = np.abs(batch).max(axis=1)
            ordinary = {i for i, s in enumerate(strength) if 0.1 < s < 8}
            mates = "loud" if strength.max() > 8 else "quiet"
            assert ordinary
            assert len(ordinary) < size
            places[mates] |= ordinary
        expected = {0, size // 2, size - 1}
        assert places == {"loud": expected, "quiet": expected}


@pytest.mark.parametrize(
    "leak",
    [
        lambda x: linear(x - x.mean(axis=0)),
        lambda x: linear(x) / np.abs(linear(x)).max(),
        lambda x: linear(np.roll(x, 1, axis=0)),
        lambda x: linear(np.cumsum(x, axis=0)),
        lambda x: linear(x) + (1e-2 if len(x) == 16 else 0.0),
    ],
    ids=["mean over the batch", "scale of the batch", "rows swapped", "first axis is time", "only at the maximum"],
)
def test_a_model_that_mixes_rows_is_caught(leak: Callable[[Any], Any]) -> None:
    """Whatever way rows reach each other, the reason names the output and the size (pain 30)."""
    found = probe(Numpy(leak), max_batch=16)
    assert not found.ok
    assert found.worst > 1e-3
    assert "depends on its batch-mates: output 'y'" in found.reason


def test_a_small_leak_in_the_second_output_is_found_where_it_is() -> None:
    """Each output is held against its own range, so a small one is not drowned by a large one."""
    two = (Port("big", "float32", (None, 5)), Port("small", "float32", (None, 5)))

    def function(x: Any) -> Any:
        return 1e6 * linear(x), 1e-3 * (linear(x) + 0.05 * x.mean())

    found = probe(Numpy(function, outputs=two))
    assert (found.ok, found.output) == (False, "small")
    assert probe(Numpy(lambda x: function(x)[:1], outputs=two), outputs=["big"]).ok


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: linear(x)[:-1] if len(x) > 1 else linear(x), "output 'y' has 1 rows where 2 rows went in"),
        (lambda x: linear(x).reshape(-1), "output 'y' has 5 rows where 1 row went in"),
        (lambda x: np.float32(linear(x).sum()) + np.zeros((), np.float32), "is not a tensor"),
        (lambda x: np.array(linear(x).sum()), "output 'y' has a single number where 1 row went in"),
        (lambda x: linear(x)[:, : 6 - len(x)], "output 'y' has shape (2, 4) in a batch of 2, its rows alone (1, 5)"),
        (lambda x: linear(x) * np.nan, "output 'y' holds no finite number"),
    ],
    ids=["a row too few", "flattened", "scalar", "zero-dimensional", "another width", "all NaN"],
)
def test_outputs_that_are_not_one_row_per_row_are_named(function: Callable[[Any], Any], said: str) -> None:
    """An output whose rows are not the input's rows breaks the probe with the numbers in the reason (pain 42)."""
    found = probe(Numpy(function), max_batch=4)
    assert not found.ok
    assert said in found.reason


def test_a_model_that_refuses_a_size_says_which_and_why() -> None:
    """A runtime's error becomes the reason, with the size that it came at."""

    def only_one(x: Any) -> Any:
        if len(x) > 1:
            raise RuntimeError("cannot be reshaped")
        return linear(x)

    found = probe(Numpy(only_one))
    assert (found.reason, found.sizes) == ("the model does not run with 2 rows: cannot be reshaped", (2,))

    def nothing(x: Any) -> Any:
        raise RuntimeError("no")

    assert probe(Numpy(nothing)).sizes == ()


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((4, ROW), "the first axis of input 'x' is fixed at 4"),
        ((1, None), "fixed at 1; only axis 1 is open, and the batch must come first"),
        ((), "input 'x' is a single number: it has no batch axis"),
    ],
)
def test_a_model_without_an_open_first_axis_is_not_run_at_all(shape: tuple[Any, ...], said: str) -> None:
    """A fixed batch, or a batch that is not first, is told from the shape alone."""
    runner = Numpy(linear, inputs=(Port("x", "float32", shape),))
    assert said in probe(runner).reason
    assert runner.seen == []


def test_open_axes_beside_the_batch_get_a_size_that_the_model_takes() -> None:
    """Where another axis is open, sizes are tried until one runs alone."""

    def needs_64(x: Any) -> Any:
        if x.shape[2] != 64:
            raise RuntimeError("64 or nothing")
        return x.mean(axis=(2, 3))

    runner = Numpy(needs_64, inputs=(Port("x", "float32", (None, 3, None, None)),))
    assert probe(runner).ok
    assert runner.seen[-1].shape == (32, 3, 64, 64)


@pytest.mark.parametrize("dtype", ["float16", "float64", "uint8", "int8", "int64", "bool", "object"])
def test_every_input_type_gets_rows_that_differ_in_strength(dtype: str) -> None:
    """Quiet, ordinary and loud rows exist for every type that onnxruntime knows, and the type is kept."""
    runner = Numpy(lambda x: x, inputs=(Port("x", dtype, (None, 40)),), outputs=(Port("y", dtype, (None, 40)),))
    assert probe(runner, max_batch=2).ok
    quiet, ordinary, loud = (x[0] for x in runner.seen[:3])
    assert {x.dtype for x in runner.seen} == {np.dtype(dtype)}
    assert len({repr(row.tolist()) for row in (quiet, ordinary, loud)}) == 3


def test_a_recipe_bounds_float_rows() -> None:
    """Rows stay inside the range that the recipe promises to the model."""
    recipe = Recipe("tensor", (ROW,), input_dtype="float32", input_range=(2.0, 3.0), layout="as-is")
    runner = Numpy(linear)
    probe(runner, recipe=recipe)
    rows = np.concatenate(runner.seen)
    assert rows.min() >= 2.0
    assert rows.max() <= 3.0


def test_a_largest_batch_of_one_needs_no_mates() -> None:
    """With one row a batch there is nobody to share with."""
    assert probe(Numpy(lambda x: linear(x - x.mean())), max_batch=1).sizes == ()


def test_rows_that_answer_nan_alone_may_answer_nan_in_a_batch() -> None:
    """NaN in the same places is the same answer; NaN that appears with mates is not."""
    holes = np.array([np.nan, 1, 1, 1, 1], np.float32)
    assert probe(Numpy(lambda x: linear(x) * holes)).ok
    assert probe(Numpy(lambda x: linear(x) * (holes if len(x) > 1 else 1))).worst == 1


def _matmul(batch: str | int = "batch") -> Any:
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="mm")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, ROW])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 5])],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_dynamically_quantised_int8_is_caught_and_its_float_parent_is_not(tmp_path: Path) -> None:
    """quantize_dynamic takes its activation scale over the whole batch, so a loud mate coarsens a row (pain 30)."""
    import onnx
    from onnxruntime.quantization import quantize_dynamic

    float_path, int8_path = tmp_path / "float.onnx", tmp_path / "int8.onnx"
    onnx.save(_matmul(), float_path)
    quantize_dynamic(float_path, int8_path)
    assert probe(load_runner(float_path)).ok
    found = probe(load_runner(int8_path))
    assert not found.ok
    assert found.worst > 1e-3
    assert "output 'y'" in found.reason


def test_a_fixed_batch_in_a_real_file_is_told_from_its_shape() -> None:
    """onnxruntime's own ports carry the fixed axis."""
    assert "fixed at 4" in probe(load_runner(_matmul(4).SerializeToString())).reason
