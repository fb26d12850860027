"""Two servers under the same load: the peak's choice, what windows add up to, and a server's speed flat out."""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onbudget.core.errors import TargetError
from onbudget.core.records import Hits, Outcome
from onbudget.prove.compare import (
    CONNECTIONS,
    HEADROOM,
    Comparison,
    Row,
    Window,
    choose_peak,
    compare,
    flat_out,
    open_side,
    read_batches,
)
from onbudget.prove.payloads import Item
from tests.support.windows import side, window

SPEEDS = st.floats(1, 1e5)


@given(SPEEDS, SPEEDS)
def test_the_peak_tells_apart_whoever_is_faster(one: float, other: float) -> None:
    """The peak is the same whichever is ours, leaves room to the faster one, and is above the slower one if it can."""
    peak = choose_peak(one, other)
    slower, faster = sorted((one, other))
    assert peak == choose_peak(other, one)
    assert 0 < peak <= HEADROOM * faster
    if slower < HEADROOM * faster:
        assert peak > slower


def test_windows_add_up() -> None:
    """A row's percentiles, share and batch size are of all its windows together; refusals are late."""
    row = Row(side(), "peak", 1000.0, [window(0.010, items=800), window(0.030, refused=60, items=400)])
    assert len(row.latency()) == 800
    assert row.spread().p50 == pytest.approx(0.020)
    assert math.isinf(row.spread().p95)
    assert row.share(0.025) == 0.5
    assert row.share(0.030) == 0.925
    assert row.refused() == 0.075
    assert row.batch() == 4.0
    assert row.judge(0.025).word == "missed"
    assert row.judge(0.5).late == 60


def test_a_row_without_batches_tells_none() -> None:
    """A server that tells nothing of batches has no mean batch, rather than a wrong one."""
    assert Row(side(), "quiet", 50.0, [window(0.001)]).batch() is None


def test_our_own_lateness_voids_a_verdict_only_where_it_decides() -> None:
    """A row measured by a late program is void where the verdict hangs on that, or where the load was another one."""
    calm, clear, decided, wild = (
        Row(side(), "peak", 1000.0, [one])
        for one in (window(0.010), window(0.010, lag=0.003), window(0.027, lag=0.004), window(0.010, lag=0.009))
    )
    assert [bool(row.slipped(0.025)) for row in (calm, clear, decided, wild)] == [False, True, True, True]
    assert [bool(row.void(0.025)) for row in (calm, clear, decided, wild)] == [False, False, True, True]


def test_a_row_that_rises_says_so() -> None:
    """Latency that grows all through a window marks the row, whose percentiles then tell only the window's length."""
    grown = np.linspace(0.01, 1.0, 400)
    zero = grown * 0
    rising = Hits(np.arange(400) / 1000, zero, zero, grown, np.zeros(400, np.int16), (Outcome(200),))
    assert Row(side(), "peak", 1.0, [window(0.01), Window(rising, 0, 0)]).rising()
    assert not Row(side(), "peak", 1.0, [window(0.01), window(0.02)]).rising()


def test_batches_are_read_from_prometheus_text() -> None:
    """Sum and count of the histogram are read wherever they stand; a text without them is an error."""
    text = 'onbudget_batch_size_bucket{le="1.0"} 3.0\nonbudget_batch_size_count 5.0\nonbudget_batch_size_sum 17.0\n'
    assert read_batches("# HELP x\n" + text) == (17.0, 5.0)
    with pytest.raises(TargetError, match="onbudget_batch_size"):
        read_batches("python_info 1.0\n")


# ---- against a real server ------------------------------------------------------------------------------------------


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    status = 200
    seen: list[str]
    callers: set[tuple[str, int]]

    def _answer(self, body: bytes) -> None:
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        type(self).seen.append(self.path)
        self._answer(b"onbudget_batch_size_sum 0\nonbudget_batch_size_count 0\n")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        type(self).callers.add(self.client_address)
        self._answer(b'{"predictions":[]}')

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class _Threads(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64  # the usual 5 would make connections wait a second for another try


Served = tuple[type[_Handler], str]


@pytest.fixture
def served() -> Iterator[Served]:
    """A server of threads: its handler's class, which records, and its address."""
    handler = type("Handler", (_Handler,), {"seen": [], "callers": set()})
    server = _Threads(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield handler, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_flat_out_keeps_every_connection_busy(served: Served) -> None:
    """All connections ask at once and again after each answer, and the answers are counted."""
    handler, url = served

    async def run() -> float:
        return await flat_out(await open_side("it", url, [Item("application/json", b"{}")]), 0.2)

    assert asyncio.run(run()) > 0
    assert len(handler.callers) == CONNECTIONS


@pytest.mark.parametrize(("status", "words"), [(500, "answered 500"), (429, "refused every request")])
def test_flat_out_stops_at_a_server_that_fails(served: Served, status: int, words: str) -> None:
    """An error ends the measurement with the server's name, status and words; so does one that only ever refuses."""
    handler, url = served
    handler.status = status

    async def run() -> float:
        return await flat_out(await open_side("it", url, [Item("application/json", b"{}")]), 0.3)

    with pytest.raises(TargetError, match=rf"it, http://127.*: {words}"):
        asyncio.run(run())


def test_both_get_the_same_load_in_turns(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each load goes A B B A with the same arrivals for both, and each row has two windows of it."""
    monkeypatch.setattr("onbudget.prove.compare.FLAT_OUT_S", 0.1)
    monkeypatch.setattr("onbudget.prove.compare.SETTLE_S", 0.05)
    _, url = served
    told: list[str] = []

    async def run() -> Comparison:
        items = [Item("application/json", b"{}")]
        sides = (await open_side("a", url, items, metrics=True), await open_side("b", url, items))
        return await compare(sides, 0.4, 10.0, told.append)

    found = asyncio.run(run())
    turns = [line.split(":")[0] for line in told if "requests/s" in line]
    assert turns == list("abbaabba")
    for pair in (found.quiet, found.peak):
        first, second = (row.windows for row in pair)
        assert len(first) == len(second) == 2
        for one, two in zip(first, second, strict=True):
            np.testing.assert_array_equal(one.hits.due, two.hits.due)
        assert not np.array_equal(first[0].hits.due, first[1].hits.due)
    assert [row.load for row in found.rows()] == ["quiet", "quiet", "peak", "peak"]
    assert {row.rate for row in found.peak} == {choose_peak(*found.flat_out.values())}
    assert all(np.isfinite(row.latency()).all() for row in itertools.chain(found.quiet, found.peak))
