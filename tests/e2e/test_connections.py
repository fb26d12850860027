"""Connections that outlive their requests: pauses, offers, hang-ups, and callers that never read. Real server."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.children import Child, Start
from tests.support.spin import spin_model
from tests.support.wire import Wire, request

pytestmark = pytest.mark.e2e
STUCK = b'{"instances": [[1e15]]}'  # a run that only --stuck-after ends
QUICK = b'{"instances": [[0]]}'


@pytest.fixture
def server(start: Start, tmp_path: Path) -> Child:
    spin = spin_model(tmp_path / "spin.onnx")
    return start(spin, "--client-timeout", "300ms", "--stuck-after", "1s", "--lanes", "2")


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    while Wire.opened:
        Wire.opened.pop().close()


def metric(server: Child, name: str) -> float:
    """The value of one sample of `/metrics`; 0 where it is not there."""
    with urllib.request.urlopen(server.url + "/metrics") as told:
        lines = [line for line in told.read().decode().splitlines() if line.startswith(name)]
    return float(lines[0].rsplit(" ", 1)[1]) if lines else 0.0


def requests(server: Child, outcome: str) -> float:
    return metric(server, f'onbudget_requests_total{{outcome="{outcome}"')


def until(condition: object) -> None:
    end = time.monotonic() + 20
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "waited 20 s for nothing"
        time.sleep(0.02)


@pytest.mark.parametrize("first", [b"", request(QUICK)], ids=["fast", "pipelined"])
def test_half_a_head_does_not_spoil_the_answer_before_it(server: Child, first: bytes) -> None:
    """A request that runs longer than --client-timeout gets its own answer, not the 408 of what follows it."""
    wire = Wire(server).send(first + request(STUCK) + b"POST /predict HTTP/1.1\r\nhost: x")
    if first:
        assert wire.answer()[0] == 200
    status, _, detail = wire.answer()
    assert status == 500
    assert b"--stuck-after" in detail
    assert wire.closed()
    assert requests(server, "slow-client") == 0
    assert requests(server, "run-failed") == 1


def test_trailers_are_no_head(server: Child) -> None:
    """Headers after a chunked body do not start the time for a head: the connection may pause and go on."""
    body = b"%x\r\n%s\r\n0\r\nx-checksum: 1\r\n\r\n" % (len(QUICK), QUICK)
    wire = Wire(server)
    for _ in range(2):
        wire.send(b"POST /predict HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + body)
        assert wire.answer()[0] == 200
        time.sleep(0.5)  # longer than --client-timeout


UNREAD = b"GET /health HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n"


@pytest.mark.parametrize(
    ("whole", "begun"),
    [(request(QUICK), b"POS"), (request(QUICK), b"\r\n"), (UNREAD, b"half")],
    ids=["letters", "blank", "body"],
)
def test_whatever_is_begun_must_go_on(server: Child, whole: bytes, begun: bytes) -> None:
    """On a kept connection too: three letters, a blank line or an unread body hold it for --client-timeout at most."""
    wire = Wire(server).send(whole)
    assert wire.answer()[0] == 200
    assert wire.send(begun).closed()


def test_an_offer_of_http2_is_ignored_and_its_body_read(server: Child) -> None:
    """Java's client and `curl --http2` offer h2c with a POST: it is answered, and so is the next one."""
    offer = (b"connection: Upgrade, HTTP2-Settings", b"upgrade: h2c", b"http2-settings: AAMAAABkAAQAAP__")
    wire = Wire(server)
    for _ in range(2):
        head, _, body = request(QUICK, *offer).partition(b"\r\n\r\n")
        wire.send(head + b"\r\n\r\n" + body[:4])
        wire.send(body[4:])
        status, _, answer = wire.answer()
        assert (status, json.loads(answer)) == (200, {"predictions": [{"y": [0.0]}]})
    wire.send(request(QUICK, *offer) * 3)
    assert [wire.answer()[0] for _ in range(3)] == [200] * 3


def test_a_hang_up_amid_the_body_is_counted_once(server: Child) -> None:
    """A caller that leaves before its body is whole is one `gone`, like one that leaves while it waits."""
    for data in (request(QUICK)[:-1], request(STUCK)):
        wire = Wire(server).send(data)
        time.sleep(0.1)
        wire.socket.close()
    until(lambda: requests(server, "gone") == 2)
    until(lambda: metric(server, "onbudget_in_flight_items") == 0)


def test_junk_in_a_body_is_told_to_its_sender_and_counted(server: Child) -> None:
    """A chunked body that breaks its own framing is a 400 of ours."""
    wire = Wire(server).send(b"POST /predict HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n")
    status, headers, detail = wire.answer()
    assert status == 400
    assert b"not valid HTTP" in detail
    assert headers[b"connection"] == b"close"
    assert requests(server, "not-parseable") == 1


def test_callers_that_hang_up_behind_pipelined_requests_free_their_places(server: Child) -> None:
    """The running one of three pipelined requests is given up as well, though it is not the newest."""
    wire = Wire(server).send(request(QUICK) + request(STUCK) + request(QUICK))
    assert wire.answer()[0] == 200
    until(lambda: metric(server, "onbudget_in_flight_items") == 1)
    wire.socket.close()
    until(lambda: metric(server, "onbudget_in_flight_items") == 0)
    assert requests(server, "gone") == 1
    assert "Traceback" not in server.log


def test_answers_that_nobody_reads_do_not_pile_up(start: Start, tmp_path: Path) -> None:
    """A caller that sends and never reads is served until the sockets are full, and then no further."""
    graph = helper.make_graph(
        [helper.make_node("Expand", ["x", "shape"], ["y"])],
        "wide",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 100_000])],
        [numpy_helper.from_array(np.array([1, 100_000]), "shape")],
    )
    wide = tmp_path / "wide.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    wide.write_bytes(model.SerializeToString())
    server = start(wide)
    wire = Wire(server)
    for sent in range(1, 101):  # each answer has half a megabyte
        wire.send(request(b'{"instances": [[1.25]]}'))
        end = time.monotonic() + 1
        while requests(server, "ok") < sent and time.monotonic() < end:
            time.sleep(0.005)
        if requests(server, "ok") < sent:
            break
    else:
        raise AssertionError("fifty megabytes of answers lie in the server's memory")
    assert Wire(server).send(request(b'{"instances": [[1.25]]}')).answer()[0] == 200
