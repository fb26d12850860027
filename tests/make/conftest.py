"""Fixtures of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.bundling import Bundling


@pytest.fixture
def bundling(tmp_path: Path) -> Bundling:
    return Bundling(tmp_path)
