"""prove.report: the table, the JSON and the words of a run."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from onbudget.core.errors import RecordError
from onbudget.core.histogram import Quantile
from onbudget.core.records import Ending, Header, Hits, Outcome
from onbudget.prove.generator import Progress
from onbudget.prove.load import Run
from onbudget.prove.report import progress_words, read_run, rows, title, to_json, verdict_words, write_run

HEADER = Header(
    command="onbudget load x",
    target="http://127.0.0.1:8000/predict",
    arrivals="poisson",
    rate=100.0,
    seed=7,
    warmup_s=1.0,
    duration_s=10.0,
    timeout_s=10.0,
    connections=512,
    p95_s=0.02,
    payload={"count": 64},
    machine={"hash": "cafe"},
    hash="f00d",
)
OUTCOMES = (Outcome(0, "pending"), Outcome(200), Outcome(429, "queue full"), Outcome(500), Outcome(0, "timed out"))


def run(
    latency: float = 0.01, *, ending: Ending | None = None, header: Header = HEADER, count: int = 1100, **codes: int
) -> Run:
    """`count` requests at 100/s; refused=, broken=, silent= are how many of the judged ones ended so, spread evenly."""
    due = (np.arange(count) + 0.5) / 100
    outcome = np.ones(count, np.int16)
    done = np.full(count, latency)
    at = 101
    for name, many in codes.items():
        code = {"refused": 2, "broken": 3, "silent": 4}[name]
        places = at + np.arange(many) * ((count - 110) // max(1, many))
        outcome[places] = code
        done[places] = math.nan if code == 4 else 0.001
        at += 1
    lag = np.full(count, 0.00005)
    return Run(header, Hits(due, lag, lag, done, outcome, OUTCOMES), ending or Ending(seconds=11.0, connections=3))


def words(told: Run) -> str:
    return verdict_words(told.header, told.summary())


def test_the_table_has_both_clocks_and_every_kind() -> None:
    """From the due moment and from the send side by side; a row for each refusal, status and error."""
    told = {name: (due, send) for name, due, send in rows(run(refused=20, broken=2, silent=1))}

    assert told["offered"] == ("1000 (100/s)", "")
    assert told["answered"] == ("977 (97.7 %)", "")
    assert told["within 20 ms"] == ("977 (97.7 %)", "")
    assert told["p50"] == ("10 ms", "9.95 ms")
    assert told["p99"] == ("∞", "∞")
    assert told["slowest answer"] == ("10 ms", "9.95 ms")
    assert told["refused: 429 queue full"] == ("20 (2.0 %)", "")
    assert told["answered 500"] == ("2 (0.2 %)", "")
    assert told["timed out"] == ("1 (0.1 %)", "")
    assert told["sent late by this program"] == ("0", "")
    assert told["its own lag, p50 and p99"] == ("50 µs, 50 µs", "")
    assert told["  95 % sure of p95"][0].startswith("10 ms to ")


def test_the_title_says_what_was_asked_of_whom() -> None:
    """Target, rate, arrivals, seed, times."""
    assert title(HEADER) == "http://127.0.0.1:8000/predict: 100/s Poisson, seed 7, 10 s after 1 s of warm-up"
    plain = dataclasses.replace(HEADER, arrivals="constant", seed=None, warmup_s=0.0)
    assert title(plain) == "http://127.0.0.1:8000/predict: 100/s evenly spaced, 10 s"


VERDICTS = [
    (
        run(),
        "met: p95 is within 20 ms. 0 of 1000 late or unanswered (0 %), 95 % sure of 0.00% to 0.44%; 5 % are allowed",
    ),
    (run(refused=500), "missed: p95 is over 20 ms. 500 of 1000 late or unanswered (50.0 %), 95 % sure of"),
    (run(refused=45), "undecided: 45 of 1000 late or unanswered (4.5 %), 95 % sure of"),
    (run(refused=45), "About 7400 more requests would settle it: --duration 84s"),
    (run(refused=50), "too near to 5 % to be settled by a longer run"),
    (run(header=dataclasses.replace(HEADER, p95_s=None)), "measured; with --p95 20ms, say, it is judged"),
    (run(ending=Ending(seconds=11.0, partial=True)), "stopped early; so far met: p95 is within 20 ms"),
    (
        run(count=90, ending=Ending(seconds=0.9, partial=True)),
        "stopped early; so far nothing was sent after the warm-up of 1 s",
    ),
]


@pytest.mark.parametrize(("told", "expected"), VERDICTS, ids=[text[:30] for _, text in VERDICTS])
def test_the_verdict_is_a_sentence_with_its_numbers(told: Run, expected: str) -> None:
    """Met, missed, undecided with how many more and how long that takes, nothing to judge, stopped."""
    assert expected in words(told)


def test_an_undecided_run_says_which_duration_would_settle_it() -> None:
    """The number of requests, to two digits, and the flag."""
    text = words(run(refused=45))
    more = int(text.split("About ")[1].split(" ")[0])
    duration = int(text.split("--duration ")[1].rstrip("s"))

    assert more % 100 == 0
    assert duration == 10 + math.ceil(more / 100)


def test_an_unsteady_run_shows_no_percentile_anywhere() -> None:
    """Neither in the table nor in the JSON; the words say what rose and from where to where."""
    told = run()
    rising = Run(told.header, dataclasses.replace(told.hits, done=np.linspace(0.001, 0.019, 1100)), told.ending)
    seen = {name: due for name, due, _ in rows(rising)}

    assert seen["p50, p95, p99"] == "none: not steady"
    assert "p95" not in seen
    assert to_json(rising)["latency_ms"] == dict.fromkeys(["p50", "p95", "p99", "max", "p95_low", "p95_high"])
    assert words(rising) == (
        "not steady: the median latency rose from 4.68 ms in the first quarter to 17 ms in the last: "
        "it does not keep up with 100/s. No percentile; 0 of 1000 late or unanswered (0 %)"
    )
    falling = Run(told.header, dataclasses.replace(told.hits, done=np.linspace(0.019, 0.001, 1100)), told.ending)
    assert "it was still warming up; set a longer --warmup. No percentile" in words(falling)


def test_a_void_run_blames_the_generator() -> None:
    """Its numbers are shown, and the words say not to believe them."""
    told = run()
    slipped = Run(told.header, dataclasses.replace(told.hits, lag=np.full(1100, 0.004)), told.ending)

    assert words(slipped).startswith("void: the generator itself was late: by 4 ms or more")
    assert to_json(slipped)["verdict"] == "void"
    assert to_json(slipped)["latency_ms"]["p95"] == 10.0


def test_the_json_is_strict_and_complete() -> None:
    """No NaN or Infinity: what is infinite is null, and the counts say why; the units are in the names."""
    told = to_json(run(refused=100))
    text = json.dumps(told, allow_nan=False)

    assert json.loads(text)["latency_ms"]["p95"] is None
    assert told["latency_ms"]["p50"] == 10.0
    assert told["latency_from_send_ms"]["p50"] == 9.95
    assert (told["offered"], told["answered"], told["in_budget"]) == (1000, 900, 900)
    assert told["refused"] == {"429 queue full": 100}
    assert (told["verdict"], told["budget_ms"], told["hash"], told["machine"]) == ("missed", 20.0, "f00d", "cafe")
    assert told["late_share"]["value"] == 0.1
    assert told["late_share"]["low"] > 0.05


def test_a_run_written_and_read_is_the_same(tmp_path: Path) -> None:
    """Nothing else is left in the folder, and the conclusion is the same."""
    told = run(refused=10)
    write_run(told, tmp_path / "run.jsonl")
    again = read_run(tmp_path / "run.jsonl")

    assert [p.name for p in tmp_path.iterdir()] == ["run.jsonl"]
    assert (again.header, again.ending) == (told.header, told.ending)
    assert to_json(again) == to_json(told)


def test_a_file_that_is_no_record_is_named(tmp_path: Path) -> None:
    """Not there, not text, another file."""
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x80")
    (tmp_path / "other").write_text('{"kind":"profile"}\n')
    for name, message in (
        ("none", "cannot be read"),
        ("binary", "not text"),
        ("other", "not the record of a load test"),
    ):
        with pytest.raises(RecordError, match=message):
            read_run(tmp_path / name)


def test_progress_is_one_line() -> None:
    """What is zero is left out; the p95 comes with its count; what still waits, and is in no p95 yet, is told."""
    now = Progress(1.2, 5.0, 300, 290, 0, 0, 10, Quantile(0.0123, 200))

    assert (
        progress_words(now, 0.02) == "1 of 5 s, 300 sent, 290 answered, 10 under way, p95 12.3 ms of 200 (budget 20 ms)"
    )
    assert progress_words(dataclasses.replace(now, refused=2, failed=1, latency=None), None) == (
        "1 of 5 s, 300 sent, 290 answered, 2 refused, 1 failed, 10 under way"
    )
    assert "10 under way (the oldest for 2.1 s), p95" in progress_words(dataclasses.replace(now, oldest_s=2.1), None)
