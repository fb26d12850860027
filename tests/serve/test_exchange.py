"""A request's headers that the policy needs."""

from __future__ import annotations

import pytest

from onbudget.core.errors import NotParseable
from onbudget.serve.exchange import Headers, within_of

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
    assert within_of(headers, 0.020) == within


def test_without_a_budget_a_proxys_time_out_is_the_only_deadline() -> None:
    """There is nothing that it could be longer than."""
    assert within_of([(ENVOYS, b"15000")], None) == 15.0


@pytest.mark.parametrize("value", [b"", b"soon", b"0", b"-5", b"nan", b"inf", b"\xff"])
def test_a_header_that_is_no_time_is_named(value: bytes) -> None:
    """400 says which header, what it said, and what it should be."""
    with pytest.raises(NotParseable, match=r"X-Deadline-Ms: .* is not a number of milliseconds above 0"):
        within_of([(OURS, value)], 0.020)
