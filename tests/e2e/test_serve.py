"""The served answers are the right ones, each caller's own, whatever the others do. Real server, real sockets."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import pytest
from PIL import Image

from tests.support.children import Start
from tests.support.tiles import Tiles

pytestmark = pytest.mark.e2e


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def png(tile: np.ndarray[Any, Any], kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.fromarray(tile).save(out, kind, **({"lossless": True} if kind == "WEBP" else {}))
    return out.getvalue()


def same(predictions: list[dict[str, Any]], expected: list[tuple[str, float]]) -> None:
    assert [p["label"] for p in predictions] == [label for label, _ in expected]
    assert [p["confidence"] for p in predictions] == pytest.approx([c for _, c in expected], abs=1e-3)


def test_every_request_shape_gives_the_reference_answer(start: Start, tiles: Tiles) -> None:
    """Base64 rows, nested numbers, octets, pictures and forms all equal the numpy reference within 1e-3."""
    url = start(tiles.bundle).url + "/predict"
    five = tiles.some(5)
    expected = tiles.expect(five)
    listed: list[dict[str, Any]] = [
        {"json": {"tiles": [b64(t.tobytes()) for t in five]}},
        {"json": {"instances": [b64(t.tobytes()) for t in five]}},
        {"json": {"tiles": [t.tolist() for t in five]}},
        {"json": {"tiles": [b64(png(t)) for t in five]}},
        {"json": {"tiles": [b64(five[0].tobytes()), five[1].tolist(), *(b64(png(t, "WEBP")) for t in five[2:])]}},
        {"content": five.tobytes(), "headers": {"content-type": "application/octet-stream"}},
        {"files": [("file", ("x.png", png(t), "image/png")) for t in five]},
        {"content": json.dumps({"tiles": [b64(t.tobytes()) for t in five]}).encode()},  # no content type
    ]
    with httpx.Client() as client:
        for request in listed:
            answer = client.post(url, **request)
            assert answer.status_code == 200, answer.text
            same(answer.json()["predictions"], expected)
        for request in (
            {"content": png(five[0]), "headers": {"content-type": "image/png"}},
            {"files": {"file": ("x", png(five[0], "WEBP"), "image/webp")}},
        ):
            same([client.post(url, **request).json()], expected[:1])
        jpeg = png(five[0], "JPEG")
        read = np.asarray(Image.open(io.BytesIO(jpeg)))
        same([client.post(url, files={"file": ("x.jpg", jpeg, "image/jpeg")}).json()], tiles.expect(read[None]))
        large = np.kron(five[0], np.ones((3, 2, 1), np.uint8))  # another size: resized as the recipe says
        small = np.asarray(Image.fromarray(large).resize((16, 16), Image.Resampling.BILINEAR))
        same([client.post(url, files={"file": ("x.png", png(large), "image/png")}).json()], tiles.expect(small[None]))


def test_answers_carry_their_timing_and_id(start: Start, tiles: Tiles) -> None:
    """Server-Timing names decode, queue and infer; X-Request-Id comes back; top lists the best classes."""
    url = start(tiles.bundle).url
    body = {"tiles": [b64(tiles.some(1).tobytes())], "top": 2}
    answer = httpx.post(url + "/predict", json=body, headers={"X-Request-Id": "abc-1"})
    assert [part.split(";")[0].strip() for part in answer.headers["server-timing"].split(",")] == [
        "decode",
        "queue",
        "infer",
    ]
    assert answer.headers["x-request-id"] == "abc-1"
    (prediction,) = answer.json()["predictions"]
    assert len(prediction["top"]) == 2
    assert prediction["top"][0] == {"label": prediction["label"], "confidence": prediction["confidence"]}


def test_health_ready_and_pages(start: Start, tiles: Tiles) -> None:
    """Health names the classes, ready the providers and settings; docs and schema come from this machine."""
    url = start(tiles.bundle, "--p95", "20ms", "--max-batch", "8").url
    with httpx.Client(base_url=url) as client:
        assert client.get("/health").json()["classes"] == list(tiles.labels)
        ready = client.get("/ready").json()
        assert ready["providers"] == ["CPUExecutionProvider"]
        assert ready["settings"]["max_batch"] == 8
        assert ready["settings"]["p95_ms"] == 20
        assert ready["model"]["shape"] == [16, 16, 3]
        assert "tiles" in client.get("/openapi.json").text
        docs = client.get("/docs").text
        assert "://" not in docs.replace(url, "")
        client.post("/predict", json={"tiles": [b64(tiles.some(1).tobytes())]})
        assert "onbudget_requests_total{" in client.get("/metrics").text
        assert client.get("/predict").status_code == 405
        assert client.get("/nowhere").json() == {"detail": "Not Found"}
        assert client.head("/health").status_code == 200


def test_eight_requests_one_truncated(start: Start, tiles: Tiles) -> None:
    """Seven good pictures and a truncated one at once: seven right answers and one 422 that says why (pain 45)."""
    url = start(tiles.bundle).url + "/predict"
    eight = tiles.some(8)
    bodies = [png(t) for t in eight]
    bodies[3] = bodies[3][: len(bodies[3]) // 2]

    async def go() -> list[httpx.Response]:
        async with httpx.AsyncClient() as client:
            sends = [client.post(url, files={"file": ("x.png", b, "image/png")}) for b in bodies]
            return await asyncio.gather(*sends)

    answers = asyncio.run(go())
    assert [a.status_code for a in answers] == [422 if i == 3 else 200 for i in range(8)]
    assert "item 1 (file[0])" in answers[3].json()["detail"]
    for index, (label, _) in enumerate(tiles.expect(eight)):
        if index != 3:
            assert answers[index].json()["label"] == label


def test_two_hundred_callers_while_a_third_hang_up(start: Start, tiles: Tiles) -> None:
    """200 distinct concurrent requests, 30 % of which hang up: every other caller gets its own answer (pain 40, 41)."""
    server = start(tiles.bundle, "--max-batch", "4")
    all_tiles = tiles.some(200)
    expected = tiles.expect(all_tiles)

    async def one(number: int) -> dict[str, Any] | None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        body = json.dumps({"tiles": [b64(all_tiles[number].tobytes())]}).encode()
        head = b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
        if number % 10 < 3:  # hang up: before the body is whole, just after it, or after a moment
            writer.write(head + (body[:100] if number % 10 == 0 else body))
            await writer.drain()
            await asyncio.sleep(0.002 * (number % 10 == 2))
            writer.transport.abort()
            return None
        writer.write(head + body)
        status = await reader.readline()
        assert b"200" in status, status
        length = 0
        while (line := await reader.readline()) != b"\r\n":
            if line.startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        answer: dict[str, Any] = json.loads(await reader.readexactly(length))["predictions"][0]
        writer.close()
        return answer

    async def go() -> list[dict[str, Any] | None]:
        return await asyncio.gather(*(one(n) for n in range(200)))

    answers = asyncio.run(asyncio.wait_for(go(), 60))
    for number, answer in enumerate(answers):
        if answer is not None:
            same([answer], expected[number : number + 1])
    assert sum(a is None for a in answers) == 60
    settled = _until(lambda: _gauge(server.url, "onbudget_in_flight_items") == 0)
    assert settled, "hung-up callers still hold places"


def _gauge(url: str, name: str) -> float:
    lines = [line for line in httpx.get(url + "/metrics").text.splitlines() if line.startswith(name)]
    assert lines, f"no {name} in /metrics"
    return float(lines[0].split()[-1])


def _until(condition: Any, seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def test_sigterm_answers_everything_accepted(start: Start, tiles: Tiles) -> None:
    """SIGTERM under load: /ready says no while the doors are open, no accepted request is lost, exit 0 (pain 68)."""
    server = start(tiles.bundle, "--drain-notice", "700ms")
    body = {"tiles": [b64(tiles.some(1).tobytes())]}
    statuses: list[int] = []
    closed = threading.Event()

    def client() -> None:
        with httpx.Client(base_url=server.url) as session:
            while not closed.is_set():
                try:
                    statuses.append(session.post("/predict", json=body).status_code)
                except (httpx.ConnectError, httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                    return  # the doors are closed, or an idle connection was

    threads = [threading.Thread(target=client) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert _until(lambda: len(statuses) > 50)
    server.process.send_signal(signal.SIGTERM)
    assert _until(lambda: httpx.get(server.url + "/ready").status_code == 503, 5)
    drained = httpx.get(server.url + "/ready")
    assert drained.json()["reason"] == "draining"
    assert int(drained.headers["retry-after"]) >= 1
    for thread in threads:
        thread.join(30)
    closed.set()
    assert server.process.wait(30) == 0
    assert set(statuses) == {200}
    assert "Traceback" not in server.log


def test_an_accepted_request_survives_the_drain(start: Start, tiles: Tiles) -> None:
    """A request whose body is half sent when SIGTERM comes is still answered."""
    server = start(tiles.bundle)
    body = json.dumps({"tiles": [b64(tiles.some(1).tobytes())]}).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body[:200])
        time.sleep(0.2)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        raw.sendall(body[200:])
        raw.settimeout(20)
        answer = raw.recv(65536)
    assert answer.startswith(b"HTTP/1.1 200"), answer
    assert b"connection: close" in answer
    assert server.process.wait(30) == 0


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--port", "http"], 2, "is not a port"),
        (["--p95", "20"], 2, "a unit is needed"),
        (["--lanes", "-1"], 2, "from 0 to 64"),
        (["--stuck-after", "0s"], 2, "must be above zero"),
        (["--host", "no.such.host.invalid"], 2, "--host"),
        (["--accept", "gif"], 2, "jpeg, png, webp"),
        (["--provider", "CUDAExecutionProvider"], 1, "CUDAExecutionProvider is not in this onnxruntime; there are: "),
        (["--nonsense"], 2, "No such option"),
    ],
)
def test_a_wrong_flag_is_one_sentence(start: Start, tiles: Tiles, flags: list[str], code: int, words: str) -> None:
    """A flag that can't be meant ends with its exit code and a sentence, never with a traceback."""
    server = start(tiles.bundle, *flags, wait=False)
    assert server.process.wait(60) == code
    assert words in server.log
    assert "Traceback" not in server.log


def test_wrong_files_are_one_sentence(start: Start, tmp_path: Path) -> None:
    """A missing file, a folder, an empty file and a text file are each told apart, exit 1."""
    empty, text = tmp_path / "empty.onnx", tmp_path / "text.onnx"
    empty.touch()
    text.write_text("hello " * 100)
    for path in (tmp_path / "missing.onnx", tmp_path, empty, text):
        server = start(path, wait=False)
        assert server.process.wait(60) == 1, server.log
        assert str(path) in server.log
        assert "Traceback" not in server.log


def test_a_taken_port_is_one_sentence(start: Start, tiles: Tiles) -> None:
    """A second server on the same port says so and what to do."""
    first = start(tiles.bundle)
    second = start(tiles.bundle, "--port", str(first.port), wait=False)
    assert second.process.wait(60) == 2
    assert "--port" in second.log
    assert "Traceback" not in second.log
