"""A body → items, as a table: every accepted shape, and every refusal with its status and its words."""

from __future__ import annotations

import base64
import io
import json
import re
from typing import Any

import numpy as np
import pytest
from PIL import Image

from onbudget.core.errors import BadContent, NotParseable, RequestError, TooLarge, WrongType
from onbudget.core.recipe import Recipe
from onbudget.engine.session import Port
from onbudget.serve.contract import Contract
from onbudget.serve.exchange import Head, Request
from onbudget.serve.items import ARRAYS, BASE64, PICTURE, ROW, Parsed
from onbudget.serve.settings import Settings
from onbudget.serve.wire import _PLAIN_GAP, parse

SETTINGS = Settings(max_items=4, max_pixels=10_000)
TILES = Contract(
    field="tiles",
    inputs=(Port("tiles", "uint8", (None, 4, 4, 3)),),
    shapes=((4, 4, 3),),
    recipe=Recipe(kind="picture", shape=(4, 4, 3), resize="stretch", size=(4, 4)),
    batch=None,
    why_alone="",
)
PIXELS = Contract(
    field="pixels",
    inputs=(Port("pixels", "float32", (None, 6)),),
    shapes=((6,),),
    recipe=Recipe(kind="tensor", shape=(6,), input_dtype="float32", input_range=(0.0, 255.0)),
    batch=None,
    why_alone="",
)
PAIRS = Contract(
    field="instances",
    inputs=(Port("a", "float32", (None, 2)), Port("b", "int64", (None, None))),
    shapes=((2,), (None,)),
    recipe=None,
    batch=None,
    why_alone="",
)
COUNTS = Contract("instances", (Port("n", "uint64", (None, 2)),), ((2,),), None, None, "")
FLAGS = Contract("instances", (Port("on", "bool", (None, 2)),), ((2,),), None, None, "")
REALS = Contract("instances", (Port("x", "float32", (None, 2)),), ((2,),), None, None, "")
WORDS = Contract("instances", (Port("text", "object", (None,)),), ((),), None, None, "")


def picture(kind: str = "PNG", size: tuple[int, int] = (8, 8)) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, (10, 20, 30)).save(out, kind)
    return out.getvalue()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def read(contract: Contract, body: bytes, kind: bytes | None = b"application/json", query: bytes = b"") -> Parsed:
    headers = [] if kind is None else [(b"content-type", kind)]
    return parse(Request(Head(headers, query), body, 0.0), contract, SETTINGS)


def read_json(contract: Contract, value: Any, query: bytes = b"") -> Parsed:
    return read(contract, json.dumps(value).encode(), query=query)


def form(*parts: tuple[str, str, bytes], cut: int = 0) -> tuple[bytes, bytes]:
    body = b""
    for name, kind, data in parts:
        head = f'--edge\r\nContent-Disposition: form-data; name="{name}"; filename="x"\r\n'
        body += head.encode() + (f"Content-Type: {kind}\r\n".encode() if kind else b"") + b"\r\n" + data + b"\r\n"
    body += b"--edge--\r\n"
    return body[: len(body) - cut], b"multipart/form-data; boundary=edge"


ROW48 = bytes(range(48))


@pytest.mark.parametrize("field", ["tiles", "instances"])
def test_raw_rows_in_base64_are_left_for_the_lane(field: str) -> None:
    """Base64 of exactly one row is measured, not decoded, before the queue; both field names work."""
    parsed = read_json(TILES, {field: [b64(ROW48)] * 3})
    assert [kind for kind, _, _ in parsed.items] == [BASE64] * 3
    assert not parsed.single
    assert parsed.name == field


