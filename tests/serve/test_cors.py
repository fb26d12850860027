"""Other origins: how they are written, and what a browser hears."""

from __future__ import annotations

import pytest

from onbudget.core.errors import UsageError
from onbudget.serve.cors import Origins, parse_origin

APP, TOOL = b"https://app.example.com", b"http://localhost:3000"
ASKS = {b"origin": APP, b"access-control-request-method": b"POST"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("https://app.example.com", "https://app.example.com"),
        (" HTTPS://App.Example.com ", "https://app.example.com"),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("chrome-extension://abcdef", "chrome-extension://abcdef"),
    ],
)
def test_an_origin_is_kept_as_browsers_write_it(text: str, told: str) -> None:
    """In lower case, with a port where there is one."""
    assert parse_origin(text) == told


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("*", "name each origin"),
        ("null", "name each origin"),
        ("app.example.com", "is not an origin"),
        ("https://app.example.com/", "without a path"),
        ("https://app.example.com/x", "without a path"),
        ("https://me@app.example.com", "is not an origin"),
        ("https://a.example\r\nx: y", "is not an origin"),
        ("https://app.example.com:443", "write https://app.example.com"),
        ("http://app.example.com:80", "leave out :80"),
        ("", "is not an origin"),
    ],
)
def test_what_no_browser_would_send_is_refused(text: str, says: str) -> None:
    """An origin that could never match would look like a server that does not work."""
    with pytest.raises(UsageError, match=says):
        parse_origin(text)


def test_only_the_very_same_origin_is_named() -> None:
    """Each answer depends on the origin; only an allowed one is named, by itself."""
    origins = Origins((APP.decode(), TOOL.decode()))
    for origin in (APP, TOOL):
        lines = origins.lines(origin)
        assert lines[:2] == [(b"vary", b"origin"), (b"access-control-allow-origin", origin)]
    for origin in (None, b"", b"null", APP + b".evil.com", b"http://app.example.com", APP.upper(), APP + b":8443"):
        assert origins.lines(origin) == [(b"vary", b"origin")]


def test_a_preflight_is_answered_for_whom_it_is_meant() -> None:
    """204 for an allowed origin, 403 for another; what only looks like one is left to the app."""
    origins = Origins((APP.decode(),))
    allowed = origins.preflight("OPTIONS", ASKS)
    assert allowed is not None
    headers = dict(allowed.headers)
    assert (allowed.status, headers[b"access-control-allow-origin"]) == (204, APP)
    assert {b"x-api-key", b"content-type", b"x-deadline-ms"} <= set(
        headers[b"access-control-allow-headers"].split(b", ")
    )
    other = origins.preflight("OPTIONS", {**ASKS, b"origin": TOOL})
    assert other is not None
    assert (other.status, dict(other.headers).get(b"access-control-allow-origin")) == (403, None)
    assert b"localhost:3000" in other.body
    assert origins.preflight("POST", ASKS) is None
    assert origins.preflight("OPTIONS", {b"origin": APP}) is None
    assert origins.preflight("OPTIONS", {b"access-control-request-method": b"POST"}) is None


def test_bytes_for_the_fast_path_are_made_once_for_what_comes_before() -> None:
    """The same object for the same origin until what is before it changes; strangers share one, and fill nothing."""
    origins = Origins((APP.decode(),))
    date = b"date: now\r\n"
    first = origins.told(date, APP)
    assert first.startswith(date + b"vary: origin\r\naccess-control-allow-origin: " + APP + b"\r\n")
    assert origins.told(date, APP) is first
    strangers = [origins.told(date, b"https://%d.example" % number) for number in range(100)]
    assert all(one is origins.told(date, None) for one in strangers)
    assert strangers[0] == date + b"vary: origin\r\n"
    assert len(origins._kept) == 2
    assert origins.told(b"date: later\r\n", APP).startswith(b"date: later\r\nvary")
