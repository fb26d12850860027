"""The service by hand is a real one: it answers as ours does, so that comparing the two is fair."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from onbudget.engine.bundle import read_metadata
from onbudget.engine.children import Server
from onbudget.engine.embedded import bundle_path, tiles
from onbudget.engine.images import decode

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The service by hand, with the embedded bundle."""
    with Server("by hand", ("onbudget.cli.naive", str(bundle_path()))) as server:
        yield server.url()


def _ask(url: str, items: list[str]) -> Any:
    body = json.dumps({"tiles": items}).encode()
    request = urllib.request.Request(f"{url}/predict", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["predictions"]


def test_it_answers_as_the_bundle_does(url: str) -> None:
    """Raw tiles get the labels and confidences that are recorded for the bundle, one at a time and together."""
    told = read_metadata(bundle_path())
    assert told is not None
    assert told.recipe is not None
    items = [base64.b64encode(decode(tile.png, told.recipe).tobytes()).decode() for tile in tiles()]
    together, alone = _ask(url, items), [_ask(url, [item])[0] for item in items]
    for answers in (together, alone):
        assert [answer["label"] for answer in answers] == [tile.label for tile in tiles()]
        confidences = [answer["confidence"] for answer in answers]
        np.testing.assert_allclose(confidences, [tile.confidence for tile in tiles()], atol=1e-3)


@pytest.mark.parametrize("items", [["QUJD"], ["?"], []], ids=["short", "not base64", "none"])
def test_what_is_no_tile_is_refused(url: str, items: list[str]) -> None:
    """It checks what it is sent, as one would by hand."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        _ask(url, items)
    assert caught.value.code == 422
    caught.value.close()
