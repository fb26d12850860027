"""TLS from PEM files, checked before the server listens: a wrong file is a sentence and not a failed handshake."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Mapping
from pathlib import Path

from onbudget.core.errors import UsageError
from onbudget.serve.access import secret_file
from onbudget.serve.settings import Settings

log = logging.getLogger("onbudget")
VARIABLE = "ONBUDGET_TLS_KEY_PASSWORD"
_MARK, _CERTIFICATE, _KEY = b"-----BEGIN ", b"-----BEGIN CERTIFICATE-----", b"PRIVATE KEY-----"


class Tls:
    """A server's TLS: at least version 1.2, HTTP/1.1. `context` is what sockets are wrapped with."""

    def __init__(self, settings: Settings, environment: Mapping[str, str]) -> None:
        self._cert, self._key = Path(settings.tls_cert), Path(settings.tls_key)
        self._password_file = settings.tls_key_password_file
        self._told = environment.get(VARIABLE)
        self.context = _fresh()
        self.load()

    def load(self) -> None:
        """Read the files, again too: connections that come from now on see them. UsageError, and nothing changes."""
        _check_pem(self._cert, "--tls-cert", self._read_cert(), _CERTIFICATE, "certificate")
        _check_pem(self._key, "--tls-key", secret_file(self._key, "--tls-key"), _KEY, "private key")
        password = self._password()
        self._chain(_fresh(), password)  # a pair that does not fit would leave half of it in the live one
        self._chain(self.context, password)

    def _read_cert(self) -> bytes:
        try:
            return self._cert.read_bytes()
        except OSError as error:
            raise UsageError(f"--tls-cert {self._cert} cannot be read: {error.strerror}") from error

    def _password(self) -> bytes | None:
        if self._password_file:
            path = Path(self._password_file)
            return secret_file(path, "--tls-key-password-file").rstrip(b"\r\n")
        return os.fsencode(self._told) if self._told else None

    def _chain(self, context: ssl.SSLContext, password: bytes | None) -> None:
        asked = []

        def tell() -> bytes:  # asked for only where the key has a password; without this OpenSSL asks the terminal
            asked.append(True)
            return password or b""

        try:
            context.load_cert_chain(self._cert, self._key, tell)
        except (ssl.SSLError, ValueError) as error:
            raise UsageError(self._why(error, bool(asked), password)) from None

    def _why(self, error: Exception, asked: bool, password: bytes | None) -> str:
        reason = getattr(error, "reason", None) or str(error)
        if reason == "KEY_VALUES_MISMATCH":
            return f"--tls-key {self._key} is not the key of --tls-cert {self._cert}; is one from before a renewal?"
        if asked and not password:
            return (
                f"--tls-key {self._key} has a password; give it with --tls-key-password-file FILE or in {VARIABLE},"
                " or take it off: openssl pkey -in KEY -out NEW"
            )
        if asked:
            where = f"--tls-key-password-file {self._password_file}" if self._password_file else VARIABLE
            return f"--tls-key {self._key}: the password in {where} does not open it"
        return f"--tls-cert {self._cert} with --tls-key {self._key} cannot be used: {reason}"


def _fresh() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _check_pem(path: Path, flag: str, data: bytes, mark: bytes, noun: str) -> None:
    if mark in data:
        return
    what = "is empty" if not data else "is PEM, but of something else" if _MARK in data else "is not PEM"
    raise UsageError(f"{flag} {path} {what}; a {noun} in PEM begins with {_MARK.decode()}…")


def tls(settings: Settings, environment: Mapping[str, str]) -> Tls | None:
    """What the server's sockets are wrapped with; None where they are not. UsageError for files that can't be used."""
    return Tls(settings, environment) if settings.tls_cert else None
