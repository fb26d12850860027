"""The end of a server, at every moment that a signal may come. Real processes, real signals."""

from __future__ import annotations

import json
import signal
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.children import Child, Start
from tests.support.spin import spin_model

pytestmark = pytest.mark.e2e


def ask(server: Child, rounds: float, cut: int = 0) -> socket.socket:
    """Send a request that takes so many rounds (its last `cut` bytes are held back) → its connection."""
    body = json.dumps({"instances": [[rounds]]}).encode()
    wire = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    head = b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n%s\r\n" % (
        len(body),
        b"expect: 100-continue\r\n" if cut else b"",
    )
    wire.sendall((head + body)[: len(head + body) - cut])
    return wire


def until(condition: Any) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "waited 20 s for nothing"
        time.sleep(0.02)


def closed(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


def running(server: Child) -> bool:
    with urllib.request.urlopen(server.url + "/metrics") as told:
        return b"onbudget_lanes_busy 1.0" in told.read()


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_model_loads(start: Start, tmp_path: Path, sig: signal.Signals) -> None:
    """A server that is told to end before it was ready ends with 0, and says nothing of a failure."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    server = start(spin_model(tmp_path / "slow.onnx", always=30_000), "--port", str(port), wait=False)

    def loading() -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ready")
        except urllib.error.HTTPError as told:
            return json.load(told)["reason"] == "loading"
        except urllib.error.URLError:
            assert server.process.poll() is None
        return False

    until(loading)
    assert server.end(sig) == 0
    assert "Traceback" not in server.log


def test_a_run_that_outlasts_the_drain_is_stopped_and_its_caller_told(start: Start, tmp_path: Path) -> None:
    """After --drain-timeout (parts of a second too) the caller of a stuck run hears 503, and the exit is still 0."""
    server = start(spin_model(tmp_path / "spin.onnx"), "--lanes", "2", "--drain-timeout", "500ms")
    with ask(server, 1e15) as wire:
        until(lambda: running(server))
        server.process.send_signal(signal.SIGTERM)
        answer = wire.recv(65536)
    assert answer.startswith(b"HTTP/1.1 503")
    assert b'"reason": "stopped"' in answer
    assert server.process.wait(20) == 0


def test_a_caller_that_never_finishes_does_not_hold_up_the_end(start: Start, tmp_path: Path) -> None:
    """Half a body keeps the server for no longer than --drain-timeout."""
    server = start(spin_model(tmp_path / "spin.onnx"), "--drain-timeout", "300ms", "--client-timeout", "60s")
    with ask(server, 0.0, cut=3) as wire:
        assert b" 100 " in wire.recv(1000)  # its head was read
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0


def test_a_second_signal_ends_it_at_once(start: Start, tmp_path: Path) -> None:
    """Whoever does not want to wait for the drain sends another signal, and that one always works."""
    server = start(spin_model(tmp_path / "spin.onnx"), "--lanes", "2", "--drain-timeout", "60s")
    with ask(server, 1e15):
        until(lambda: running(server))
        server.process.send_signal(signal.SIGTERM)
        until(lambda: closed(server.port))
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == -signal.SIGTERM