@pytest.mark.parametrize("gap", ["", " ", "\r\n\t"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_rows_in_base64_are_found_without_decoding_json(gap: str, count: int) -> None:
    """Whatever blanks stand between them; they stay bytes, of which the lane makes rows."""
    row = b64(ROW48)
    body = f'{gap}{{{gap}"tiles"{gap}:{gap}[{gap}' + f"{gap},{gap}".join([f'"{row}"'] * count) + f"{gap}]{gap}}}{gap}"
    assert read(TILES, body.encode()).items == [(BASE64, row.encode(), None)] * count


@pytest.mark.parametrize(
    ("body", "items"),
    [
        (b'{"tiles": ["%b"], "top": 2}', 1),
        (b'{"instances": ["%b"], "tiles": ["%b"]}', BadContent),
        (b'{"tiles": ["%b", 1]}', BadContent),
        (b'{"tiles": ["%b" "%b"]}', NotParseable),
        (b'{"tiles": ["%b",]}', NotParseable),
        (b'{"tiles": ["%b"]', NotParseable),
        (b'{"tiles": ["%b"]}}', NotParseable),
        (b'{"tiles": ["%b]}', NotParseable),
        (b'{"tiles": "%b"}', BadContent),
        (b'{"tiles": [["%b"]]}', BadContent),
        (b'["tiles", ["%b"]]', BadContent),
        (b'{"slabs": ["%b"]}', BadContent),
        (b'{"tiles": ["%b", "%b", "%b", "%b", "%b"]}', BadContent),  # one more than may be
        (b'{"tiles": ["%b", "AAAA"]}', BadContent),
        (b'{"tiles": ["=%b"]}', BadContent),
        (b'{"tiles": ["%b"]} {}', NotParseable),
    ],
)
def test_what_is_nearly_a_plain_list_of_rows_is_read_as_json(body: bytes, items: int | type[RequestError]) -> None:
    """Every other body goes the long way, and says what is wrong with it."""
    row = b64(ROW48).encode()
    body = body.replace(b"%b", row)
    if isinstance(items, int):
        assert read(TILES, body).items == [(BASE64, row.decode(), None)] * items
    else:
        with pytest.raises(items):
            read(TILES, body)


@pytest.mark.parametrize("within", ["\\/", '", "'])
def test_what_only_seems_as_long_as_a_row_is_read_as_json(within: str) -> None:
    """With an escaped slash, as some languages write them, or two short items where one could be."""
    contract = Contract("bytes", (Port("bytes", "uint8", (None, 48)),), ((48,),), None, None, "")
    items = within.ljust(32, "A").rjust(64, "A")
    with pytest.raises(BadContent, match="bytes, but one item is 48 bytes"):
        read(contract, f'{{"bytes": ["{items}"]}}'.encode())


def test_more_rows_than_may_be_are_not_all_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body may hold millions of tiny ones, and the event loop waits: they are told as too many, by the long way."""
    looked: list[int] = []

    class Gap:
        def match(self, body: bytes, at: int) -> re.Match[bytes] | None:
            looked.append(at)
            return _PLAIN_GAP.match(body, at)

    monkeypatch.setattr("onbudget.serve.wire._PLAIN_GAP", Gap())
    with pytest.raises(BadContent, match="100 items are too many: the limit is 4"):
        read_json(TILES, {"tiles": [b64(ROW48)] * 100})
    assert len(looked) == 4


@pytest.mark.parametrize("size", [46, 47, 48])
def test_base64_of_another_length_is_no_row(size: int) -> None:
    """With every padding: a row is one where its bytes are as many as an item has, and one more or less is told."""
    port = Port("bytes", "uint8", (None, size))
    contract = Contract("bytes", (port,), ((size,),), None, None, "")
    (item,) = read_json(contract, {"bytes": [b64(bytes(size))]}).items
    assert item == (BASE64, b64(bytes(size)).encode(), None)
    for other in (size - 1, size + 1):
        with pytest.raises(BadContent, match=f"{other} bytes, but one item is {size} bytes"):
            read_json(contract, {"bytes": [b64(bytes(other))]})


def test_a_picture_in_base64_is_known_by_its_magic() -> None:
    """Base64 of another length is decoded and must be an accepted picture."""
    parsed = read_json(TILES, {"tiles": [b64(picture("JPEG"))]})
    assert parsed.items[0][0] is PICTURE


def test_nested_numbers_are_an_item() -> None:
    """Nested lists of the item's shape become an array of the model's dtype."""
    tile = np.arange(48).reshape(4, 4, 3)
    (kind, data, _), other = read_json(TILES, {"tiles": [tile.tolist(), tile.ravel().tolist()]}).items
    assert kind is ARRAYS
    assert data[0].dtype == np.uint8
    assert (data[0] == tile).all()
    assert (other[1][0] == tile).all()


def test_a_flat_list_of_one_items_size_is_one_item() -> None:
    """`{"pixels": [six numbers]}` is one item and gets one object back; a list of two items gets a list."""
    parsed = read_json(PIXELS, {"pixels": [0, 1, 2, 3, 4, 255]})
    assert parsed.single
    assert parsed.items[0][1][0].tolist() == [0, 1, 2, 3, 4, 255]
    assert not read_json(PIXELS, {"pixels": [[0] * 6, [1] * 6]}).single


def test_octets_are_rows_end_to_end() -> None:
    """Raw bytes are cut into rows."""
    parsed = read(TILES, ROW48 * 2, b"application/octet-stream")
    assert [(kind, bytes(data)) for kind, data, _ in parsed.items] == [(ROW, ROW48)] * 2


def test_one_picture_is_single_and_several_are_a_list() -> None:
    """A picture body or one uploaded file gets one prediction; more files get a list."""
    assert read(TILES, picture(), b"image/png").single
    one = form(("file", "image/png", picture()))
    assert read(TILES, *one).single
    two = form(("file", "image/png", picture()), ("file", "", picture("JPEG")))
    parsed = read(TILES, *two)
    assert [kind for kind, _, _ in parsed.items] == [PICTURE] * 2
    assert not parsed.single


def test_no_content_type_means_json() -> None:
    """A request without a content type is tried as JSON."""
    assert len(read(TILES, json.dumps({"tiles": [b64(ROW48)]}).encode(), None).items) == 1


def test_several_inputs_are_objects_bucketed_by_shape() -> None:
    """A model with two inputs takes objects by name; items of other shapes get another bucket."""
    items = [{"a": [1, 2], "b": [7]}, {"a": [3, 4], "b": [7, 8]}, {"a": [5, 6], "b": [9]}]
    parsed = read_json(PAIRS, {"instances": items})
    keys = [key for _, _, key in parsed.items]
    assert keys[0] == keys[2] != keys[1]
    assert parsed.items[1][1][1].dtype == np.int64


def test_text_inputs_take_text() -> None:
    """For a model of strings, a JSON string is the item itself and not base64."""
    parsed = read_json(WORDS, {"instances": ["héllo", "AAAA"]})
    assert [data[0].item() for _, data, _ in parsed.items] == ["héllo", "AAAA"]


@pytest.mark.parametrize("item", [[2**64 - 1, 0], [2**53 + 1, 1.0], [True, 2]])
def test_whole_numbers_keep_every_digit(item: list[int]) -> None:
    """64-bit numbers arrive as they were sent, in whatever company: numpy alone would have made floats of them."""
    (((array,), *_),) = [entry[1:] for entry in read_json(COUNTS, {"instances": [item]}).items]
    assert array.dtype == np.uint64
    assert [int(n) for n in array] == [int(n) for n in item]


def test_a_large_whole_number_is_a_float_to_a_float_model() -> None:
    """JavaScript writes 1e20 as 100000000000000000000: a number like any other."""
    (item,) = read_json(REALS, {"instances": [[10**20, 1]]}).items
    assert item[1][0].tolist() == [np.float32(1e20), 1.0]


def test_booleans_are_two_values_however_they_come() -> None:
    """true, 1, and bytes of 0 and 1; a raw 7 would reach the model as a boolean that is neither."""
    assert read_json(FLAGS, {"instances": [[True, 0]]}).items[0][1][0].tolist() == [True, False]
    assert len(read(FLAGS, bytes([1, 0, 0, 1]), b"application/octet-stream").items) == 2
    with pytest.raises(BadContent, match="item 2"):
        read(FLAGS, bytes([1, 0, 0, 7]), b"application/octet-stream")
    with pytest.raises(BadContent, match="item 1"):
        read_json(FLAGS, {"instances": [b64(bytes([7, 0]))]})


@pytest.mark.parametrize("top", [b"\xb2", b"%C2%B2", b"9" * 5000, b"+3", b"", b"-1", b"1001"])
def test_a_top_that_is_no_small_number_is_refused(top: bytes) -> None:
    """A superscript two is a digit to Python and no number; five thousand nines are too many for it."""
    if not top:
        assert read_json(TILES, {"tiles": [b64(ROW48)]}, b"top=").top == 0
        return
    with pytest.raises(BadContent, match="top must be") as told:
        read_json(TILES, {"tiles": [b64(ROW48)]}, b"top=" + top)
    assert len(str(told.value)) < 200


def test_a_refusal_does_not_send_back_what_it_refuses() -> None:
    """A megabyte of a name or a value comes back as its beginning."""
    much = "x" * 10**6
    for value in ({much: []}, {"tiles": [b64(ROW48)], "top": much}):
        with pytest.raises(BadContent) as told:
            read_json(TILES, value)
        assert len(str(told.value)) < 300
    with pytest.raises(BadContent) as told:
        read_json(PAIRS, {"instances": [{much: 1}]})
    assert len(str(told.value)) < 300


@pytest.mark.parametrize("value", [{"tiles": [b64(ROW48)], "top": 3}, {"tiles": [b64(ROW48)]}])
def test_top_comes_from_the_body_or_the_query(value: dict[str, Any]) -> None:
    """`top` may stand in the JSON or in the query string."""
    query = b"" if "top" in value else b"top=3"
    assert read_json(TILES, value, query).top == 3


JUNK = b64(ROW48)[:-4] + "!!!!"
REFUSED: list[tuple[str, Contract, bytes, bytes | None, type[RequestError], str]] = [
    ("not json", TILES, b"{", b"application/json", NotParseable, "not JSON"),
    ("nan", PIXELS, b'{"pixels": [NaN]}', b"application/json", NotParseable, "not JSON"),
    ("bad utf-8", TILES, b'{"tiles": ["\xff"]}', b"application/json", NotParseable, "not JSON"),
    ("too deep", TILES, b'{"tiles": ' + b"[" * 20000 + b"]" * 20000 + b"}", b"application/json", NotParseable, "JSON"),
    ("a list", TILES, b"[1]", b"application/json", BadContent, 'send {"tiles"'),
    ("no field", TILES, b"{}", b"application/json", BadContent, "the items are missing"),
    ("unknown", TILES, b'{"tile": []}', b"application/json", BadContent, "unknown field 'tile'"),
    ("both", TILES, b'{"tiles": [], "instances": []}', b"application/json", BadContent, "both names"),
    ("a string", TILES, b'{"tiles": "x"}', b"application/json", BadContent, "must be a list"),
    ("none", TILES, b'{"tiles": []}', b"application/json", BadContent, "no tiles"),
    ("too many", TILES, json.dumps({"tiles": [b64(ROW48)] * 5}).encode(), None, BadContent, "5 items.*limit is 4"),
    ("null", TILES, b'{"tiles": [null]}', b"application/json", BadContent, r"item 1 \(tiles\[0\]\)"),
    ("short", TILES, json.dumps({"tiles": [b64(ROW48), "AAAA"]}).encode(), None, BadContent, r"item 2 \(tiles\[1\]\)"),
    ("other size", TILES, json.dumps({"tiles": [b64(ROW48 * 2)]}).encode(), None, BadContent, "tiles"),
    ("no picture", TILES, json.dumps({"tiles": [b64(b"hello world")]}).encode(), None, BadContent, "item 1"),
    ("junk", TILES, json.dumps({"tiles": ["%%%" * 5]}).encode(), None, BadContent, "item 1"),
    ("ragged", TILES, b'{"tiles": [[[1, 2], [3]]]}', None, BadContent, "item 1"),
    ("shape", TILES, b'{"tiles": [[[1, 2], [3, 4]]]}', None, BadContent, "its shape is 2×2, but one item is 4×4×3"),
    ("256", TILES, json.dumps({"tiles": [[256] * 48]}).encode(), None, BadContent, "from 0 to 255"),
    ("half", TILES, json.dumps({"tiles": [[0.5] * 48]}).encode(), None, BadContent, "whole numbers"),
    ("text", PIXELS, b'{"pixels": [["a", "b"]]}', None, BadContent, "numbers"),
    ("above", PIXELS, b'{"pixels": [[0, 0, 0, 0, 0, 256]]}', None, BadContent, r"item 1 \(pixels\[0\]\)"),
    ("below flat", PIXELS, b'{"pixels": [0, 0, 0, 0, 0, -1]}', None, BadContent, "-1"),
    ("count", PIXELS, json.dumps({"pixels": [0] * 5}).encode(), None, BadContent, "5 numbers, but one item has 6"),
    ("overflow", PIXELS, b'{"pixels": [[1e39, 0, 0, 0, 0, 0]]}', None, BadContent, "item 1"),
    ("2**64", COUNTS, b'{"instances": [[1.8446744073709552e19, 0]]}', None, BadContent, "from 0 to"),
    ("below uint64", COUNTS, b'{"instances": [[18446744073709551615, -1]]}', None, BadContent, "from 0 to"),
    ("half of a count", COUNTS, b'{"instances": [[1, 0.5]]}', None, BadContent, "whole numbers"),
    ("two for a flag", FLAGS, b'{"instances": [[2, 0]]}', None, BadContent, "from 0 to 1"),
    ("half a flag", FLAGS, b'{"instances": [[0.5, 0]]}', None, BadContent, "whole numbers"),
    ("no end of digits", REALS, b'{"instances": [[1' + b"0" * 400 + b", 0]]}", None, BadContent, "too large"),
    ("null for a number", REALS, b'{"instances": [[null, 0]]}', None, BadContent, "numbers"),
    ("top zero", TILES, json.dumps({"tiles": [b64(ROW48)], "top": 0}).encode(), None, BadContent, "top"),
    ("top true", TILES, json.dumps({"tiles": [b64(ROW48)], "top": True}).encode(), None, BadContent, "top"),
    ("names", PAIRS, b'{"instances": [{"a": [1, 2]}]}', None, BadContent, "inputs are"),
    ("no names", PAIRS, b'{"instances": [[1, 2]]}', None, BadContent, "send an object"),
    ("half octets", TILES, ROW48[:-1], b"application/octet-stream", BadContent, "whole items of 48 bytes"),
    ("no octets", TILES, b"", b"application/octet-stream", BadContent, "no tiles"),
    ("many octets", TILES, ROW48 * 5, b"application/octet-stream", BadContent, "limit is 4"),
    ("octets", PAIRS, b"12", b"application/octet-stream", WrongType, "application/json"),
    ("text body", TILES, b"x", b"text/plain", WrongType, "application/json"),
    ("curl -d", TILES, b"{}", b"application/x-www-form-urlencoded", WrongType, "content-type: application/json"),
    ("gif", TILES, b"GIF89a", b"image/gif", WrongType, "image/jpeg"),
    ("gif in png", TILES, b"GIF89a" + bytes(40), b"image/png", WrongType, "JPEG"),
    ("not a picture", TILES, b"hello", b"image/png", BadContent, "picture"),
    ("bomb", TILES, picture(size=(200, 200)), b"image/png", TooLarge, "--max-pixels"),
    ("picture for numbers", PIXELS, picture(), b"image/png", WrongType, "application/json"),
    ("wrong field", TILES, *form(("picture", "image/png", picture())), BadContent, "field 'file'"),
    ("wrong part", TILES, *form(("file", "text/plain", b"x")), WrongType, r"item 1 \(file\[0\]\)"),
    ("cut form", TILES, *form(("file", "image/png", picture()), cut=8), NotParseable, "cut short"),
    ("no boundary", TILES, b"x", b"multipart/form-data", NotParseable, "boundary"),
    ("long boundary", TILES, b"x", b"multipart/form-data; boundary=" + b"x" * 5000, NotParseable, "multipart"),
    ("empty form", TILES, *form(), BadContent, "no tiles"),
]


@pytest.mark.parametrize(
    ("contract", "body", "kind", "error", "words"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_refusals_name_what_is_wrong(
    contract: Contract, body: bytes, kind: bytes | None, error: type[RequestError], words: str
) -> None:
    """Each bad body gets its own class of error, and the message names the item, the value or the limit (pain 63)."""
    with pytest.raises(error, match=words) as told:
        read(contract, body, kind)
    assert type(told.value) is error


def test_float_rows_in_base64_are_checked_before_the_queue() -> None:
    """NaN and values out of the recipe's range are 422 whichever way they come."""
    good = np.zeros(6, np.float32)
    assert read_json(PIXELS, {"pixels": [b64(good.tobytes())]}).items[0][0] is ROW
    for bad in (np.nan, np.inf, -1.0, 255.5):
        row = good.copy()
        row[3] = bad
        with pytest.raises(BadContent, match="item 1"):
            read_json(PIXELS, {"pixels": [b64(row.tobytes())]})
        with pytest.raises(BadContent, match="item 2"):
            read(PIXELS, good.tobytes() + row.tobytes(), b"application/octet-stream")
