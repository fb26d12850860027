"""A thin server, to measure ours by: the least that Python and its libraries do for an answer.

    python benchmarks/thin.py served.onnx [--port 8000] [--max-batch 4]

It reads JSON with one item in base64, and runs up to `--max-batch` of those that came, greedily; the answer is the best
label and its probability, in one write. It has the same event loop, base64 and ONNX Runtime as `onbudget serve`, and
nothing that a server is for: no HTTP beyond a length, no check of anything, no policy, no limits, no metrics. Not for
clients that are not ours: what they send wrong ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pybase64
import uvloop

from onbudget.engine.session import load_runner
from onbudget.serve.contract import contract_of

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"


class Thin:
    """A bundle that classifies rows of fixed shape, behind connections that are `Line`s."""

    def __init__(self, bundle: Path, most: int, loop: asyncio.AbstractEventLoop) -> None:
        runner = load_runner(bundle)
        contract = contract_of(runner)
        assert runner.metadata is not None
        self._run = runner.session._sess.run
        self._outputs = [runner.metadata.output]
        rows = np.zeros((most, *(contract.shape or ())), contract.dtype)
        self._feeds = [{contract.inputs[0].name: rows[:count]} for count in range(most + 1)]
        self._raw = [memoryview(row.reshape(-1).view(np.uint8)) for row in rows]  # type: ignore[arg-type]
        labels = [json.dumps(label).replace("%", "%%") for label in runner.metadata.labels]
        self._answers = [f'{{"predictions":[{{"label":{label},"confidence":%r}}]}}' for label in labels]
        self._most = most
        self._loop = loop
        self._waiting: deque[tuple[Any, bytes, int]] = deque()
        self._before, self._behind = len(f'{{"{contract.field}":["'), -len('"]}')

    def come(self, transport: Any, data: bytes, end: int) -> None:
        """A request has come whole: `data`, whose body begins at `end`."""
        if not self._waiting:
            self._loop.call_soon(self._turn)
        self._waiting.append((transport, data, end))

    def _turn(self) -> None:
        count = min(len(self._waiting), self._most)
        taken = [self._waiting.popleft() for _ in range(count)]
        for row, (_, data, end) in zip(self._raw, taken, strict=False):
            begin = data.index(b'"', end + self._before - 2) + 1  # with or without a space before it
            row[:] = pybase64.b64decode(memoryview(data)[begin : self._behind], validate=True)
        scores = self._run(self._outputs, self._feeds[count], None)[0]
        best, values = scores.argmax(1).tolist(), scores.max(1).tolist()
        for (transport, _, _), index, value in zip(taken, best, values, strict=True):
            body = (self._answers[index] % value).encode()
            if not transport.is_closing():
                transport.write(HEAD % (len(body), body))
        if self._waiting:
            self._loop.call_soon(self._turn)


class Line(asyncio.Protocol):
    """One connection, whose requests begin where a read does."""

    def __init__(self, thin: Thin) -> None:
        self._thin = thin
        self._need = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if not self._need:
            if not data.startswith(b"POST "):  # the rest of what a client gave up
                self._transport.close()
                return
            self._end = data.find(b"\r\n\r\n") + 4
            at = data.lower().find(b"content-length: ", 0, self._end) + 16
            self._need = self._end + int(data[at : data.find(b"\r", at)])
            self._data = data
        else:
            self._data += data
        if len(self._data) >= self._need:
            self._need = 0
            self._thin.come(self._transport, self._data, self._end)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--max-batch", type=int, default=4)
    chosen = parser.parse_args()
    loop = uvloop.new_event_loop()
    thin = Thin(chosen.bundle, chosen.max_batch, loop)
    server = loop.run_until_complete(loop.create_server(lambda: Line(thin), "127.0.0.1", chosen.port, backlog=1024))
    gc.collect()
    gc.freeze()
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    loop.run_forever()


if __name__ == "__main__":
    main()
