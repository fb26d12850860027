"""Raw connections to a server: bytes as a test wants them, and whole answers."""

from __future__ import annotations

import socket
from typing import ClassVar

from tests.support.children import Child


def request(body: bytes, *lines: bytes, version: bytes = b"1.1") -> bytes:
    head = [b"POST /predict HTTP/" + version, b"host: x", b"content-length: %d" % len(body), *lines]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


class Wire:
    """A raw connection that reads whole answers."""

    opened: ClassVar[list[socket.socket]] = []

    def __init__(self, server: Child) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        self.opened.append(self.socket)
        self._left = b""

    def send(self, data: bytes) -> Wire:
        self.socket.sendall(data)
        return self

    def answer(self) -> tuple[int, dict[bytes, bytes], bytes]:
        """The next answer on this connection: status, headers, body."""
        while b"\r\n\r\n" not in self._left:
            self._more()
        head, _, rest = self._left.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        headers = dict(line.lower().split(b": ", 1) for line in lines[1:])
        size = int(headers.get(b"content-length", b"0"))
        self._left = rest
        while len(self._left) < size:
            self._more()
        body, self._left = self._left[:size], self._left[size:]
        return int(lines[0].split()[1]), headers, body

    def _more(self) -> None:
        data = self.socket.recv(65536)
        assert data, f"closed after {self._left!r}"
        self._left += data

    def closed(self) -> bool:
        """Whether the server closes the connection within the timeout."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionResetError:
            pass
        return True
