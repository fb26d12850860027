"""`pkg.module:factory`: what it names, and whose fault it is when it names nothing."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onbudget.core.errors import ExportFailed, OnbudgetError, UsageError
from onbudget.make.factory import load_module

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

SOURCE = """
import torch
from torch import nn

ready = nn.Linear(2, 2)
number = 5

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)

class Made:
    @staticmethod
    def net():
        return Net()

def make():
    import late_neighbour
    return Net()

def angry():
    raise ValueError("no such checkpoint: best.pt")

def needs(classes):
    return Net()

def wrong():
    return {"state": 1}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "their_model.py").write_text(SOURCE)
    (tmp_path / "late_neighbour.py").write_text("")
    (tmp_path / "broken_model.py").write_text("import json\nimport no_such_package_here\n")
    (tmp_path / "slip_model.py").write_text("x = 1 / 0\n")
    known = set(sys.modules)
    path = list(sys.path)
    yield tmp_path
    assert sys.path == path
    for name in set(sys.modules) - known:
        if "_model" in name or name == "late_neighbour":
            del sys.modules[name]


@pytest.mark.parametrize("target", ["their_model:make", "their_model:Net", "their_model:Made.net"])
def test_a_function_a_class_and_a_dotted_name_all_make_the_module(target: str, folder: Path) -> None:
    """Anything callable without arguments will do, and its folder is importable while it runs."""
    assert type(load_module(target, folder=folder)).__name__ == "Net"


def test_a_module_itself_is_taken_as_it_is(folder: Path) -> None:
    """No call where there is nothing to call."""
    assert isinstance(load_module("their_model:ready", folder=folder), torch.nn.Linear)


@pytest.mark.parametrize(
    ("target", "kind", "said"),
    [
        ("their_model", UsageError, "write pkg.module:factory, as in model:make_model"),
        ("their_model.py:make", UsageError, "write pkg.module:factory"),
        ("their_modle:make", UsageError, r"no module 'their_modle' in /.* did you mean 'their_model'\?"),
        ("their_model:mak", UsageError, r"their_model\.py\) has no 'mak'; did you mean 'make'\?"),
        ("their_model:Made.nett", UsageError, "has no 'Made.nett'; did you mean 'net'"),
        ("their_model:number", UsageError, "is of type int, neither"),
        ("their_model:wrong", UsageError, "makes a dict, not a torch.nn.Module"),
        ("their_model:needs", UsageError, "without arguments: .*'classes'"),
        (
            "their_model:angry",
            ExportFailed,
            r"raised ValueError: no such checkpoint: best\.pt \(at .*their_model\.py:23\)",
        ),
        (
            "broken_model:make",
            ExportFailed,
            r"ModuleNotFoundError: .*no_such_package_here.* \(at .*broken_model\.py:2\)",
        ),
        ("slip_model:make", ExportFailed, r"ZeroDivisionError: division by zero \(at .*slip_model\.py:1\)"),
    ],
)
def test_a_target_that_gives_no_module_says_whose_fault_it_is(
    target: str, kind: type[OnbudgetError], said: str, folder: Path
) -> None:
    """Names that are not there are a usage error with the nearest one; their code's own errors keep their line."""
    with pytest.raises(kind, match=said):
        load_module(target, folder=folder)


def test_weights_are_loaded_into_the_module(folder: Path) -> None:
    """A state_dict, or a checkpoint that holds one under that name."""
    state = {"inner.weight": torch.full((3, 4), 7.0), "inner.bias": torch.zeros(3)}
    for name, saved in (("plain.pt", state), ("whole.pt", {"epoch": 3, "state_dict": state})):
        torch.save(saved, folder / name)
        module = load_module("their_model:make", folder / name, folder)
        assert (module.inner.weight == 7).all()


def test_weights_never_run_code(folder: Path) -> None:
    """A pickle that would call something is refused, and did not call it."""

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return exec, (f"open({str(folder / 'ran')!r}, 'w')",)

    torch.save({"inner.weight": Evil()}, folder / "evil.pt", pickle_module=pickle)
    with pytest.raises(UsageError, match="loads without running code"):
        load_module("their_model:make", folder / "evil.pt", folder)
    assert not (folder / "ran").exists()


def test_weights_that_do_not_fit_are_named(folder: Path) -> None:
    """Missing files, other things and other modules' weights are told apart."""
    torch.save({"other": torch.ones(1)}, folder / "other.pt")
    torch.save(torch.ones(1), folder / "tensor.pt")
    for name, said in (
        ("none.pt", "no such file"),
        ("other.pt", "does not fit the module: .*Missing key"),
        ("tensor.pt", "holds a Tensor"),
        ("their_model.py", "is not a state_dict"),
    ):
        with pytest.raises(UsageError, match=said):
            load_module("their_model:make", folder / name, folder)
