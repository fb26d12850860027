"""core.records: what a load test writes can be read back, and damage is named."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from onbudget.core.errors import RecordError
from onbudget.core.records import Ending, Header, Hits, Outcome, lines, parse

NAN = math.nan
HEADER = Header(
    command="onbudget load x",
    target="http://127.0.0.1:8000/predict",
    arrivals="poisson",
    rate=200.0,
    seed=7,
    warmup_s=0.5,
    duration_s=2.0,
    timeout_s=10.0,
    connections=512,
    p95_s=0.02,
    payload={"count": 64},
    model={"sha256": "ab"},
    machine={"cpu": "some"},
    started="2026-12-01T05:00:00+00:00",
    made_by="onbudget 0.1.0",
    hash="00ff",
)
HITS = Hits(
    due=np.array([0.004812, 0.6, 0.7, 0.8]),
    lag=np.array([0.000031, 0.000027, 0.00003, 2.0]),
    sent=np.array([0.00004, 0.000035, 0.000038, NAN]),
    done=np.array([0.003107, 0.00041, NAN, NAN]),
    outcome=np.array([1, 2, 3, 4], np.int16),
    outcomes=(
        Outcome(0, "pending"),
        Outcome(200),
        Outcome(429, 'queue "full" – ja'),
        Outcome(0, "timed out"),
        Outcome(0, "never sent"),
    ),
)
ENDING = Ending(seconds=2.5, partial=True, connections=4, held=1, resent=2, cpu_s=0.25, starved=0.01)


def written(summary: dict[str, Any] | None = None) -> list[str]:
    return list(lines(HEADER, HITS, ENDING, summary or {"verdict": "met"}))


def test_a_record_reads_back_equal() -> None:
    """Header, ending, every time to the microsecond, every status and word; what never happened is NaN again."""
    header, hits, ending = parse(written(), "run.jsonl")

    assert (header, ending) == (HEADER, ENDING)
    for name in ("due", "lag", "sent", "done"):
        np.testing.assert_array_equal(getattr(hits, name), getattr(HITS, name))
    assert [hits.outcomes[i] for i in hits.outcome] == [HITS.outcomes[i] for i in HITS.outcome]


def test_every_line_is_json_and_a_hit_is_short() -> None:
    """One header that begins with its schema, a line a hit, one summary."""
    told = written()
    first, last = json.loads(told[0]), json.loads(told[-1])

    assert told[0].startswith('{"schema":1,"kind":"load"')
    assert first["columns"] == ["due_s", "lag_s", "sent_s", "done_s", "status", "word"]
    assert told[1] == "[0.004812,0.000031,0.000040,0.003107,200]"
    assert json.loads(told[2])[4:] == [429, 'queue "full" – ja']
    assert json.loads(told[4]) == [0.8, 2.0, None, None, 0, "never sent"]
    assert (len(told), last["summary"]) == (6, {"verdict": "met"})


def test_a_run_without_hits_is_still_a_record() -> None:
    """Stopped before the first one was due: header and ending, no columns."""
    none = np.array([])
    empty = Hits(none, none, none, none, none.astype(np.int16), ())
    header, hits, _ = parse(lines(HEADER, empty, ENDING, {}), "run")

    assert (header, len(hits), len(hits.latency())) == (HEADER, 0, 0)


def test_only_an_answer_as_asked_has_a_finite_latency() -> None:
    """A quick refusal is as late as no answer at all."""
    assert HITS.latency().tolist() == [0.003107, math.inf, math.inf, math.inf]
    assert HITS.latency_from_send().tolist() == [pytest.approx(0.003067), math.inf, math.inf, math.inf]


def test_hits_after_a_moment_are_cut_in_all_columns() -> None:
    """What was due in the warm-up goes; one that was due at its very end stays."""
    later = HITS.after(0.6)

    assert (later.due.tolist(), later.outcome.tolist()) == ([0.6, 0.7, 0.8], [2, 3, 4])
    assert len(later.sent) == len(later.done) == len(later.lag) == len(later) == 3


@pytest.mark.parametrize(
    ("status", "ok", "refused"),
    [
        (200, True, False),
        (204, True, False),
        (429, False, True),
        (503, False, True),
        (500, False, False),
        (302, False, False),
        (0, False, False),
    ],
)
def test_outcomes_are_answers_refusals_or_neither(status: int, ok: bool, refused: bool) -> None:
    """2xx is an answer; 429 and 503 say no for now."""
    assert (Outcome(status).ok, Outcome(status).refused) == (ok, refused)


def test_a_newer_schema_is_refused_by_its_number() -> None:
    """It names both schemas, who wrote the file, and what to do."""
    told = written()
    told[0] = told[0].replace('"schema":1', '"schema":2').replace("onbudget 0.1.0", "onbudget 9.0")
    with pytest.raises(RecordError, match=r"schema 2, written by onbudget 9.0; this onbudget reads schemas up to 1"):
        parse(told, "run.jsonl")


def test_unknown_keys_are_passed_over() -> None:
    """A later version may add keys without a new schema."""
    told = written()
    told[0] = told[0].replace('"schema":1', '"schema":1,"mood":"good"')
    told[-1] = told[-1].replace('"partial"', '"weather":"fine","partial"')

    assert parse(told, "run")[0] == HEADER


def _replaced(line: int, text: str) -> list[str]:
    told = written()
    told[line] = text
    return told


DAMAGED = [
    ([], "run is empty: a record begins with its header"),
    (written()[:-1], "run is cut short: its summary is missing"),
    (written()[:1], "its summary is missing"),
    (_replaced(0, "{"), "run, line 1: not JSON"),
    (_replaced(0, "[1]"), "run is not the record of a load test"),
    (_replaced(0, '{"kind":"profile","schema":1}'), "run is not the record of a load test"),
    (_replaced(0, '{"kind":"load","schema":"1"}'), "schema must be a whole number, not '1'"),
    (_replaced(0, '{"kind":"load","schema":1}'), "line 1: damaged: missing"),
    (_replaced(0, written()[0].replace('"rate":200.0', '"rate":"fast"')), "rate must be a number, not 'fast'"),
    (_replaced(2, "[0.6,0.0,0.0"), "run, line 3: not JSON"),
    (_replaced(2, "[0.6,0.0,0.0,0.1]"), "run, line 3: damaged: a hit has five or six columns"),
    (_replaced(2, '[0.6,0.0,"0",0.1,200]'), "line 3: damaged: four times"),
    (_replaced(2, "[0.6,0.0,0.0,0.1,null]"), "line 3: damaged: a time or a status is missing"),
    (_replaced(2, "[null,0.0,0.0,0.1,200]"), "line 3: damaged: a time"),
    (_replaced(2, "[0.6,0.0,0.0,null,200]"), "line 3: damaged: a time"),
    (_replaced(2, "[0.6,0.0,0.0,null,0,7]"), "line 3: damaged: four times, a status and a word"),
    (_replaced(2, "[0.001,0.0,0.0,0.1,200]"), "line 3: a hit that was due before the one above it"),
    (_replaced(2, '{"summary":{},"ending":{"seconds":1}}'), "line 4: something follows the summary"),
    (_replaced(5, '{"summary":{}}'), "line 6: damaged: an object is wanted"),
    (_replaced(5, '{"ending":{"partial":true}}'), "line 6: damaged: missing"),
]


@pytest.mark.parametrize(("told", "message"), DAMAGED)
def test_damage_is_named_with_its_line(told: list[str], message: str) -> None:
    """Cut short, not JSON, another kind of file, missing or wrong values: never a traceback, never half a run."""
    with pytest.raises(RecordError, match=message.replace("(", r"\(")):
        parse(told, "run")
