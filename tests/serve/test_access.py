"""API keys: where they come from, who is let in, and that nobody is told one."""

from __future__ import annotations

import hmac
import logging
from pathlib import Path

import pytest

from onbudget.core.errors import UsageError
from onbudget.serve.access import Access, access, asked, refused, shown_key
from onbudget.serve.settings import Settings

ONE, TWO, THREE = b"first-key-of-the-test", b"second-key-of-the-test", b"third-key-of-the-test"


def keys(folder: Path, *lines: bytes) -> Path:
    path = folder / "keys.txt"
    path.write_bytes(b"\n".join(lines) + b"\n")
    path.chmod(0o600)
    return path


def test_a_key_is_a_line_and_the_rest_is_comment(tmp_path: Path) -> None:
    """Comments, blank lines, Windows' line ends and a byte order mark are no keys; each key is let in."""
    file = keys(tmp_path, b"\xef\xbb\xbf# the team", b"", ONE + b"   # alice", b"  " + TWO + b"\r", b"#" + THREE)
    door = Access(file, None)
    assert [door.allows(key) for key in (ONE, TWO, THREE, b"#" + THREE, b"", b"alice", ONE[:-1], ONE + b"x")] == [
        *(True, True),
        *[False] * 6,
    ]


def test_keys_of_the_environment_are_added_to_those_of_the_file(tmp_path: Path) -> None:
    """Both count, and the environment's are words, with or without commas between."""
    settings = Settings(api_key_file=str(keys(tmp_path, ONE)))
    door = access(settings, {"ONBUDGET_API_KEYS": f"{TWO.decode()}, {THREE.decode()}"})
    assert door is not None
    assert [door.allows(key) for key in (ONE, TWO, THREE, TWO + b",")] == [True, True, True, False]


def test_without_keys_everybody_may_ask() -> None:
    """Neither a file nor the variable: there is no door at all."""
    assert access(Settings(), {}) is None
    assert not asked(Settings(), {})


@pytest.mark.parametrize("told", ["", "  ", ",", "\n"])
def test_a_variable_without_a_key_does_not_open_the_door(told: str) -> None:
    """What a script forgot to fill in is an error, and not a server for everybody."""
    with pytest.raises(UsageError, match="ONBUDGET_API_KEYS is set and holds no key"):
        access(Settings(), {"ONBUDGET_API_KEYS": told})


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "holds no key"),
        ([b"# only words"], "holds no key"),
        ([ONE, b"hush-hush-hush two words"], "line 2 is not a key"),
        ([b"schl\xc3\xbcssel-geheim-geheim"], "line 1 is not a key"),
        ([b"hush" * 200], "line 1 is not a key"),
    ],
)
def test_a_file_that_cannot_be_meant_is_told_without_its_words(tmp_path: Path, lines: list[bytes], says: str) -> None:
    """The file, the line and what to do are told; the line's own words, which may be a key, are not."""
    file = keys(tmp_path, *lines)
    with pytest.raises(UsageError, match=says) as told:
        Access(file, None)
    assert str(file) in str(told.value)
    for word in ("hush", "schl", ONE.decode()):
        assert word not in str(told.value)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    """It never means that everybody may ask."""
    with pytest.raises(UsageError, match=r"--api-key-file .*nowhere cannot be read: No such file"):
        Access(tmp_path / "nowhere", None)


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, False), (0o644, True)])
def test_a_file_that_everybody_can_read_is_warned_of(
    tmp_path: Path, mode: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Owner and group are fine; others are not."""
    file = keys(tmp_path, ONE)
    file.chmod(mode)
    Access(file, None)
    assert ("can be read by every user" in caplog.text) is warned


def test_a_short_key_is_warned_of_and_nothing_logged_holds_a_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning counts characters, names the line, and keeps the key to itself; so does what Python shows of it."""
    with caplog.at_level(logging.DEBUG):
        door = Access(keys(tmp_path, ONE, b"guessable"), THREE.decode())
    assert "line 2 has below 16 characters" in caplog.text
    for key in (ONE, b"guessable", THREE):
        assert key.decode() not in caplog.text + repr(door) + repr(vars(door)["_digests"])


def test_what_is_read_again_replaces_what_was(tmp_path: Path) -> None:
    """A key that is gone from the file is gone; a file that became unusable changes nothing."""
    file = keys(tmp_path, ONE)
    door = Access(file, None)
    keys(tmp_path, TWO, THREE)
    assert door.load() == 2
    assert [door.allows(key) for key in (ONE, TWO, THREE)] == [False, True, True]
    keys(tmp_path, b"# nobody")
    with pytest.raises(UsageError):
        door.load()
    assert [door.allows(key) for key in (ONE, TWO, THREE)] == [False, True, True]


def test_every_key_is_compared_whole_whoever_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first, the last or none: each time all keys are looked at, by digests of one length."""
    door = Access(keys(tmp_path, ONE, TWO, THREE), None)
    seen: list[tuple[int, int]] = []
    compare = hmac.compare_digest

    def counted(one: bytes, other: bytes) -> bool:
        seen.append((len(one), len(other)))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", counted)
    for key in (ONE, THREE, b"x", b"x" * 5000):
        seen.clear()
        door.allows(key)
        assert seen == [(32, 32)] * 3


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ({}, []),
        ({b"authorization": b"Bearer " + ONE}, [ONE]),
        ({b"authorization": b"bEARER   " + ONE + b" "}, [ONE]),
        ({b"authorization": ONE}, []),
        ({b"authorization": b"Basic " + ONE}, []),
        ({b"x-api-key": b" " + ONE}, [ONE]),
        ({b"authorization": b"Basic eA==", b"x-api-key": TWO}, [TWO]),
        ({b"authorization": b"Bearer " + ONE, b"x-api-key": TWO}, [ONE, TWO]),
    ],
)
def test_a_key_is_shown_in_two_ways(values: dict[bytes, bytes], shown: list[bytes]) -> None:
    """As a bearer's token, or in its own header; another scheme shows none."""
    assert shown_key(values) == shown


def test_a_refusal_says_how_to_show_a_key_and_never_repeats_it() -> None:
    """401 with a challenge; who showed a wrong one hears just that."""
    none, wrong = refused({}), refused({b"x-api-key": ONE})
    assert (none.status, none.headers) == (401, ((b"www-authenticate", b'Bearer realm="onbudget"'),))
    assert "Authorization: Bearer KEY" in none.detail
    assert wrong.detail == "this API key is not one of this server's"
