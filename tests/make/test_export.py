"""Exporting: the batch axis is free because it was run, the answers are PyTorch's, the names are the ones asked for."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onbudget.core.errors import ExportFailed, GateFailed, UsageError
from onbudget.engine.bundle import read_metadata
from onbudget.engine.session import load_runner
from onbudget.make import export as subject
from onbudget.make.export import ExportOptions, export

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).parent))
import torch_modules as modules  # noqa: E402 - a file beside this one, which tests do not import as a package

sys.path.pop(0)


def options(tmp_path: Path, **changes: Any) -> ExportOptions:
    """Flat rows of 8 through the older exporter, which takes milliseconds."""
    return ExportOptions(**{"example": (1, 8), "exporter": "legacy", "output": tmp_path / "m.onnx"} | changes)


@pytest.mark.parametrize("exporter", ["dynamo", "legacy"])
def test_a_network_in_training_mode_becomes_one_verified_file(
    exporter: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """An example of one row stays open, eval mode is forced and undone, all in one file (pain 31, 36, 39)."""
    module = modules.ConvNet()
    module.norm.eval()  # a mixed state, to be found again afterwards
    chosen = options(
        tmp_path, example=(1, 3, 16, 16), input_name="tiles", output_name=("logits",), exporter=exporter, max_batch=9
    )
    report = export(module, chosen)

    assert [p.training for p in module.modules()] == [True, True, False, True, True]
    assert any("training mode (4 of its parts)" in note for note in report.notes)
    assert report.warnings == ()
    assert capfd.readouterr() == ("", "")  # PyTorch's own noise stays inside
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
    assert list(report.parity.by_rows) == [1, 2, 3, 9]
    assert report.parity.worst < 1e-6 < report.parity.scale

    runner = load_runner(chosen.output)
    assert [(p.name, p.dtype, p.shape) for p in runner.inputs] == [("tiles", "float32", (None, 3, 16, 16))]
    assert [(p.name, p.dtype, p.shape) for p in runner.outputs] == [("logits", "float32", (None, 4))]
    x = np.random.default_rng(5).standard_normal((5, 3, 16, 16)).astype(np.float32)
    with torch.no_grad():
        wanted = module.eval()(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(runner.run({"tiles": x})[0], wanted, atol=1e-5)

    passport = read_metadata(chosen.output)
    assert passport is not None
    assert (passport.params, passport.output, passport.field) == (276, "logits", "tiles")
    assert passport.unbatchable == ""
    assert passport.exporter["name"] == exporter
    assert passport.exporter["torch"] == torch.__version__
    model = onnx.load(chosen.output)
    assert passport.exporter["opset"] == model.opset_import[0].version
    assert passport.parity["torch_vs_onnx"]["by_rows"].keys() == {"1", "2", "3", "9"}
    onnx.checker.check_model(model, full_check=True)
    assert runner.sha256 == report.sha256
    json.dumps(report.to_dict(), allow_nan=False)


@pytest.mark.parametrize("exporter", ["dynamo", "legacy"])
def test_a_file_says_nothing_of_the_machine_that_made_it(exporter: str, tmp_path: Path) -> None:
    """No path, source line or stack trace of the exporting machine is left in the file."""
    export(modules.OpenMask(), options(tmp_path, exporter=exporter))
    content = (tmp_path / "m.onnx").read_bytes()
    for trace in (b".py", b"stack_trace", str(Path.cwd()).encode(), b"forward"):
        assert trace not in content


def test_a_mask_from_the_batch_size_that_stays_open_is_exported(tmp_path: Path) -> None:
    """A mask that is sized by x.shape[0] passes when the exporter keeps it open (pain 32)."""
    export(modules.OpenMask(), options(tmp_path))
    assert load_runner(tmp_path / "m.onnx").inputs[0].shape == (None, 8)


def test_a_mask_that_freezes_the_batch_fails_with_the_node(tmp_path: Path) -> None:
    """Both exporters freeze it; the error names each one's node and nothing is left at the output (pain 32)."""
    with pytest.raises(GateFailed) as caught:
        export(modules.FrozenMask(), options(tmp_path, exporter="auto"))
    dynamo, legacy, kept = str(caught.value).splitlines()[1:]
    assert "dynamo: the batch axis is frozen at 7; look at the MatMul node" in dynamo
    assert "legacy: the batch axis is not free" in legacy
    assert "MatMul node '/MatMul'" in legacy
    assert "constant of shape [7, 7]" in legacy
    assert kept.endswith("m.failed.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["m.failed.onnx"]
    assert caught.value.exit_code == 12


def test_a_constant_batch_in_a_reshape_fails_with_the_node(tmp_path: Path) -> None:
    """x.view(4, -1) is found, named, and told to be the module's own doing (pain 33)."""
    with pytest.raises(GateFailed, match=r"4 rows for 1 row in \(in PyTorch too\)") as caught:
        export(modules.FourRows(), options(tmp_path, example=(4, 8)))
    assert "Reshape node '/Reshape' with the constant shape [4, -1]" in str(caught.value)


def test_what_only_the_older_exporter_takes_falls_back_and_says_why(tmp_path: Path) -> None:
    """Control flow on a value: the newer exporter refuses, the older traces; both facts and the line are told."""
    report = export(modules.HarmlessBranch(), options(tmp_path, exporter="auto"))
    assert report.exporter["name"] == "legacy"
    assert any("the dynamo exporter was given up: the export failed: Guard" in note for note in report.notes)
    (warning,) = report.warnings
    assert "torch_modules.py:" in warning
    assert "the file always takes the way that was taken" in warning
    with pytest.raises(ExportFailed) as caught:
        export(modules.HarmlessBranch(), options(tmp_path, exporter="dynamo", output=tmp_path / "d.onnx"))
    assert "torch_modules.py:" in str(caught.value)
    assert "Traceback (most recent call last)" in (tmp_path / "d.export.log").read_text()


def test_a_branch_that_was_traced_away_wrongly_is_caught(tmp_path: Path) -> None:
    """Parity is measured on rows above and below zero, so a file that knows one way only fails."""
    with pytest.raises(GateFailed, match="differs from PyTorch's by"):
        export(modules.RealBranch(), options(tmp_path))


def test_without_onnxscript_auto_falls_back_and_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newer exporter's own need is told when it is missing."""
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    report = export(modules.OpenMask(), options(tmp_path, exporter="auto"))
    assert report.exporter["name"] == "legacy"
    assert any("needs onnxscript: pip install 'onbudget[make]'" in note for note in report.notes)


def test_answers_outside_the_tolerance_leave_the_output_as_it_was(tmp_path: Path) -> None:
    """A failed gate keeps the earlier file, keeps the failed one beside it, and a later success clears that."""
    out = tmp_path / "m.onnx"
    out.write_bytes(b"earlier")
    chosen = options(tmp_path, example=(1, 3, 16, 16))
    with pytest.raises(GateFailed, match=r"differs from PyTorch's by .* \(tolerance 1e-12"):
        export(modules.ConvNet(), ExportOptions(**{**_fields(chosen), "tolerance": 1e-12}))
    assert out.read_bytes() == b"earlier"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.failed.onnx", "m.onnx"]
    export(modules.ConvNet(), chosen)
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def _fields(chosen: ExportOptions) -> dict[str, Any]:
    return {name: getattr(chosen, name) for name in ExportOptions.__dataclass_fields__}


def test_a_module_that_mixes_rows_is_exported_and_marked(tmp_path: Path) -> None:
    """Parity with PyTorch holds, batching does not: the passport says so, and so does the report."""
    report = export(modules.Centred(), options(tmp_path))
    passport = read_metadata(tmp_path / "m.onnx")
    assert passport is not None
    assert "depends on its batch-mates" in passport.unbatchable
    assert any(passport.unbatchable in warning for warning in report.warnings)


def test_a_module_that_never_answers_twice_alike_is_told_why(tmp_path: Path) -> None:
    """Dropout called as a function ignores eval(); the failure names it (pain 36)."""
    with pytest.raises(GateFailed, match=r"dropout called as a\s+function without training=self\.training"):
        export(modules.AlwaysDropping(), options(tmp_path))


def test_a_dict_of_tensors_gets_a_name_each(tmp_path: Path) -> None:
    """Nested answers are flattened in order, absent ones left out; the wrong count of names is refused."""
    export(modules.Heads(), options(tmp_path, output_name=("a", "b")))
    x = np.ones((2, 8), np.float32)
    a, b = load_runner(tmp_path / "m.onnx").run({"input": x}, ["a", "b"])
    assert (a == 2).all()
    assert (b == x + 1).all()
    with pytest.raises(UsageError, match="answers with 2 tensors and there are 1 names"):
        export(modules.Heads(), options(tmp_path))


@pytest.mark.parametrize("exporter", ["dynamo", "legacy"])
def test_names_may_be_those_of_weights(exporter: str, tmp_path: Path) -> None:
    """A name that a weight has already goes to the input and the output all the same."""
    chosen = options(tmp_path, exporter=exporter, input_name="weight", output_name=("bias",))
    export(torch.nn.Linear(8, 3), chosen)
    runner = load_runner(chosen.output)
    assert ([p.name for p in runner.inputs], [p.name for p in runner.outputs]) == (["weight"], ["bias"])


def test_whole_numbers_go_in_where_asked(tmp_path: Path) -> None:
    """int64 inputs get small numbers as examples."""
    export(modules.Words(), options(tmp_path, dtype="int64"))
    assert load_runner(tmp_path / "m.onnx").inputs[0].dtype == "int64"


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (modules.Talker, "answers with a str"),
        (modules.Nothing, "no finite number"),
        (modules.Unused, "the module does not use it"),
        (modules.ConvNet, r"fails with float32 of 1x8: RuntimeError: Expected 3D .*torch_modules\.py:\d+"),
    ],
)
def test_modules_that_cannot_become_a_file_say_why(module: Any, said: str, tmp_path: Path) -> None:
    """The reason is the module's own, with the line where there is one."""
    with pytest.raises((ExportFailed, GateFailed), match=said):
        export(module(), options(tmp_path))
    assert not (tmp_path / "m.onnx").exists()


