"""A request's body → its items, validated as far as is cheap; answers → a response.

Rules of this file. What is checked here happens on the event loop, before the queue: sizes, counts, magic, a picture's
declared size, and numbers (they are here already). What costs (base64, pixels) is done by the lane that takes the item;
a `Payload` says how. Nothing here reads a clock or a socket.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from functools import partial
from math import prod
from typing import Any
from urllib.parse import parse_qs

import msgspec
import numpy as np
import pybase64
from python_multipart.multipart import parse_options_header

from onbudget.core.errors import BadContent, NotParseable, TooLarge, WrongType
from onbudget.core.recipe import check_values
from onbudget.engine.headers import TYPES
from onbudget.engine.images import probe
from onbudget.serve.contract import Contract
from onbudget.serve.exchange import JSON, Head, Request, Response, refusal
from onbudget.serve.items import ARRAYS, BASE64, OWN, PHOTO, PICTURE, ROW, Format, Parsed, where
from onbudget.serve.multipart import parse_form
from onbudget.serve.settings import Settings

MAX_TOP = 1000
PHOTO_PIXELS = 300_000  # some 3 ms of decoding

_PLAIN_GAP = re.compile(rb'"[ \t\r\n]*(?:(,)[ \t\r\n]*"|\][ \t\r\n]*\}[ \t\r\n]*\Z)')  # to the next item, or to the end


Reader = Callable[[bytes, dict[bytes, bytes], Contract, Settings], Parsed]


def parse(request: Request, contract: Contract, settings: Settings) -> Parsed:
    """The items of a `POST /predict`; a RequestError says what is wrong with the request, and with which item."""
    head = request.head
    if head.reading is None:
        head.reading = _reading(head, contract, settings)
    reader, options = head.reading
    parsed: Parsed = reader(request.body, options, contract, settings)
    if head.query:
        parsed.top = _top_of_query(head.query) or parsed.top
    count = len(parsed.items)
    if count == 0:
        raise BadContent(f"no {contract.field}: send at least one item")
    if count > settings.max_items:
        raise BadContent(f"{count} items are too many: the limit is {settings.max_items} a request (--max-items)")
    return parsed


def _reading(head: Head, contract: Contract, settings: Settings) -> tuple[Reader, dict[bytes, bytes]]:
    """Who reads a body of this content type, and the type's options."""
    declared = head.values.get(b"content-type")
    kind, options = parse_options_header(declared) if declared else (b"application/json", {})
    name = kind.decode("latin-1").lower()
    readers = _OWN_READERS if contract.own else _READERS
    reader = readers.get(name) or readers.get(name.split("/")[0] + "/*") or readers.get("*")
    if name == "application/x-www-form-urlencoded":  # what curl says of a body when nobody said otherwise
        reader = None
    if reader is None or (reader is _read_picture and not _accepted(name, contract, settings)):
        raise WrongType(_accepted_types(name, contract, settings))
    return reader, options


def answer(parsed: Parsed, answers: list[Any], headers: list[tuple[bytes, bytes]]) -> Response:
    """The answers in the shape that the request asked for."""
    body = msgspec.json.encode(answers[0] if parsed.single else {"predictions": answers}, enc_hook=_plain_value)
    return Response(200, body, [JSON, *headers])


def _plain_value(value: Any) -> Any:
    """numpy's values in an answer that the application's own code made."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is nothing that JSON has")


def _accepted(name: str, contract: Contract, settings: Settings) -> bool:
    return contract.pictures and TYPES.get(name) in settings.accept


def _accepted_types(name: str, contract: Contract, settings: Settings) -> str:
    types = ["application/json"]
    if contract.row_bytes:
        types.append("application/octet-stream")
    if contract.pictures:
        types += ["image/" + f for f in settings.accept] + ["multipart/form-data (field 'file')"]
    hint = "; with curl, add -H 'content-type: application/json'" if name == "application/x-www-form-urlencoded" else ""
    return f"content type {name!r} is not accepted; this server takes {', '.join(types)}{hint}"


def _top_of_query(query: bytes) -> int:
    values = parse_qs(query.decode("latin-1")).get("top", [])
    if not values:
        return 0
    text = values[-1]
    return _top(int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text)


def _top(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_TOP:
        raise BadContent(f"top must be a whole number from 1 to {MAX_TOP}, not {_shown(value)}")
    return value


def _shown(value: object) -> str:
    """A caller's value for a message: a large one is not sent back whole."""
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


