"""A request's headers that the policy needs."""

from __future__ import annotations

import re

import pytest

from onbudget.serve.exchange import Head, Headers

OURS, ENVOYS = b"x-deadline-ms", b"x-envoy-expected-rq-timeout-ms"


@pytest.mark.parametrize(
    ("headers", "within"),
    [
        ([], None),
        ([(OURS, b"5")], 0.005),
        ([(OURS, b"500")], 0.5),  # a caller may wait longer than the budget
        ([(ENVOYS, b"5")], 0.005),
        ([(ENVOYS, b"15000")], None),  # Envoy's default, which nobody chose, gives no budget away
        ([(ENVOYS, b"5"), (OURS, b"500")], 0.5),
    ],
)
def test_for_how_long_the_caller_waits(headers: Headers, within: float | None) -> None:
    """Our own header is believed; a proxy's time-out only shortens the budget of 20 ms."""
    assert Head(headers).within(0.020) == within


def test_without_a_budget_a_proxys_time_out_is_the_only_deadline() -> None:
    """There is nothing that it could be longer than."""
    assert Head([(ENVOYS, b"15000")]).within(None) == 15.0


@pytest.mark.parametrize("value", [b"", b"soon", b"0", b"-5", b"nan", b"inf", b"\xff"])
def test_a_header_that_is_no_time_is_named(value: bytes) -> None:
    """400 says which header, what it said, and what it should be."""
    fault = Head([(OURS, value)]).fault
    assert re.match(r"X-Deadline-Ms: .* is not a number of milliseconds above 0", fault, re.DOTALL)


@pytest.mark.parametrize(("value", "priority"), [(b"1", 1), (b"2", 2), (b"3", 3), (b"0", 2), (b"01", 1)])
def test_the_callers_class(value: bytes, priority: int) -> None:
    """One to three, the most urgent first; zero and no header are the middle one, and the first header wins."""
    assert Head([(OURS, b"5"), (b"x-priority", value), (b"x-priority", b"x")]).priority == priority
    assert Head([(OURS, b"5")]).priority == 2


@pytest.mark.parametrize("value", [b"", b"high", b"4", b"-1", b"+1", b"1.0", b"1_0", b"\xb2", b"9" * 5000])
def test_a_header_that_is_no_class_is_named(value: bytes) -> None:
    """400 says which header, the beginning of what it said, and what it should be."""
    fault = Head([(b"x-priority", value)]).fault
    assert re.match(r"X-Priority: '.{0,40}' is not a whole number from 0 to 3; 1 is the most", fault)
