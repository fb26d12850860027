"""For every room: a test that needs a command which is missing is skipped at home and fails in CI."""

from __future__ import annotations

import os
import shutil

import pytest


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Honour `@pytest.mark.needs("curl", …)`; the commands stand in scripts/system-packages.txt."""
    for mark in item.iter_markers("needs"):
        for command in mark.args:
            if shutil.which(command) is None:
                told = f"needs the command {command!r}; see scripts/system-packages.txt"
                if os.environ.get("CI") == "true":
                    pytest.fail(told, pytrace=False)
                pytest.skip(told)
