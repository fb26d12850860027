"""`tiles`: a small picture bundle, made once."""

from __future__ import annotations

import pytest

from tests.support.tiles import Tiles


@pytest.fixture(scope="session")
def tiles(tmp_path_factory: pytest.TempPathFactory) -> Tiles:
    """A bundle with its numpy reference."""
    return Tiles(tmp_path_factory.mktemp("tiles"))
