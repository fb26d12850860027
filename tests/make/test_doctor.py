"""`check`: what a file promises is tested, what does not hold is told with its mending, and bundles are marked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import quantize_dynamic

from onbudget.core.errors import BundleError, UsageError
from onbudget.core.metadata import Metadata
from onbudget.core.recipe import Recipe
from onbudget.engine.bundle import read_metadata, with_metadata
from onbudget.make.doctor import CHECKS, CheckOptions, Examination, examine, runtime_limits

WEIGHTS = np.random.default_rng(7).standard_normal((8, 5)).astype(np.float32)


def model(batch: Any = "batch", *, ir_version: int = 8, opset: int = 17) -> Any:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="mm")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 5])],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version, producer_name="hand"
    )


def written(path: Path, made: Any, passport: Metadata | None = None) -> Path:
    data = made.SerializeToString()
    path.write_bytes(data if passport is None else with_metadata(data, passport))
    return path


def quantised(folder: Path, passport: Metadata | None = None) -> Path:
    quantize_dynamic(written(folder / "float.onnx", model()), folder / "int8.onnx")
    made = onnx.load(folder / "int8.onnx")
    return written(folder / "int8.onnx", made, passport)


def levels(seen: Examination) -> dict[str, str]:
    return {finding.check: finding.level for finding in seen.findings}


def test_a_sound_file_passes_every_check(tmp_path: Path) -> None:
    """Each check of the table says ok once, and the numbers of file and runtime are told."""
    seen = examine(written(tmp_path / "m.onnx", model()))
    assert levels(seen) == dict.fromkeys(CHECKS, "ok")
    assert seen.ok
    assert not seen.marked
    assert (seen.ir_version, seen.opsets, seen.producer, seen.passport) == (8, {"": 17}, "hand", None)
    assert json.loads(json.dumps(seen.to_dict(), allow_nan=False))["runtime"]["opset"] >= 17


@pytest.mark.parametrize("what", ["ir_version", "opset"])
def test_a_file_newer_than_the_runtime_is_told_both_numbers_and_the_fix(what: str, tmp_path: Path) -> None:
    """One above the limit fails, the limit itself does not (pain 37)."""
    limit = getattr(runtime_limits(), what)
    assert examine(written(tmp_path / "at.onnx", model(**{what: limit}))).ok
    seen = examine(written(tmp_path / "above.onnx", model(**{what: limit + 1})))
    told = next(f for f in seen.findings if f.check == "versions")
    assert levels(seen) == {"versions": "fail", "loads": "fail"}
    assert f" {limit + 1};" in told.what
    assert told.what.endswith(f"up to {limit}")
    assert ("set ir_version" if what == "ir_version" else "--opset 20") in told.mend
    assert "::" not in next(f for f in seen.findings if f.check == "loads").what


def test_an_opset_older_than_promised_is_warned_of(tmp_path: Path) -> None:
    """It may load, so it is no failure."""
    assert levels(examine(written(tmp_path / "m.onnx", model(opset=6))))["versions"] == "warn"


def test_a_fixed_batch_is_a_warning_and_names_the_input(tmp_path: Path) -> None:
    """The file says so itself: no promise is broken, and it is told once."""
    seen = examine(written(tmp_path / "m.onnx", model(4)))
    assert seen.ok
    assert [(f.level, f.where, f.what) for f in seen.findings if f.check.startswith("batch")] == [
        ("warn", "input 'x'", "fixed at 4")
    ]


def test_a_plain_file_that_mixes_rows_fails_and_is_never_touched(tmp_path: Path) -> None:
    """Dynamically quantised int8: the operator is named, and the file's bytes stay as they were (pain 30)."""
    path = quantised(tmp_path)
    before = path.read_bytes()
    seen = examine(path)
    told = next(f for f in seen.findings if f.check == "batch-mates")
    assert told.level == "fail"
    assert "DynamicQuantizeLinear" in told.mend
    assert not seen.ok
    assert not seen.marked
    assert path.read_bytes() == before


