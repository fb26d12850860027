"""A tiny HTTP server of the tests' own, as a process: `python stub_server.py MODE [SECONDS]`, prints its port.

Modes, each a method of Stub: ok (after SECONDS), refuse (429 to two in three), broken (500), wrong (422), chunked, cut
(closes amid every third answer), close (HTTP/1.0), until-close (no length), garbage, hang (never answers every tenth),
early (103 before the 200), stale (closes each connection once it was used twice), number (429 with the number of the
connection).
"""

from __future__ import annotations

import asyncio
import sys

READY = b'{"status":"ready","model":{"field":"tiles","shape":[8,8,3],"dtype":"uint8","task":"classify","sha256":"abc"}}'
ANSWER = b'{"predictions":[{"label":"sea","confidence":0.9}]}'


def whole(status: bytes, body: bytes, extra: bytes = b"", version: bytes = b"1.1") -> bytes:
    return b"HTTP/%b %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b\r\n%b" % (
        version,
        status,
        len(body),
        extra,
        body,
    )


class Stub(asyncio.Protocol):
    count = 0
    connections = 0

    def __init__(self, mode: str, seconds: float) -> None:
        self.mode, self.seconds = mode, seconds
        self.data = b""
        self.used = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        Stub.connections += 1
        self.number_here = Stub.connections

    def data_received(self, data: bytes) -> None:
        self.data += data
        while True:
            end = self.data.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self.data[:end].lower()
            start = head.find(b"content-length:")
            length = int(head[start + 15 :].split(b"\r\n")[0]) if start >= 0 else 0
            if len(self.data) < end + 4 + length:
                return
            body = self.data[end + 4 : end + 4 + length]
            self.data = self.data[end + 4 + length :]
            if head.startswith(b"get /ready"):
                self.transport.write(whole(b"200 OK", READY))
            elif head.startswith(b"get /metrics"):
                self.transport.write(whole(b"404 Not Found", b"{}"))
            elif head.startswith(b"post /echo"):
                self.transport.write(whole(b"200 OK", body))
            else:
                Stub.count += 1
                asyncio.get_running_loop().call_later(self.seconds, self.answer, Stub.count)

    def answer(self, number: int) -> None:
        self.used += 1
        if not self.transport.is_closing():
            getattr(self, self.mode.replace("-", "_"))(number)

    def ok(self, number: int) -> None:
        self.transport.write(whole(b"200 OK", ANSWER))

    def refuse(self, number: int) -> None:
        if number % 3 == 1:
            self.ok(number)
        else:
            body = b'{"detail":"too much","reason":"queue full","retry_after_ms":40}'
            self.transport.write(whole(b"429 Too Many Requests", body, b"Retry-After: 1\r\n"))

    def number(self, number: int) -> None:
        body = b'{"detail":"too much","reason":"connection %d"}' % self.number_here
        self.transport.write(whole(b"429 Too Many Requests", body))

    def broken(self, number: int) -> None:
        if number == 1:  # the first request is the probe
            self.ok(number)
        else:
            self.transport.write(whole(b"500 Internal Server Error", b'{"detail":"the model\'s run raised"}'))

    def wrong(self, number: int) -> None:
        self.transport.write(whole(b"422 Unprocessable Content", b'{"detail":"item 1 (tiles[0]): 192 bytes"}'))

    def chunked(self, number: int) -> None:
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.transport.write(head + b"7\r\n" + ANSWER[:7] + b"\r\n")
        rest = b"%x\r\n%b\r\n0\r\n\r\n" % (len(ANSWER) - 7, ANSWER[7:])
        asyncio.get_running_loop().call_later(0.002, self.transport.write, rest)

    def cut(self, number: int) -> None:
        if number % 3:
            self.ok(number)
        else:
            self.transport.write(whole(b"200 OK", ANSWER)[:-5])
            self.transport.close()

    def close(self, number: int) -> None:
        self.transport.write(whole(b"200 OK", ANSWER, version=b"1.0"))
        self.transport.close()

    def until_close(self, number: int) -> None:
        self.transport.write(b"HTTP/1.1 200 OK\r\n\r\n" + ANSWER)
        self.transport.close()

    def garbage(self, number: int) -> None:
        self.transport.write(b"SSH-2.0-OpenSSH_9.2p1\r\n" if number > 1 else whole(b"200 OK", ANSWER))

    def hang(self, number: int) -> None:
        if number % 10 != 2:
            self.ok(number)

    def early(self, number: int) -> None:
        self.transport.write(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + whole(b"200 OK", ANSWER))

    def stale(self, number: int) -> None:
        self.ok(number)
        if self.used >= 2:
            asyncio.get_running_loop().call_later(0.001, self.transport.close)


async def main(mode: str, seconds: float) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Stub(mode, seconds), "127.0.0.1", 0, backlog=1024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0.0))