def test_the_opset_is_the_one_asked_for_or_nothing(tmp_path: Path) -> None:
    """An exporter that writes another opset than asked is not believed."""
    assert export(modules.OpenMask(), options(tmp_path, opset=13)).exporter["opset"] == 13
    with pytest.raises(ExportFailed, match="99"):
        export(modules.OpenMask(), options(tmp_path, opset=99))


def test_weights_that_one_file_cannot_hold_are_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the limit of one protobuf message there is no export."""
    monkeypatch.setattr(subject, "LIMIT", 100)
    with pytest.raises(ExportFailed, match=r"weights take 1\.18 kB"):
        export(modules.ConvNet(), options(tmp_path, example=(1, 3, 16, 16)))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"example": ()}, "--example 1x3x64x64"),
        ({"input_name": "x", "output_name": ("x",)}, "must differ"),
        ({"output_name": ("",)}, "not be empty"),
        ({"max_batch": 0}, "--max-batch"),
        ({"tolerance": float("nan")}, "--tolerance"),
        ({"output": Path("m.pt")}, r"m\.pt"),
        ({"output": Path("nowhere/m.onnx")}, "a folder that is there"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    """Each names its flag."""
    with pytest.raises(UsageError, match=said):
        options(tmp_path, **changes)


def test_what_pytorchs_own_layers_trace_away_is_not_the_users_worry(tmp_path: Path) -> None:
    """An LSTM checks its shapes in Python: the older exporter warns of PyTorch's own lines, and we do not."""
    report = export(modules.Recurrent(), options(tmp_path, example=(1, 5, 8)))
    assert report.warnings == ()
    assert report.mates.ok
