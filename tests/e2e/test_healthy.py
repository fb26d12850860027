"""The image's health check against real servers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onbudget.cli.healthy import ask
from tests.support.certs import Pair
from tests.support.children import Start
from tests.support.dockerfile import health_command
from tests.support.spin import spin_model

pytestmark = pytest.mark.e2e


def test_the_health_check_finds_the_server(start: Start, tmp_path: Path) -> None:
    """The image's own command, told by the environment as the server is: 0 while it lives, 1 and why after."""
    server = start(spin_model(tmp_path / "spin.onnx"), "--host", "0.0.0.0")
    environment = {**os.environ, "ONBUDGET_HOST": "0.0.0.0", "ONBUDGET_PORT": str(server.port)}

    def check() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *health_command()[1:]]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30)

    assert (check().returncode, check().stderr) == (0, "")
    server.end()
    gone = check()
    assert (gone.returncode, gone.stderr) == (1, "no answer: [Errno 111] Connection refused\n")


@pytest.mark.needs("openssl")
def test_the_health_check_speaks_what_the_server_speaks(start: Start, tmp_path: Path) -> None:
    """TLS, a Unix socket, keys that it does not have; another path; and an answer that is no 200."""
    spin, pair, path = spin_model(tmp_path / "spin.onnx"), Pair(tmp_path), str(tmp_path / "s.sock")
    secure = start(spin, "--tls-cert", str(pair.cert), "--tls-key", str(pair.key))
    told = {"ONBUDGET_PORT": str(secure.port), "ONBUDGET_TLS_CERT": str(pair.cert)}
    assert ask("/health", told) == ""
    assert ask("/health", {"ONBUDGET_PORT": str(secure.port)}).startswith("no answer: ")
    file = tmp_path / "keys.txt"
    file.write_text("the-only-key-of-this-test")
    file.chmod(0o600)
    start(spin, "--uds", path, "--api-key-file", str(file))
    assert ask("/ready", {"ONBUDGET_UDS": path}) == ""
    assert ask("/status", {"ONBUDGET_UDS": path}) == "GET /status was answered with 401"
    assert ask("/health", {"ONBUDGET_PORT": "none"}).startswith("no answer: ")