# ---- JSON -----------------------------------------------------------------------------------------------------------


def _read_json(body: bytes, options: dict[bytes, bytes], contract: Contract, settings: Settings) -> Parsed:
    if (plain := _plain_rows(body, contract, settings.max_items)) is not None:
        return plain
    try:
        data = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotParseable(f"the body is not JSON: {error}") from error
    field = contract.field
    wanted = f'send {{"{field}": [item, …]}}'
    if not isinstance(data, dict):
        raise BadContent(f"the body must be a JSON object; {wanted}")
    top = data.pop("top", None)
    given = [key for key in (field, "instances") if key in data]
    unknown = [key for key in data if key not in (field, "instances")]
    if unknown:
        raise BadContent(f"unknown field {_shown(unknown[0])}; {wanted}")
    if len(given) != 1 and not (given and field == "instances"):
        raise BadContent(f"{'both names were sent' if given else 'the items are missing'}; {wanted}")
    items = data[given[0]]
    if not isinstance(items, list):
        raise BadContent(f"{given[0]!r} must be a list of items, not {type(items).__name__}; {wanted}")
    parsed = Parsed([], given[0], top=0 if top is None else _top(top))
    size = _flat_size(items, contract)
    if size:
        if len(items) != size:
            raise BadContent(f"{given[0]!r} has {len(items)} numbers, but one item has {size}")
        parsed.single = True
        parsed.items.append(array_item(items, contract, given[0]))
        return parsed
    if len(items) > settings.max_items:
        raise BadContent(f"{len(items)} items are too many: the limit is {settings.max_items} a request (--max-items)")
    for index, item in enumerate(items):
        if contract.own:
            parsed.items.append(_own_item(item, contract))
        elif isinstance(item, str) and contract.dtype.kind != "O":
            parsed.items.append(_text_item(item, contract, settings, partial(where, given[0], index)))
        else:
            parsed.items.append(array_item(item, contract, where(given[0], index)))
    return parsed


def _plain_rows(body: bytes, contract: Contract, most: int) -> Parsed | None:
    """The items of `{"tiles": ["…", "…"]}` where all are base64 of rows, read as that and not as JSON; None for others.

    Nearly all bodies are such, and long. Only their ends are looked at: what lies between is base64, which the lane
    decodes strictly, or it is no item.
    """
    size = contract.row_bytes
    if not size or contract.dtype.kind in "fb":  # values of floats are checked before the queue
        return None
    length, padding = (size + 2) // 3 * 4, -size % 3
    found = contract.plain_head.match(body)
    if found is None:
        return None
    name = found[1].decode()
    whole = memoryview(body)  # long items are not copied
    items: list[tuple[str, Any, Hashable]] = []
    while len(items) < most:
        begin, end = found.end(), found.end() + length
        found = _PLAIN_GAP.match(body, end)
        if found is None or body.find(b'"', begin, end) >= 0 or body.find(b"\\", begin, end) >= 0:
            return None
        if body.count(b"=", end - 2, end) != padding:
            return None
        items.append((BASE64, whole[begin:end], None))
        if not found[1]:
            return Parsed(items, name)
    return None  # too many: it is read as JSON, and told so


def _flat_size(items: list[Any], contract: Contract) -> int:
    """How many numbers one item has, where the list holds bare numbers (one flat item); 0 where it holds items."""
    if contract.own or contract.shape is None or not items or not isinstance(items[0], int | float):
        return 0
    size = prod(contract.shape)
    return size if size > 1 else 0


def _text_item(
    item: str, contract: Contract, settings: Settings, place: Callable[[], str]
) -> tuple[str, Any, Hashable]:
    """Base64 of a raw row, else of a picture. The base64 of a row is measured here and decoded by the lane."""
    row_bytes = contract.row_bytes
    if not row_bytes:
        raise BadContent(f"{place()}: this model takes nested numbers, not base64: its inputs' sizes are not fixed")
    padding = 2 if item.endswith("==") else 1 if item.endswith("=") else 0
    size = len(item) // 4 * 3 - padding
    if size == row_bytes and len(item) % 4 == 0:
        if contract.dtype.kind in "fb":  # its values are checked before the queue
            return _row_item(_unbase64(item, place), contract, place)
        return BASE64, item, None
    if contract.pictures:
        data = _unbase64(item, place)
        if len(data) > 3:
            return _picture_item(data, settings, place)
    shape = "×".join(map(str, contract.shape or ()))
    raise BadContent(
        f"{place()}: {size} bytes, but one item is {row_bytes} bytes ({shape} {contract.dtype})"
        + (" or an encoded picture" if contract.pictures else "")
    )


