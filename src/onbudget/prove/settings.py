"""How a load test runs: each option declared once."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass

from onbudget.core import units
from onbudget.core.errors import UsageError
from onbudget.core.options import option

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # a header's name, RFC 9110 5.6.2
_OURS = ("content-length", "transfer-encoding", "expect", "upgrade")


def above_zero(text: str) -> float:
    value = units.seconds(text)
    if value <= 0:
        raise UsageError(f"{text!r}: it must be above zero")
    return value


def whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"\d{1,12}", text.strip()) or not low <= int(text) <= high:
            raise UsageError(f"{text!r} must be a whole number from {low} to {high}")
        return int(text)

    return parse


def parse_header(text: str) -> str:
    """`Name: value`, checked; UsageError for what would break a request apart, or is the test's own to set."""
    name, colon, value = text.partition(":")
    if not colon or not _TOKEN.fullmatch(name.strip()):
        raise UsageError(f"{text!r} is not a header; write it like 'X-Deadline-Ms: 20'")
    if any((ord(c) < 32 and c != "\t") or ord(c) in range(127, 160) or ord(c) > 255 for c in value):
        raise UsageError(f"header {name.strip()}: its value has a character that no header can carry")
    if name.strip().lower() in _OURS:
        raise UsageError(f"header {name.strip()} is set by the load test itself")
    return f"{name.strip()}: {value.strip()}"


def _typed(name: str, value: object) -> str:
    """A value as a person types it."""
    if name == "header":
        return str(value).partition(":")[0] + ": …"
    return f"{value:.12g}{'/s' if name == 'rate' else 's'}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """One load test of `url`. Times are seconds, rates a second.

    None for `rate` and `duration` means their usual values (100/s and 10 s), or a trace's own; None for `p95` means
    that there is no budget to judge.
    """

    url: str = ""
    rate: float | None = option(
        None, "Requests a second, whatever the answers do.  [default: 100/s]", parse=units.per_second, metavar="RATE"
    )
    duration: float | None = option(
        None, "How long to judge, after the warm-up.  [default: 10s]", parse=above_zero, metavar="DURATION"
    )
    warmup: float = option("2s", "Send this long first, without judging.", parse=units.seconds, metavar="DURATION")
    arrivals: str = option(
        "poisson", "poisson: independent users; constant: evenly spaced.", choices=("poisson", "constant")
    )
    trace: str = option("", "Send at these moments: one offset in seconds a line, or a run file.", metavar="FILE")
    data: str = option("", "What to send: a folder of pictures, or a bundle (its samples).", metavar="DIR|BUNDLE")
    field: str = option("", "The JSON field.  [default: as the server or the bundle says]", metavar="NAME")
    format: str = option("json", "How an item is sent.", choices=("json", "octet", "jpeg", "png"))
    body: str = option("", "Send this file as it is, and nothing else.", metavar="FILE")
    content_type: str = option("", "The type of --body.  [default: by its name]", metavar="TYPE")
    p95: float | None = option(
        None, "The budget to judge by, such as 20ms.", parse=above_zero, metavar="DURATION", flag="--p95"
    )
    seed: int = option("0", "Of the arrivals and of random items.", parse=whole(0, 2**32 - 1), metavar="N")
    timeout: float = option(
        "10s", "How long an answer is waited for, from its due moment.", parse=above_zero, metavar="DURATION"
    )
    connections: int = option("512", "Most connections open at once.", parse=whole(1, 100_000), metavar="N")
    clients: int = option(
        "0",
        "Keep so many connections open from the start and send on them in turn; 0: only those that are needed.",
        parse=whole(0, 100_000),
        metavar="N",
    )
    header: tuple[str, ...] = option(
        (),
        "A header to send with every request; may be given again.",
        parse=parse_header,
        metavar="'K: V'",
        multiple=True,
        secret=True,
    )

    def headers(self) -> list[tuple[str, str]]:
        """The headers as pairs."""
        return [(name, value) for name, _, value in (text.partition(": ") for text in self.header)]

    def command_line(self) -> str:
        """The command that does the same again; the values of headers, which may be secret, are left out."""
        told = ["onbudget", "load", self.url]
        for field in dataclasses.fields(self):
            about, value = field.metadata.get("option"), getattr(self, field.name)
            if about is None or value == field.default:
                continue
            flag = about["flag"] or "--" + field.name.replace("_", "-")
            for one in value if isinstance(value, tuple) else (value,):
                told += [flag, _typed(field.name, one)]
        return shlex.join(told)

    def check(self) -> None:
        """UsageError for options that contradict each other."""
        if self.trace and self.rate is not None:
            raise UsageError("--trace has its own times; leave out --rate")
        if self.body and (self.data or self.field):
            raise UsageError("--body is sent as it is; leave out --data and --field")
        if self.content_type and not self.body:
            raise UsageError("--content-type is the type of --body, which is not given")
        if self.clients > self.connections:
            raise UsageError(f"--clients {self.clients} needs --connections {self.clients} or more")
