"""Forms that are read the short way are read as python-multipart reads them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onbudget.core.errors import NotParseable
from onbudget.serve import multipart
from onbudget.serve.multipart import MAX_HEAD, _parsed, parse_form

HEAD = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.jpg"\r\nContent-Type: image/JPEG\r\n\r\n'
# Pieces that a form is made of, whole, halved and out of place.
PIECES = [
    HEAD,
    b"--b",
    b"\r\n--b",
    b"\r\n--b--\r\n",
    b"\r\n--b--",
    b"--",
    b"\r\n",
    b"\r\n\r\n",
    b"\r",
    b"\n",
    b"x",
    b"\0",
]
PIECES += [
    b"Content-Disposition: form-data; name=other\r\n",
    b"Content-Type: text/plain\r\n",
    b"X-Junk",
    b": ",
    b"p" * 1100,
]


def _told(read: object, body: bytes, boundary: bytes) -> object:
    try:
        return [(part.name, part.content_type, part.data) for part in read(body, boundary)]  # type: ignore[operator]
    except NotParseable as error:
        return str(error)


@given(st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join), st.sampled_from([b"b", b"bb", b"-"]))
@example(HEAD + b"data\r\n--b--\r\n", b"b")
@example(HEAD + b"\r\n--b--\r\n", b"b")
@example(HEAD + b"--b--\r\n", b"b")
@example(b"\r\n" + HEAD + b"data\r\n--b--\r\n", b"b")
@example(HEAD + b"da\r\n--bta\r\n--b--\r\n", b"b")
@example(HEAD + b"data\r\n--b--\r\nepilogue", b"b")
@example(b"\r\n\r\n\r\n--b--\r\n", b"b")
def test_a_form_is_read_as_by_the_library(body: bytes, boundary: bytes) -> None:
    """Whatever the body: the same parts, or the same complaint."""
    assert _told(parse_form, body, boundary) == _told(_parsed, body, boundary)


def test_of_one_picture_under_known_headers_only_the_ends_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second form under the same headers reaches no parser, and its data is its own."""
    closing = b"\r\n--b--\r\n"
    multipart._remembered.cache_clear()
    assert [part.data for part in parse_form(HEAD + b"one" + closing, b"b")] == [b"one"]
    monkeypatch.setattr(multipart, "_parsed", lambda body, boundary: pytest.fail("parsed again"))
    (part,) = parse_form(HEAD + b"two" + closing, b"b")
    assert (part.name, part.content_type, part.data) == ("file", "image/jpeg", b"two")


def test_long_headers_are_not_remembered() -> None:
    """Whoever sends ever new and long headers fills no memory."""
    before = multipart._remembered.cache_info().currsize
    junk = b"--b\r\nX-Junk: " + b"j" * MAX_HEAD + HEAD[3:]
    assert [part.data for part in parse_form(junk + b"data\r\n--b--\r\n", b"b")] == [b"data"]
    assert multipart._remembered.cache_info().currsize == before
