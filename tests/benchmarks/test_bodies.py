"""benchmarks/bodies: what is sent has the items and the bytes that it says, and gets the answer that it should."""

from __future__ import annotations

import io
import json
import time
from collections import Counter

import pytest
from bodies import MIX, SEVERAL, contract, mean_items, mixed, padded, photo, several, shape
from PIL import Image

from onbudget.core.errors import RequestError
from onbudget.engine.embedded import bundle_path
from onbudget.prove.payloads import Item
from onbudget.serve.contract import Contract
from onbudget.serve.exchange import Head, Request
from onbudget.serve.items import Parsed
from onbudget.serve.settings import Settings
from onbudget.serve.wire import parse

TAKEN = contract(bundle_path())
OF = shape(TAKEN)


def parsed(item: Item, taken: Contract = TAKEN) -> Parsed:
    """As the server reads it."""
    headers = [(b"content-type", item.kind.encode())]
    return parse(Request(Head(headers), item.body, time.monotonic()), taken, Settings(max_items=100))


@pytest.mark.parametrize("count", [1, 32, 70])
def test_several_items_are_so_many(count: int) -> None:
    """More than there are distinct ones too."""
    assert len(parsed(several(OF, count)).items) == count


@pytest.mark.parametrize("size", [20_000, 1_000_000])
def test_a_padded_body_has_its_size_and_one_item(size: int) -> None:
    """To the byte; the spaces are within the JSON."""
    item = padded(OF, size)

    assert len(item.body) == size
    assert len(json.loads(item.body)[OF.field]) == len(parsed(item).items) == 1


def test_a_body_cannot_be_padded_to_less() -> None:
    """An item of 12,288 bytes takes more than 12,000 in base64."""
    with pytest.raises(ValueError, match="12000 are too few"):
        padded(OF, 12_000)


@pytest.mark.parametrize("size", [12_000, 192_000])
def test_a_photo_has_its_size_and_more_pixels_the_larger_it_is(size: int) -> None:
    """Within 5 %, and some 0.3 bytes a pixel, as the larger ones of telephones."""
    item = photo(size)
    width, height = Image.open(io.BytesIO(item.body)).size

    assert len(item.body) == pytest.approx(size, rel=0.05)
    assert 0.2 < len(item.body) / (width * height) < 0.4
    assert len(parsed(item).items) == 1


def test_the_mix_is_a_hundred_requests_in_another_order_by_seed() -> None:
    """As many of each kind as MIX says; a seed gives the same order again."""
    first, again, other = mixed(TAKEN), mixed(TAKEN), mixed(TAKEN, 1)

    assert Counter(kind for kind, _, _ in first) == dict(MIX)
    assert first == again
    assert [kind for kind, _, _ in first] != [kind for kind, _, _ in other]


def test_the_mix_gets_the_answers_that_it_says() -> None:
    """Each is parsed, or refused with its status; items are counted as the mean has them."""
    mix, items = mixed(TAKEN), 0
    for kind, item, status in mix:
        if status == 200:
            items += len(parsed(item).items)
        else:
            with pytest.raises(RequestError) as told:
                parsed(item)
            assert (kind, told.value.status) == ("wrong", status)

    assert {status for kind, _, status in mix if kind == "wrong"} == {400, 415, 422}
    assert mean_items(mix) == items / len(mix) == (97 + 8 * (SEVERAL - 1)) / 100
