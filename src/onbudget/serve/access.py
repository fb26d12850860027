"""Who may ask: API keys, one a line of a file or a word of the environment.

Rules of this file. A key is kept as its digest, and never told: not in an error, not in a log, not in a `repr`. What a
caller shows is compared with every key, and each comparison takes the same time however much of it is right. A file
that can't be read, or that holds no key, never means that everybody may ask.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from onbudget.core.errors import Unauthorized, UsageError
from onbudget.serve.settings import Settings

log = logging.getLogger("onbudget")
VARIABLE = "ONBUDGET_API_KEYS"
SHORT = 16  # characters; who guesses has no limit but the network's
_KEY = re.compile(rb"[!-~]{1,512}")  # what every client can put into a header; longer ones are nobody's
_MAKE = "; make one with: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"
OPEN = frozenset(("/health", "/ready"))  # balancers and kubelets ask them, and have no key


def secret_file(path: Path, flag: str) -> bytes:
    """What a secret's file holds, with a warning where everybody can read it; UsageError where it can't be read."""
    try:
        data = path.read_bytes()
        mode = path.stat().st_mode
    except OSError as error:
        raise UsageError(f"{flag} {path} cannot be read: {error.strerror}") from error
    if os.name == "posix" and mode & stat.S_IROTH:
        log.warning("%s %s can be read by every user of this machine; chmod 640 it", flag, path)
    return data


def shown_key(values: Mapping[bytes, bytes]) -> list[bytes]:
    """The keys that a request's headers show: a bearer's, and `X-Api-Key`."""
    shown = []
    scheme, _, key = values.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer":
        shown.append(key.strip())
    if b"x-api-key" in values:
        shown.append(values[b"x-api-key"].strip())
    return shown


def _of_file(path: Path) -> list[bytes]:
    """One a line; what follows a # is a comment."""
    keys = []
    for number, line in enumerate(secret_file(path, "--api-key-file").removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith(b"#"):
            continue
        if (len(words) > 1 and not words[1].startswith(b"#")) or not _KEY.fullmatch(words[0]):
            raise UsageError(
                f"--api-key-file {path}: line {number} is not a key: one word of at most 512 letters, digits and signs"
                " of ASCII, and behind it at most a # comment"
            )
        if len(words[0]) < SHORT:
            log.warning("--api-key-file %s: the key in line %d has below %d characters%s", path, number, SHORT, _MAKE)
        keys.append(words[0])
    if not keys:
        raise UsageError(f"--api-key-file {path} holds no key{_MAKE}")
    return keys


def _of_environment(told: str) -> list[bytes]:
    keys = [word.encode("utf-8", "surrogateescape") for word in re.split(r"[\s,]+", told) if word]
    if not keys:
        raise UsageError(f"{VARIABLE} is set and holds no key: unset it to let everybody ask{_MAKE}")
    for number, key in enumerate(keys, 1):
        if not _KEY.fullmatch(key):
            raise UsageError(f"{VARIABLE}: key {number} is not a word of at most 512 signs of ASCII")
        if len(key) < SHORT:
            log.warning("%s: key %d has below %d characters%s", VARIABLE, number, SHORT, _MAKE)
    return keys


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


class Access:
    """The keys of a server; `file` and `told` (the environment's words) are where they come from, together."""

    def __init__(self, file: Path | None, told: str | None) -> None:
        self._file = file
        self._told = told
        self._digests: tuple[bytes, ...] = ()
        self.load()

    def load(self) -> int:
        """Read the keys, again too → how many there are; UsageError, and the keys stay as they are."""
        keys = _of_file(self._file) if self._file is not None else []
        if self._told is not None:
            keys += _of_environment(self._told)
        self._digests = tuple(dict.fromkeys(map(_digest, keys)))
        return len(self._digests)

    def allows(self, key: bytes) -> bool:
        """Whether it is one of them; takes as long for a key that is nearly right as for any other."""
        digest = _digest(key)
        found = False
        for one in self._digests:
            found |= hmac.compare_digest(one, digest)
        return found

    def lets(self, values: Mapping[bytes, bytes]) -> bool:
        """Whether a request with these headers shows one of them."""
        return sum(map(self.allows, shown_key(values))) > 0


def refused(values: Mapping[bytes, bytes]) -> Unauthorized:
    """What a caller hears who may not ask."""
    if shown_key(values):
        return Unauthorized("this API key is not one of this server's")
    return Unauthorized("this server asks for an API key; send 'Authorization: Bearer KEY' or 'X-Api-Key: KEY'")


def asked(settings: Settings, environment: Mapping[str, str]) -> bool:
    """Whether the server that these make asks for keys."""
    return bool(settings.api_key_file) or VARIABLE in environment


def access(settings: Settings, environment: Mapping[str, str]) -> Access | None:
    """The keys that a server asks for; None where everybody may ask. UsageError for keys that can't be meant."""
    if not asked(settings, environment):
        return None
    return Access(Path(settings.api_key_file) if settings.api_key_file else None, environment.get(VARIABLE))