def test_a_bundle_that_mixes_rows_is_marked_once(tmp_path: Path) -> None:
    """The first check fails and writes the reason into the passport; the next finds the promise kept."""
    path = quantised(tmp_path, Metadata(field="x", params=45, parity={"fused": {"worst": 0.0}}))
    first = examine(path)
    assert (first.ok, first.marked) == (False, True)
    passport = read_metadata(path)
    assert passport is not None
    assert passport == first.passport
    assert "batch-mates" in passport.unbatchable
    assert (passport.field, passport.params) == ("x", 45)
    assert passport.parity.keys() == {"fused", "batch_mates"}
    second = examine(path)
    assert (second.ok, second.marked, levels(second)["batch-mates"]) == (True, False, "warn")
    assert second.sha256 == first.sha256


def test_marking_can_be_left_out(tmp_path: Path) -> None:
    """--no-mark tells and leaves the file alone."""
    path = quantised(tmp_path, Metadata())
    before = path.read_bytes()
    assert not examine(path, CheckOptions(mark=False)).marked
    assert path.read_bytes() == before


def test_a_mark_that_the_probe_does_not_confirm_is_doubted(tmp_path: Path) -> None:
    """A bundle that is served alone for nothing is worth a word."""
    path = written(tmp_path / "m.onnx", model(), Metadata(unbatchable="it was slow"))
    told = [f for f in examine(path).findings if f.check == "batch-mates"]
    assert [f.level for f in told] == ["ok", "warn"]
    assert "it was slow" in told[1].what


def test_the_recipe_bounds_what_is_tried(tmp_path: Path) -> None:
    """A model that mixes rows only outside its recipe's range keeps its promise inside."""
    # 0.001 × the largest value of the batch above 10 is added to every row: nothing at all within the recipe's range
    ten, little = (
        numpy_helper.from_array(np.float32([10]), "ten"),
        numpy_helper.from_array(np.float32([1e-1]), "little"),
    )
    made = model()
    made.graph.initializer.extend([ten, little])
    made.graph.node[0].output[0] = "z"
    made.graph.node.extend(
        [
            helper.make_node("Sub", ["x", "ten"], ["over"]),
            helper.make_node("Relu", ["over"], ["positive"]),
            helper.make_node("ReduceMax", ["positive"], ["largest"], keepdims=0),
            helper.make_node("Mul", ["largest", "little"], ["leak"]),
            helper.make_node("Add", ["z", "leak"], ["y"]),
        ]
    )
    recipe = Recipe("tensor", (8,), input_dtype="float32", input_range=(0.0, 1.0), layout="as-is")
    assert not examine(written(tmp_path / "plain.onnx", made)).ok
    assert examine(written(tmp_path / "bundle.onnx", made, Metadata(recipe=recipe))).ok


def test_a_missing_weight_file_is_named(tmp_path: Path) -> None:
    """External data that is not beside the model is an error with the file's name (pain 38)."""
    onnx.save(model(), tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    assert examine(tmp_path / "m.onnx").ok
    (tmp_path / "m.data").unlink()
    with pytest.raises(BundleError, match=r"m\.data"):
        examine(tmp_path / "m.onnx")


def test_a_batch_for_nobody_is_refused() -> None:
    """A largest batch of zero cannot be meant."""
    with pytest.raises(UsageError, match="--max-batch"):
        CheckOptions(max_batch=0)


def test_a_name_that_is_no_text_is_damage(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """onnxruntime neither prints to stdout nor tries again on other providers; the error says what is wrong."""
    data = model().SerializeToString()
    assert data.count(b"\n\x01x") == 2
    (tmp_path / "m.onnx").write_bytes(data.replace(b"\n\x01x", b"\n\x01\xfb"))
    (told,) = [f for f in examine(tmp_path / "m.onnx").findings if f.check == "loads"]
    assert told.level == "fail"
    assert "utf-8" in told.what or "not text" in told.what
    assert capfd.readouterr().out == ""


def test_a_model_whose_other_axes_cannot_be_guessed_is_only_warned_of(tmp_path: Path) -> None:
    """No size that is tried runs even alone: that proves nothing, so nothing is marked and no gate fails."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "wide"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 5])],
        [numpy_helper.from_array(np.ones((777, 5), np.float32), "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    seen = examine(written(tmp_path / "m.onnx", made, Metadata()))
    (told,) = [f for f in seen.findings if f.check == "batch-mates"]
    assert (told.level, seen.ok, seen.marked) == ("warn", True, False)
    assert told.what.startswith("could not be tested: the model does not run with 1 row: MatMul node")
