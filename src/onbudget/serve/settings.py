"""Every option of a server, declared once: the CLI's flags, the environment's names and `create_app`'s settings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from onbudget.core import units
from onbudget.core.errors import UsageError
from onbudget.core.options import option
from onbudget.serve.cors import parse_origin

FORMATS = ("jpeg", "png", "webp")


def _count(low: int, high: int) -> Any:
    def parse(text: str) -> int:
        if not text.strip().lstrip("-").isdigit() or not low <= int(text) <= high:
            raise UsageError(f"{text!r} must be a whole number from {low} to {high}")
        return int(text)

    return parse


def _formats(text: str) -> tuple[str, ...]:
    names = tuple("jpeg" if n == "jpg" else n for n in (part.strip().lower() for part in text.split(",")) if n)
    bad = [name for name in names if name not in FORMATS]
    if bad or not names:
        raise UsageError(f"{text!r}: picture formats are {', '.join(FORMATS)}" + (f", not {bad[0]!r}" if bad else ""))
    return names


def _above_zero(text: str) -> float:
    value = units.seconds(text)
    if value <= 0:
        raise UsageError(f"{text!r} must be above zero")
    return value


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65535:
        raise UsageError(f"{text!r} is not a port: a number from 0 (any free one) to 65535")
    return int(text)


def _prefix(text: str) -> str:
    if text and not re.fullmatch(r"(/[\w.~-]+)+", text, re.ASCII):
        raise UsageError(f"{text!r} is not a prefix; write it like /model, without a slash at its end")
    return text


@dataclass(frozen=True, slots=True)
class Settings:
    """How a server runs. Times are seconds, sizes bytes; 0 for `lanes`, `threads` and `max_batch` means: choose."""

    host: str = option("127.0.0.1", "Address to listen on; 0.0.0.0 lets other machines in.")
    port: int = option("8000", "Port to listen on; 0 takes any free one.", parse=_port, metavar="PORT")
    p95: float | None = option(
        None, "The declared p95 latency budget, such as 20ms.", parse=_above_zero, metavar="DURATION", flag="--p95"
    )
    lanes: int = option("0", "Threads that run the model; 0: one a core.", parse=_count(0, 64), metavar="N")
    threads: int = option("1", "Threads inside one run (intra-op).", parse=_count(1, 64), metavar="N")
    max_batch: int = option("16", "Largest batch that a lane runs.", parse=_count(1, 1024), metavar="N")
    policy: str = option(
        "auto",
        "deadline: refuse what would end late; greedy: run what waits; timer: wait for company; auto: deadline where "
        "there is a --p95, else greedy.",
        choices=("auto", "deadline", "greedy", "timer"),
    )
    late: str = option(
        "demote",
        "With --policy deadline, whoever can't be in time; demote: is answered late when nobody else waits, up to 4.5 "
        "% of all requests; shed: is refused.",
        choices=("demote", "shed"),
    )
    max_wait: float = option("2ms", "How long --policy timer waits.", parse=units.seconds, metavar="DURATION")
    provider: str = option("cpu", "Execution providers in order; the first must be active.", metavar="A[,B]")
    max_items: int = option("32", "Most items in one request.", parse=_count(1, 4096), metavar="N")
    max_body: int = option("16MB", "Largest request body.", parse=units.size, metavar="SIZE")
    max_pixels: int = option("50000000", "Largest picture, in pixels.", parse=_count(1, 2**31), metavar="N")
    accept: tuple[str, ...] = option(
        ",".join(FORMATS), "Picture formats that are decoded.", parse=_formats, metavar="LIST"
    )
    max_queue: int = option("1024", "Most items in flight; more are refused.", parse=_count(1, 10**6), metavar="N")
    max_queue_bytes: int = option("256MB", "Most bytes in flight.", parse=units.size, metavar="SIZE")
    client_timeout: float = option(
        "10s", "How long a client may take to send a request.", parse=_above_zero, metavar="DURATION"
    )
    keep_alive: float = option(
        "75s", "How long an idle connection stays open.", parse=units.seconds, metavar="DURATION"
    )
    stuck_after: float = option(
        "30s", "A run longer than this is stopped and its lane restarted.", parse=_above_zero, metavar="DURATION"
    )
    warm_up: float = option(
        "200ms", "Time for trying the batch sizes between 1 and the largest.", parse=units.seconds, metavar="DURATION"
    )
    drain_notice: float = option(
        "0s", "At the end: how long /ready says no before the doors close.", parse=units.seconds, metavar="DURATION"
    )
    drain_timeout: float = option(
        "30s", "At the end: how long accepted requests may take.", parse=units.seconds, metavar="DURATION"
    )
    # ---- who reaches it, and how: `tls`, `listen`, `access`, `cors` ----
    tls_cert: str = option("", "Speak TLS with this certificate (PEM, with its chain).", metavar="FILE")
    tls_key: str = option("", "The certificate's private key (PEM).", metavar="FILE")
    tls_key_password_file: str = option(
        "", "The private key's password, in a file; or in ONBUDGET_TLS_KEY_PASSWORD.", metavar="FILE"
    )
    api_key_file: str = option(
        "", "Ask for an API key, one of this file's lines; or of ONBUDGET_API_KEYS.", metavar="FILE"
    )
    cors_origin: tuple[str, ...] = option(
        (),
        "Let pages of this origin, such as https://app.example.com, call; may be given again.",
        parse=parse_origin,
        metavar="ORIGIN",
        multiple=True,
    )
    uds: str = option("", "Listen on this Unix socket instead of --host and --port.", metavar="PATH")
    root_path: str = option(
        "", "The prefix that a proxy in front takes off, such as /model.", parse=_prefix, metavar="PATH"
    )
    # what it says of itself
    log_format: str = option(
        "text", "text: sentences; json: one JSON object a line, uvicorn's words too.", choices=("text", "json")
    )

    def __post_init__(self) -> None:
        """UsageError for options that need each other."""
        if bool(self.tls_cert) != bool(self.tls_key):
            there, gone = ("--tls-cert", "--tls-key") if self.tls_cert else ("--tls-key", "--tls-cert")
            raise UsageError(f"{there} alone is not enough for TLS: add {gone} FILE")
        if self.tls_key_password_file and not self.tls_key:
            raise UsageError("--tls-key-password-file is the password of --tls-key, which is not given")
        if self.policy == "deadline" and self.p95 is None:
            raise UsageError("--policy deadline holds a budget, so it needs one: add --p95 20ms")