def _unbase64(item: str, place: Callable[[], str]) -> bytes:
    try:
        return pybase64.b64decode(item, validate=True)
    except ValueError as error:
        raise BadContent(f"{place()}: not valid base64: {error}") from error


def array_item(item: Any, contract: Contract, place: str) -> tuple[str, Any, Hashable]:
    """Nested numbers (one input), or an object of them by input name, → arrays of the model's dtypes."""
    names = [port.name for port in contract.inputs]
    if isinstance(item, dict):
        if set(item) != set(names):
            raise BadContent(f"{place}: its names are {_shown(sorted(item))}, but the model's inputs are {names}")
        values = [item[name] for name in names]
    elif len(names) > 1:
        raise BadContent(f"{place}: the model has the inputs {names}; send an object with these names")
    else:
        values = [item]
    arrays = tuple(
        _array(value, port.dtype, shape, place if len(names) == 1 else f"{place}.{port.name}")
        for value, port, shape in zip(values, contract.inputs, _item_shapes(contract), strict=True)
    )
    if contract.recipe is not None:
        check_values(arrays[0], contract.recipe, place)
    return ARRAYS, arrays, None if contract.shape is not None else tuple(a.shape for a in arrays)


def _item_shapes(contract: Contract) -> tuple[tuple[int | None, ...], ...]:
    return (contract.shape,) if contract.shape is not None else contract.shapes


def _array(value: Any, dtype: str, shape: tuple[int | None, ...], place: str) -> np.ndarray[Any, Any]:
    try:
        array = np.asarray(value, dtype=object if dtype == "object" else None)
        if array.dtype.kind == "f" and dtype in ("int64", "uint64"):
            array = np.asarray(value, dtype=object)  # numpy makes floats of [2**63, 0], and floats blur whole numbers
    except (ValueError, OverflowError) as error:
        raise BadContent(f"{place}: its rows differ in length") from error
    if array.dtype.kind == "U":
        raise BadContent(f"{place}: the model takes numbers ({dtype})")
    known = [d for d in shape if d is not None]
    if array.ndim == 1 and len(known) == len(shape) != 1 and array.size == prod(known):
        array = array.reshape(known)  # flat numbers of the right count
    fits = array.ndim == len(shape) and all(d is None or d == n for d, n in zip(shape, array.shape, strict=True))
    if not fits:
        wanted = "×".join("?" if d is None else str(d) for d in shape) or "a single value"
        got = "×".join(map(str, array.shape)) or "a single value"
        raise BadContent(f"{place}: its shape is {got}, but one item is {wanted} ({dtype})")
    return _cast(array, dtype, place)


def _cast(array: np.ndarray[Any, Any], dtype: str, place: str) -> np.ndarray[Any, Any]:
    """To the model's dtype without changing a value: no text for numbers, no halves or 256 for uint8, no 2 for bool."""
    if dtype == "object":
        if not all(isinstance(v, str) for v in array.flat):
            raise BadContent(f"{place}: the model takes text")
        return array
    kind = np.dtype(dtype)
    if array.dtype.kind == "O" and all(isinstance(v, int | float) for v in array.flat):
        whole = all(isinstance(v, int) or v.is_integer() for v in array.flat)
    elif array.dtype.kind in "biuf":
        whole = array.dtype.kind != "f" or bool((array == np.trunc(array)).all())
    else:
        raise BadContent(f"{place}: the model takes numbers ({dtype})")
    if kind.kind in "iub":
        if not whole:
            raise BadContent(f"{place}: the model takes whole numbers ({dtype})")
        low, high = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
        # As Python's numbers, which compare exactly: as floats, 2**63 is no larger than int64's largest.
        if array.size and not (low <= _plain(array.min()) and _plain(array.max()) <= high):
            raise BadContent(f"{place}: values must be from {low} to {high} ({dtype})")
    try:
        with np.errstate(over="ignore"):
            cast = array.astype(kind)
        fits = kind.kind != "f" or np.isfinite(cast).all()
    except OverflowError:  # a whole number of hundreds of digits
        fits = False
    if not fits:
        raise BadContent(f"{place}: a value is too large for {dtype}")
    return cast


