"""TLS, API keys, Unix sockets and a proxy's prefix: real servers, plain clients."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from tests.support.certs import Pair
from tests.support.children import Child, Start
from tests.support.spin import spin_model

pytestmark = pytest.mark.e2e
QUICK = b'{"instances": [[0]]}'
KEY, NEXT = "the-first-key-of-this-test", "the-other-key-of-this-test"
BEARER = {"authorization": f"Bearer {KEY}"}


@pytest.fixture
def spin(tmp_path: Path) -> Path:
    return spin_model(tmp_path / "spin.onnx")


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    while Client.opened:
        Client.opened.pop().close()


class Client(http.client.HTTPConnection):
    """One connection that stays: over TCP, TLS or a Unix socket."""

    opened: ClassVar[list[http.client.HTTPConnection]] = []

    def __init__(self, server: Child, trusted: Path | None = None, path: Path | None = None) -> None:
        super().__init__("localhost", server.port, timeout=20)
        if path is not None:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(20)
            self.sock.connect(str(path))
        else:
            self.sock = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        if trusted is not None:
            context = ssl.create_default_context(cafile=str(trusted))
            self.sock = context.wrap_socket(self.sock, server_hostname="localhost")
        self.opened.append(self)
        self.auto_open = 0  # a connection that the server closed is an error of the test

    def ask(
        self, method: str = "POST", path: str = "/predict", body: bytes | None = QUICK, **headers: str
    ) -> tuple[int, bytes]:
        lines = {name.replace("_", "-"): value for name, value in headers.items()}
        self.request(method, path, body if method == "POST" else None, lines)
        answer = self.getresponse()
        return answer.status, answer.read()


@pytest.mark.needs("openssl")
def test_tls_serves_both_paths_and_large_bodies(start: Start, spin: Path, tmp_path: Path) -> None:
    """Kept connections, the fast path and the app, bodies of many records, one too large, and a drain."""
    pair = Pair(tmp_path)
    server = start(spin, "--tls-cert", str(pair.cert), "--tls-key", str(pair.key), "--max-body", "1MB")
    assert server.url == f"https://127.0.0.1:{server.port}"
    client = Client(server, pair.cert)
    for _ in range(3):
        assert client.ask() == (200, b'{"predictions":[{"y":[0.0]}]}')
        assert client.ask("GET", "/ready")[0] == 200
    padded = QUICK[:-1] + b" " * 900_000 + b"}"
    assert client.ask(body=padded)[0] == 200
    status, detail = client.ask(body=padded * 2)
    assert (status, b"--max-body" in detail) == (413, True)
    assert server.end() == 0
    assert "Traceback" not in server.log


@pytest.mark.needs("openssl")
def test_a_client_that_speaks_no_tls_harms_nobody(start: Start, spin: Path, tmp_path: Path) -> None:
    """Plain HTTP on a TLS port, a client that does not trust us, a hang-up, silence: others are served."""
    pair = Pair(tmp_path)
    flags = ("--tls-cert", str(pair.cert), "--tls-key", str(pair.key), "--client-timeout", "500ms")
    server = start(spin, *flags, "--drain-timeout", "60s")
    plain = Client(server)
    with pytest.raises((http.client.HTTPException, OSError)):
        plain.ask()
    with pytest.raises(ssl.SSLCertVerificationError), socket.create_connection(("127.0.0.1", server.port)) as raw:
        ssl.create_default_context().wrap_socket(raw, server_hostname="localhost")
    socket.create_connection(("127.0.0.1", server.port)).close()
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as silent:
        assert silent.recv(1) == b""  # closed after --client-timeout
    idle = Client(server, pair.cert)
    assert idle.ask()[0] == 200
    assert server.end() == 0  # though this one never says goodbye
    assert "Traceback" not in server.log


def key_file(path: Path, *keys: str) -> Path:
    path.write_text("".join(f"{key}\n" for key in keys))
    path.chmod(0o600)
    return path


def test_keys_are_asked_for_and_read_again(start: Start, spin: Path, tmp_path: Path) -> None:
    """Fast path and app; SIGHUP brings a new key in and takes the old one out, open connections too; no log has any."""
    file = key_file(tmp_path / "keys.txt", KEY)
    server = start(spin, "--api-key-file", str(file))
    client = Client(server)
    for _ in range(3):
        assert client.ask(**BEARER)[0] == 200
    assert client.ask("GET", "/status", x_api_key=KEY)[0] == 200
    for path in ("/health", "/ready"):
        status, told = client.ask("GET", path)
        assert (status, KEY.encode() in told) == (200, False)
    for path in ("/status", "/metrics", "/docs", "/nowhere"):
        assert Client(server).ask("GET", path)[0] == 401
    assert Client(server).ask(authorization=f"Bearer {NEXT}")[0] == 401
    key_file(file, NEXT)
    server.process.send_signal(signal.SIGHUP)
    end = time.monotonic() + 20
    while Client(server).ask("GET", "/status", x_api_key=NEXT)[0] != 200:
        assert time.monotonic() < end
    assert client.ask(authorization=f"Bearer {NEXT}")[0] == 200  # the connection that was open stays
    assert client.ask(**BEARER)[0] == 401
    assert server.end() == 0
    assert not {KEY, NEXT} & set(server.log.split())
    assert KEY not in server.log + " ".join(map(str, server.process.args))  # type: ignore[arg-type]
    assert "Traceback" not in server.log


def test_keys_come_from_the_environment_too(start: Start, spin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a container gets them."""
    monkeypatch.setenv("ONBUDGET_API_KEYS", f"{KEY},{NEXT}")
    server = start(spin)
    assert Client(server).ask()[0] == 401
    assert [Client(server).ask(x_api_key=key)[0] for key in (KEY, NEXT)] == [200, 200]


