"""gzip bodies: whole whatever pieces they come in, never more than the limit, and told where they are damaged."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onbudget.core.errors import NotParseable, TooLarge, WrongType
from onbudget.serve.inflate import MEMBERS, STEP, Inflater, inflater

LIMIT = 1_000_000


def check(size: int, limit: int = LIMIT) -> None:
    if size > limit:
        raise TooLarge(f"{size} bytes")


def unpacked(pieces: Iterable[bytes], limit: int = LIMIT) -> bytes:
    packed = Inflater(limit, lambda size: check(size, limit))
    made = [step for piece in pieces for step in packed.feed(piece)]
    packed.end()
    assert max(map(len, made), default=0) <= STEP
    return b"".join(made)


@given(
    st.lists(st.binary(max_size=300) | st.integers(0, 200_000).map(bytes), min_size=1, max_size=4),
    st.lists(st.integers(1, 400), min_size=1, max_size=20),
)
def test_a_body_is_the_same_in_any_pieces(members: list[bytes], cuts: list[int]) -> None:
    """One member or several, random bytes or runs of zeros, cut anywhere."""
    body = b"".join(gzip.compress(one, mtime=0) for one in members)
    pieces, at = [], 0
    while at < len(body):
        size = cuts[len(pieces) % len(cuts)]
        pieces.append(body[at : at + size])
        at += size
    assert unpacked(pieces) == b"".join(members)


@pytest.mark.parametrize("size", [LIMIT, LIMIT - 1, STEP, STEP + 1, 2 * STEP, 0])
def test_a_body_up_to_the_limit_is_taken(size: int) -> None:
    """At the limit itself too, and where a step is just full when its bytes run out."""
    assert len(unpacked([gzip.compress(bytes(size))], LIMIT)) == size


def test_a_bomb_is_refused_before_it_is_made() -> None:
    """A gigabyte in a megabyte: no more is made than the limit and the byte that tells that there is more."""
    deflate = zlib.compressobj(wbits=31)
    bomb = b"".join(deflate.compress(bytes(1 << 20)) for _ in range(1024)) + deflate.flush()
    packed, made = Inflater(LIMIT, check), list[int]()
    with pytest.raises(TooLarge):
        made.extend(map(len, packed.feed(bomb)))
    assert packed._size == LIMIT + 1
    assert sum(made) <= LIMIT  # the step that passed it was not handed out


def test_a_bomb_of_many_members_is_refused() -> None:
    """Each is small, and they add up."""
    with pytest.raises(TooLarge):
        unpacked([gzip.compress(bytes(1000))] * (LIMIT // 1000 + 1))
    with pytest.raises(NotParseable, match="members"):
        unpacked([gzip.compress(b"", mtime=0) * (MEMBERS + 1)])


WHOLE = gzip.compress(b"abc" * 1000, mtime=0)


@pytest.mark.parametrize("cut", [0, 1, 9, 10, 11, len(WHOLE) - 8, len(WHOLE) - 1])
def test_a_body_that_is_cut_short_is_told(cut: int) -> None:
    """In its head, its data or its check sum; an empty body as well."""
    with pytest.raises(NotParseable, match="cut short"):
        unpacked([WHOLE[:cut]])


@pytest.mark.parametrize(
    "body",
    [b"no gzip", WHOLE[:-8] + bytes(8), WHOLE + b"junk", WHOLE[:10] + b"\xff" + WHOLE[11:], zlib.compress(b"abc")],
    ids=["plain", "checksum", "behind", "data", "zlib"],
)
def test_damage_is_told(body: bytes) -> None:
    """Whatever is wrong with it, it is 400 and says that the header promised gzip."""
    with pytest.raises(NotParseable, match="not valid gzip, as its content-encoding says"):
        unpacked([body])


@pytest.mark.parametrize("values", [[], [b""], [b"identity"], [b"identity, identity"]])
def test_a_body_as_it_is_needs_nothing(values: list[bytes]) -> None:
    """No header, or one that says that nothing was done."""
    assert inflater([(b"content-encoding", value) for value in values], LIMIT, check) is None


@pytest.mark.parametrize("value", [b"gzip", b"GZIP", b"x-gzip", b" gzip ", b"identity, gzip"])
def test_gzip_has_two_names(value: bytes) -> None:
    """In any case."""
    assert inflater([(b"content-encoding", value)], LIMIT, check) is not None


@pytest.mark.parametrize(
    "values", [[b"br"], [b"deflate"], [b"zstd"], [b"gzip, gzip"], [b"gzip", b"gzip"], [b"gzip, br"], [b"gzipped"]]
)
def test_another_encoding_is_415_and_hears_what_is_taken(values: list[bytes]) -> None:
    """Twice packed is another encoding too: each layer could be a bomb of its own."""
    with pytest.raises(WrongType, match="content-encoding") as told:
        inflater([(b"content-encoding", value) for value in values], LIMIT, check)
    assert told.value.headers == ((b"accept-encoding", b"gzip"),)