def _plain(value: Any) -> int | float:
    number: int | float = value.item() if isinstance(value, np.generic) else value
    return number


# ---- bytes and pictures ---------------------------------------------------------------------------------------------


def _row_item(data: bytes | memoryview, contract: Contract, place: Callable[[], str]) -> tuple[str, Any, Hashable]:
    if contract.dtype.kind == "b" and np.frombuffer(data, np.uint8).max() > 1:
        raise BadContent(f"{place()}: the model takes bytes of 0 and 1 (bool)")
    if contract.recipe is not None and contract.dtype.kind == "f":
        check_values(np.frombuffer(data, contract.dtype), contract.recipe, place())
    return ROW, data, None


def _picture_item(data: bytes, settings: Settings, place: Callable[[], str]) -> tuple[str, Any, Hashable]:
    try:
        told = probe(data, settings.accept, settings.max_pixels)
    except (BadContent, TooLarge, WrongType) as error:
        raise type(error)(f"{place()}: {error}") from error
    return PHOTO if told.width * told.height > PHOTO_PIXELS else PICTURE, data, None


def _read_octet(body: bytes, options: dict[bytes, bytes], contract: Contract, settings: Settings) -> Parsed:
    row = contract.row_bytes
    if not row:
        raise WrongType(_accepted_types("application/octet-stream", contract, settings))
    if len(body) % row:
        raise BadContent(f"{len(body)} bytes are not whole items of {row} bytes, end to end")
    count = len(body) // row
    if count > settings.max_items:
        raise BadContent(f"{count} items are too many: the limit is {settings.max_items} a request (--max-items)")
    whole = memoryview(body)
    rows = [whole[i * row : (i + 1) * row] for i in range(count)]
    items = [_row_item(r, contract, partial(where, "row", i)) for i, r in enumerate(rows)]
    return Parsed(items, "row")


def _read_picture(body: bytes, options: dict[bytes, bytes], contract: Contract, settings: Settings) -> Parsed:
    return Parsed([_picture_item(body, settings, partial(where, "picture", 0))], "picture", single=True)


def _read_form(body: bytes, options: dict[bytes, bytes], contract: Contract, settings: Settings) -> Parsed:
    if not (contract.pictures or contract.own):
        raise WrongType(_accepted_types("multipart/form-data", contract, settings))
    boundary = options.get(b"boundary", b"")
    if not boundary:
        raise NotParseable("multipart/form-data without a boundary in its content type")
    parts = parse_form(body, boundary)
    other = [part.name for part in parts if part.name != "file"]
    if other:
        raise BadContent(f"unknown form field {_shown(other[0])}; pictures go into the field 'file', one part each")
    if contract.own:
        return Parsed([_own_item(part.data, contract) for part in parts], "file", single=len(parts) == 1)
    for index, part in enumerate(parts):
        kind = part.content_type
        if kind not in ("", "application/octet-stream") and not _accepted(kind, contract, settings):
            raise WrongType(f"{where('file', index)}: {_accepted_types(kind, contract, settings)}")
    items = [_picture_item(part.data, settings, partial(where, "file", i)) for i, part in enumerate(parts)]
    return Parsed(items, "file", single=len(items) == 1)


def _own_item(item: Any, contract: Contract) -> tuple[str, Any, Hashable]:
    """For the application's own `decode`. Where its arrays may differ in shape, each item is a bucket of its own."""
    return OWN, item, None if contract.stacks else object()


def _read_whole(body: bytes, options: dict[bytes, bytes], contract: Contract, settings: Settings) -> Parsed:
    return Parsed([_own_item(body, contract)], "body", single=True)


_READERS: dict[str, Reader] = {
    "application/json": _read_json,
    "application/octet-stream": _read_octet,
    "image/*": _read_picture,
    "multipart/form-data": _read_form,
}
# With the application's own `decode`: a body of any other type is one item, as bytes.
_OWN_READERS: dict[str, Reader] = {"application/json": _read_json, "multipart/form-data": _read_form, "*": _read_whole}

PREDICT = Format("/predict", parse, answer, refusal)