def test_a_unix_socket_serves_and_goes_with_its_server(start: Start, spin: Path, tmp_path: Path) -> None:
    """Owner and group may connect; a second server leaves it alone; it goes at the end, or is replaced."""
    path = tmp_path / "s.sock"
    server = start(spin, "--uds", str(path))
    assert server.url == f"http+unix://{path}"
    assert path.stat().st_mode & 0o777 == 0o660
    client = Client(server, path=path)
    for _ in range(3):
        assert client.ask()[0] == 200
        assert client.ask("GET", "/ready")[0] == 200
    second = start(spin, "--uds", str(path), wait=False)
    assert second.process.wait(30) == 2
    assert "another server listens there" in second.log
    assert client.ask()[0] == 200
    assert server.end() == 0
    assert not path.exists()
    killed = start(spin, "--uds", str(path))
    assert killed.end(signal.SIGKILL) == -signal.SIGKILL
    assert path.is_socket()
    third = start(spin, "--uds", str(path))
    assert Client(third, path=path).ask()[0] == 200


def test_behind_a_prefix_paths_stay_and_pages_know_it(start: Start, spin: Path) -> None:
    """A proxy takes `/model` off: our paths are the usual ones, and the API's document names the prefix."""
    server = start(spin, "--root-path", "/model")
    client = Client(server)
    for path in ("/health", "/ready", "/status", "/metrics", "/docs"):
        assert client.ask("GET", path)[0] == 200
    assert client.ask()[0] == 200
    assert json.loads(client.ask("GET", "/openapi.json")[1])["servers"] == [{"url": "/model"}]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--cors-origin", "*"), "name each origin"),
        (("--root-path", "model/"), "is not a prefix"),
        (("--tls-cert", "no.pem"), "add --tls-key FILE"),
        (("--api-key-file", "/nowhere/keys"), "--api-key-file /nowhere/keys cannot be read"),
        (("--uds", "/nowhere/s.sock"), "can't listen there"),
    ],
)
def test_a_wrong_option_is_one_sentence(start: Start, spin: Path, flags: tuple[str, ...], says: str) -> None:
    """Exit code 2, before the model is loaded, and never a traceback."""
    server = start(spin, *flags, wait=False)
    assert server.process.wait(30) == 2
    assert says in server.log
    assert "Traceback" not in server.log


def test_greetings_say_who_may_come(start: Start, spin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open to other machines: with no keys, or with keys that travel in the clear, it says so."""
    assert "there is no authentication" in start(spin, "--host", "0.0.0.0").log
    monkeypatch.setitem(os.environ, "ONBUDGET_API_KEYS", KEY)
    server = start(spin, "--host", "0.0.0.0")
    end = time.monotonic() + 20
    while "without TLS" not in server.log:
        assert time.monotonic() < end, server.log
        time.sleep(0.02)
    assert "there is no authentication" not in server.log
