"""`python -m onbudget.cli.healthy [PATH]`: exit code 0 where this machine's server answers `GET PATH` with 200, else 1.

For images and service managers that have no curl. Where the server listens is read from the environment, as the server
itself does: ONBUDGET_HOST, ONBUDGET_PORT, ONBUDGET_UDS, ONBUDGET_TLS_CERT. PATH is `/health`, or `/ready`, which tells
whether it is warm.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import sys
from collections.abc import Mapping

TIMEOUT_S = 3.0
_LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where it listens, not where we do


def _connection(environment: Mapping[str, str]) -> http.client.HTTPConnection:
    host = environment.get("ONBUDGET_HOST", "")
    host, port, path = (
        _LOOPBACK.get(host, host),
        environment.get("ONBUDGET_PORT") or "8000",
        environment.get("ONBUDGET_UDS"),
    )
    connection = http.client.HTTPConnection("localhost", timeout=TIMEOUT_S)
    if path:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(TIMEOUT_S)
        connection.sock.connect(path)
    else:
        connection.sock = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
    if environment.get("ONBUDGET_TLS_CERT"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # The certificate is for the name that callers use; nothing secret is sent.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection.sock = context.wrap_socket(connection.sock)
    return connection


def ask(path: str, environment: Mapping[str, str]) -> str:
    """What is wrong, in a sentence; empty where the answer is 200."""
    try:
        connection = _connection(environment)
        connection.request("GET", path)
        status = connection.getresponse().status
        connection.close()
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"no answer: {error}"
    return "" if status == 200 else f"GET {path} was answered with {status}"


if __name__ == "__main__":
    wrong = ask(sys.argv[1] if len(sys.argv) > 1 else "/health", os.environ)
    if wrong:
        print(wrong, file=sys.stderr)  # noqa: T201 - shown by `docker inspect`
    sys.exit(1 if wrong else 0)
