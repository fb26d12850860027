"""prove.settings and plan: options that cannot be meant are refused before anything is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from onbudget.core.errors import UsageError
from onbudget.prove.load import LoadOptions, plan
from onbudget.prove.settings import parse_header


@pytest.mark.parametrize(
    ("text", "expected"),
    [("X-Deadline-Ms: 20", "X-Deadline-Ms: 20"), (" a :b:c ", "a: b:c"), ("X-Empty:", "X-Empty: ")],
)
def test_a_header_is_a_name_and_a_value(text: str, expected: str) -> None:
    """Spaces around both go; a value may have colons, or be empty."""
    assert parse_header(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no colon",
        ": x",
        "a b: c",
        "A: b\r\nC: d",
        "A: \x00",
        "A: жар",
        "Content-Length: 3",
        "transfer-encoding: chunked",
    ],
)
def test_a_header_that_would_break_the_request_is_refused(text: str) -> None:
    """Injected lines, control characters, and those that the test itself sets."""
    with pytest.raises(UsageError, match=r"header|character"):
        parse_header(text)


def test_headers_come_as_pairs() -> None:
    """Several, in the order given."""
    chosen = LoadOptions(header=(parse_header("A: 1"), parse_header("B:2: 3")))

    assert chosen.headers() == [("A", "1"), ("B", "2: 3")]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (LoadOptions(trace="t", rate=3.0), "leave out --rate"),
        (LoadOptions(body="b", data="d"), "leave out --data"),
        (LoadOptions(body="b", field="tiles"), "--field"),
        (LoadOptions(content_type="text/x"), "--content-type is the type of --body"),
        (LoadOptions(clients=3, connections=2), "--clients 3 needs --connections 3"),
    ],
)
def test_contradictions_are_refused(chosen: LoadOptions, message: str) -> None:
    """Each names what to leave out."""
    with pytest.raises(UsageError, match=message):
        chosen.check()


def test_the_usual_test_is_a_hundred_a_second_for_ten_after_two() -> None:
    """Poisson, seed 0."""
    schedule = plan(LoadOptions())

    assert (schedule.kind, schedule.rate, schedule.seed) == ("poisson", 100.0, 0)
    assert (schedule.duration_s, schedule.warmup_s) == (10.0, 2.0)


def test_a_plan_is_what_was_asked_for(tmp_path: Path) -> None:
    """Constant arrivals, or a trace's own, cut where a duration is given."""
    file = tmp_path / "t.txt"
    file.write_text("0.5\n1.5\n2.5\n")

    assert len(plan(LoadOptions(arrivals="constant", rate=10.0, duration=1.0, warmup=0.0)).offsets) == 10
    assert list(plan(LoadOptions(trace=str(file), warmup=0.0)).offsets) == [0.5, 1.5, 2.5]
    assert list(plan(LoadOptions(trace=str(file), warmup=0.0, duration=2.0)).offsets) == [0.5, 1.5]


def test_a_trace_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Not there, or not text."""
    with pytest.raises(UsageError, match=r"none\.txt cannot be read: No such file"):
        plan(LoadOptions(trace=str(tmp_path / "none.txt")))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="binary is not text"):
        plan(LoadOptions(trace=str(tmp_path / "binary")))


def test_a_run_can_be_typed_again_from_its_record() -> None:
    """Only what differs from the usual, with units; a header's value, which may be a key, is not kept."""
    chosen = LoadOptions(
        url="127.0.0.1:8000",
        rate=200.0,
        duration=2.5,
        p95=0.02,
        seed=7,
        format="png",
        header=("Authorization: Bearer abc", "X: 1"),
    )

    assert chosen.command_line() == (
        "onbudget load 127.0.0.1:8000 --rate 200/s --duration 2.5s --format png --p95 0.02s --seed 7 "
        "--header 'Authorization: …' --header 'X: …'"
    )
    assert LoadOptions(url="h:1").command_line() == "onbudget load h:1"
