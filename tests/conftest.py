"""For every room: what a test needs of the machine, and how property tests are run.

A test that needs a command which is missing is skipped at home and fails in CI. Models are built in `tests/models.py`,
bundles and servers in `tests/support/`.
"""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest
from hypothesis import settings

# No deadline: the machine may be busy, and tests do not judge wall time. The same examples on every run, so that a
# failure in one change is that change's own.
settings.register_profile("onbudget", deadline=None, derandomize=True)
settings.load_profile("onbudget")


def pytest_configure(config: pytest.Config) -> None:
    """No test writes to the real home: servers, child processes too, keep their costs in a folder of this run."""
    cache = tempfile.TemporaryDirectory(prefix="onbudget-cache-")
    config.add_cleanup(cache.cleanup)
    os.environ["XDG_CACHE_HOME"] = cache.name


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Honour `@pytest.mark.needs("curl", …)`; the commands stand in scripts/system-packages.txt."""
    for mark in item.iter_markers("needs"):
        for command in mark.args:
            if shutil.which(command) is None:
                told = f"needs the command {command!r}; see scripts/system-packages.txt"
                if os.environ.get("CI") == "true":
                    pytest.fail(told, pytrace=False)
                pytest.skip(told)
