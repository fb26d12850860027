"""TLS files: what is wrong with them is told before anybody connects."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from onbudget.core.errors import UsageError
from onbudget.serve.settings import Settings
from onbudget.serve.tls import Tls, tls
from tests.support.certs import PASSWORD, Pair

pytestmark = pytest.mark.needs("openssl")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(tmp_path_factory.mktemp("other"))


def settings(cert: Path, key: Path, password: Path | None = None) -> Settings:
    return Settings(tls_cert=str(cert), tls_key=str(key), tls_key_password_file=str(password or ""))


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Both ends in memory → the client's, once they agree; ssl.SSLError where they don't."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(back, there, server_hostname="localhost"),
        server.wrap_bio(there, back, server_side=True),
    ]
    for _ in range(10):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert ends[0].cipher() is not None
    return ends[0]


def trusting(cert: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(cert))


def test_a_certificate_and_its_key_serve_tls_1_2_and_newer(pair: Pair) -> None:
    """1.3 and 1.2 with HTTP/1.1 agreed on; 1.1 is refused by us, whatever the client would do."""
    served = tls(settings(pair.cert, pair.key), {})
    assert served is not None
    for version, told in ((ssl.TLSVersion.TLSv1_3, "TLSv1.3"), (ssl.TLSVersion.TLSv1_2, "TLSv1.2")):
        client = trusting(pair.cert)
        client.maximum_version = version
        client.set_alpn_protocols(["h2", "http/1.1"])
        end = handshake(served.context, client)
        assert (end.version(), end.selected_alpn_protocol()) == (told, "http/1.1")
    assert served.context.minimum_version is ssl.TLSVersion.TLSv1_2
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.load_verify_locations(pair.cert)
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError, match=r"UNSUPPORTED_PROTOCOL|PROTOCOL_VERSION"):
        handshake(served.context, old)


def test_without_a_certificate_there_is_no_tls() -> None:
    """The default."""
    assert tls(Settings(), {}) is None


def test_a_password_comes_from_a_file_or_the_environment(pair: Pair, tmp_path: Path) -> None:
    """The file's line end is not part of it; the file goes first."""
    file = tmp_path / "password.txt"
    file.write_text(PASSWORD + "\n")
    file.chmod(0o600)
    Tls(settings(pair.cert, pair.locked, file), {"ONBUDGET_TLS_KEY_PASSWORD": "wrong"})
    Tls(settings(pair.cert, pair.locked), {"ONBUDGET_TLS_KEY_PASSWORD": PASSWORD})


@pytest.mark.parametrize("where", ["file", "environment"])
def test_a_wrong_password_is_told_with_its_place_and_not_repeated(pair: Pair, tmp_path: Path, where: str) -> None:
    """Who reads the log learns where it came from."""
    file = tmp_path / "password.txt"
    file.write_text("tulips")
    file.chmod(0o600)
    given = settings(pair.cert, pair.locked, file if where == "file" else None)
    with pytest.raises(UsageError, match="does not open it") as told:
        Tls(given, {"ONBUDGET_TLS_KEY_PASSWORD": "tulips"})
    assert (str(file) if where == "file" else "ONBUDGET_TLS_KEY_PASSWORD") in str(told.value)
    assert "tulips" not in str(told.value)


def test_a_key_with_a_password_and_none_given_asks_nobody(pair: Pair) -> None:
    """OpenSSL would ask the terminal, and a service has none."""
    with pytest.raises(UsageError, match="has a password; give it with --tls-key-password-file"):
        Tls(settings(pair.cert, pair.locked), {})


def test_files_that_cannot_be_used_are_told(pair: Pair, other: Pair, tmp_path: Path) -> None:
    """Missing, a folder, empty, not PEM, swapped, of another pair: the flag, the file and what it is."""
    empty, junk = tmp_path / "empty.pem", tmp_path / "junk.pem"
    empty.touch(0o600)
    junk.write_text("hello")
    junk.chmod(0o600)
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    for cert, key, says in [
        (tmp_path / "no.pem", pair.key, "--tls-cert .*no.pem cannot be read: No such file"),
        (pair.cert, tmp_path / "no.pem", "--tls-key .*no.pem cannot be read: No such file"),
        (tmp_path, pair.key, "--tls-cert .* cannot be read: Is a directory"),
        (empty, pair.key, "--tls-cert .* is empty; a certificate"),
        (pair.cert, junk, "--tls-key .* is not PEM; a private key"),
        (pair.key, pair.key, "--tls-cert .* is PEM, but of something else"),
        (pair.cert, pair.cert, "--tls-key .* is PEM, but of something else"),
        (pair.cert, other.key, "--tls-key .* is not the key of --tls-cert"),
        (broken, pair.key, "--tls-cert .* cannot be used"),
    ]:
        with pytest.raises(UsageError, match=says) as told:
            Tls(settings(cert, key), {})
        assert told.value.exit_code == 2


def test_a_file_that_may_not_be_read_is_told(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system says is passed on (tests run as root, who may read everything)."""

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(UsageError, match=r"--tls-cert .* cannot be read: Permission denied"):
        Tls(settings(pair.cert, pair.key), {})


def test_a_key_that_everybody_can_read_is_warned_of(
    pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is served all the same: secrets that are mounted into a container often look so."""
    Tls(settings(pair.cert, pair.key), {})
    assert caplog.text == ""
    open_key = tmp_path / "open.pem"
    open_key.write_bytes(pair.key.read_bytes())
    open_key.chmod(0o644)
    Tls(settings(pair.cert, open_key), {})
    assert f"--tls-key {open_key} can be read by every user" in caplog.text


def test_a_renewed_pair_is_served_from_then_on(pair: Pair, other: Pair, tmp_path: Path) -> None:
    """The context that sockets hold gets it; half a renewal changes nothing and says so."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    for path, data in ((cert, pair.cert), (key, pair.key)):
        path.write_bytes(data.read_bytes())
        path.chmod(0o600)
    served = Tls(settings(cert, key), {})
    handshake(served.context, trusting(pair.cert))
    cert.write_bytes(other.cert.read_bytes())
    with pytest.raises(UsageError, match="is not the key of"):
        served.load()
    handshake(served.context, trusting(pair.cert))
    key.write_bytes(other.key.read_bytes())
    served.load()
    handshake(served.context, trusting(other.cert))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(served.context, trusting(pair.cert))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"tls_cert": "c.pem"}, "--tls-cert alone is not enough for TLS: add --tls-key FILE"),
        ({"tls_key": "k.pem"}, "--tls-key alone is not enough for TLS: add --tls-cert FILE"),
        ({"tls_key_password_file": "p.txt"}, "--tls-key, which is not given"),
    ],
)
def test_half_of_it_is_not_enough(given: dict[str, str], says: str) -> None:
    """A certificate without its key, a key without its certificate, a password for nothing."""
    with pytest.raises(UsageError, match=says):
        Settings(**given)  # type: ignore[arg-type]
