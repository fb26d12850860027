"""The service that one writes by hand, for `onbudget demo` to compare with: `python -m onbudget.cli.naive BUNDLE`.

FastAPI and pydantic as their tutorials show them, on uvicorn: one request is one `session.run`, in the handler, and
there is no batching and no queue. It is no straw man: one session made once, one thread on one core, no access log,
uvloop and httptools, the same file with its preprocessing and softmax in the graph, and an `async def` handler, since a
plain `def` would go through a pool of threads and be slower still.
"""

from __future__ import annotations

import base64
import json
import socket
import sys

import numpy as np
import onnxruntime as ort
import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from onbudget.core.metadata import KEY


class Tiles(BaseModel):
    tiles: list[str]


def create_app(path: str) -> FastAPI:
    """The whole service: `POST /predict` of {"tiles": [base64 of raw RGB]}, and `GET /health`."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    labels = json.loads(session.get_modelmeta().custom_metadata_map[KEY])["labels"]
    port = session.get_inputs()[0]
    shape = tuple(port.shape[1:])
    app = FastAPI()

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/predict", response_model=None)  # the answer is not validated a second time: that would only be slower
    async def predict(body: Tiles) -> dict[str, list[dict[str, str | float]]]:
        try:
            rows = [
                np.frombuffer(base64.b64decode(tile, validate=True), np.uint8).reshape(shape) for tile in body.tiles
            ]
            tiles = np.stack(rows)
        except ValueError as error:
            raise HTTPException(422, str(error)) from error
        answers = session.run(["probabilities"], {port.name: tiles})[0]
        return {
            "predictions": [{"label": labels[int(row.argmax())], "confidence": float(row.max())} for row in answers]
        }

    return app


def main() -> None:
    """Serve the bundle named on the command line on a free port of loopback; the address is a line on stderr."""
    app = create_app(sys.argv[1])
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", file=sys.stderr, flush=True)  # noqa: T201 - its only word
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listener])


if __name__ == "__main__":
    main()
