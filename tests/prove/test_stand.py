"""What the stand makes of load tests, and of what a loaded server tells."""

from __future__ import annotations

import http.server
import json
import math
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from onbudget.core.cost import Cost
from onbudget.core.errors import TargetError
from onbudget.core.records import Ending
from onbudget.prove.load import LoadOptions, Run
from onbudget.prove.stand import Payload, Stand
from tests.prove.test_report import run

ALONE = Stand(0.02, Payload(), frozenset({1}), frozenset({0}), 1.0)
SHARED = Stand(0.02, Payload(), frozenset(), frozenset(), 2.0)


def test_a_trial_is_what_one_load_test_says() -> None:
    """Of all judged requests, refusals among them; with the verdict's own word."""
    told = ALONE.trial([run(0.01, refused=100)])
    assert (told.rate, told.offered, told.p95_s) == (100, 1000, math.inf)
    assert told.in_budget == pytest.approx(0.9)
    assert told.refused == pytest.approx(0.1)
    assert (told.word, told.doubt) == (run(0.01, refused=100).summary().word, "")


def test_several_tests_of_one_load_are_judged_together() -> None:
    """One that was bad is neither hidden nor decides alone: the p95 is of all requests."""
    told = ALONE.trial([run(0.01), run(0.03)])
    assert (told.offered, told.in_budget, told.p95_s, told.word) == (2000, 0.5, 0.03, "missed")
    assert told.low_s <= 0.03


def busy(cpu_s: float) -> Run:
    return run(ending=Ending(seconds=11.0, cpu_s=cpu_s))


def test_a_load_test_that_crowds_the_server_says_so() -> None:
    """More than a tenth of the cores that both share; with cores of its own it takes nothing."""
    assert SHARED.trial([busy(11 * 0.19)]).doubt == ""
    assert "used 0.30 of the 2 cores" in SHARED.trial([busy(11 * 0.3)]).doubt
    assert ALONE.trial([busy(11 * 0.9)]).doubt == ""


@pytest.fixture
def server() -> Iterator[tuple[str, dict[str, Any]]]:
    """A server whose /status is what the test says."""
    told: dict[str, Any] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(told).encode()
            self.send_response(told.get("code", 200))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}", told
        listening.shutdown()


STATUS = {
    "overheads": {"accept_ms": 0.1, "refuse_ms": 0.03, "batch_ms": 0.2, "run_factor": 1.2},
    "cost": {"cpu_factor": 2.0, "wait_factor": 1.5, "run_ms": {"1": 3.0, "8": 24.0}},
}


def test_it_learns_overheads_and_how_much_longer_runs_take_than_before(server: tuple[str, dict[str, Any]]) -> None:
    """The server's own curve, without its live factors, over the profile's, times what runs cost in service."""
    url, told = server
    told |= STATUS
    found = ALONE.learn(url, Cost.of({1: 0.0005, 8: 0.004}))
    assert found is not None
    over = found.overheads
    assert [over.accept_s, over.refuse_s, over.batch_s] == pytest.approx([1e-4, 3e-5, 2e-4])
    assert found.factor == pytest.approx(1.2 * 2.0)


def test_a_server_that_has_seen_too_little_teaches_nothing(server: tuple[str, dict[str, Any]]) -> None:
    """Nothing is made up in its place here."""
    url, told = server
    told |= STATUS | {"overheads": None}
    assert ALONE.learn(url, Cost.of({1: 0.001})) is None


def test_a_server_that_does_not_answer_is_told(server: tuple[str, dict[str, Any]]) -> None:
    """Its status and words, or that there is nobody."""
    url, told = server
    told |= {"code": 503, "detail": "draining"}
    with pytest.raises(TargetError, match="/status answers 503: draining"):
        ALONE.learn(url, Cost.of({1: 0.001}))
    with pytest.raises(TargetError, match="does not answer"):
        ALONE.learn("http://127.0.0.1:1", Cost.of({1: 0.001}))


def test_the_payloads_seed_is_in_every_load_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds differ from each other by their own; another payload's seed makes all of them others."""
    seeds: list[int | None] = []

    def loaded(options: LoadOptions) -> Run:
        seeds.append(options.seed)
        return run()

    monkeypatch.setattr("onbudget.prove.stand.run_load", loaded)
    monkeypatch.setattr(Stand, "_drained", lambda *_: None)
    for seed in (0, 70):
        stand = Stand(0.02, Payload(seed=seed), frozenset(), frozenset(), 1.0)
        stand.load("http://x", 1.0, rate=100.0)
        stand.load("http://x", 1.0, rate=100.0, seed=1)
        stand.replay("http://x", np.array([0.1, 0.2]))
    assert seeds == [0, 1, 0, 70, 71, 70]
