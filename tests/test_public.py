"""The package's public names: sorted, complete, and free until they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import onbudget


def test_public_names_are_sorted_and_exist() -> None:
    """Every name in `__all__` is there, in order, and an unknown one is an AttributeError that lists them."""
    assert sorted(onbudget.__all__) == onbudget.__all__
    for name in onbudget.__all__:
        assert getattr(onbudget, name) is not None
    with pytest.raises(AttributeError, match="create_app"):
        onbudget.nothing  # noqa: B018 - the look-up is the test


def test_importing_the_package_imports_nothing_heavy() -> None:
    """`import onbudget` and the command's own module load neither numpy nor a runtime nor a framework."""
    code = (
        "import sys, onbudget, onbudget.cli.main\n"
        "print(sorted({'numpy', 'onnxruntime', 'onnx', 'torch', 'fastapi', 'PIL', 'rich'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
