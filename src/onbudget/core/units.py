"""Numbers with units, as people type them: `20ms`, `500/s`, `4MB`, `0.5%`."""

from __future__ import annotations

import math
import re

from onbudget.core.errors import UsageError

_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_PER_SECOND = {"s": 1.0, "sec": 1.0, "m": 1 / 60, "min": 1 / 60, "h": 1 / 3600}
_BYTES = {
    "": 1,
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
_NUMBER = re.compile(r"^\s*([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*(\S*)\s*$")


def _split(text: str, what: str, examples: str) -> tuple[float, str]:
    found = _NUMBER.match(text)
    if not found or not math.isfinite(float(found[1])):
        raise UsageError(f"{text!r} is not {what}; write it like {examples}")
    return float(found[1]), found[2]


def seconds(text: str) -> float:
    """Seconds from a duration with its unit (`20ms`, `1.5s`, `2min`); UsageError without a unit or with another one."""
    number, unit = _split(text, "a duration", "20ms, 1.5s or 2min")
    if unit not in _SECONDS:
        raise UsageError(f"{text!r} is not a duration: a unit is needed, one of {', '.join(_SECONDS)} (20ms, 1.5s)")
    return number * _SECONDS[unit]


def per_second(text: str) -> float:
    """Events a second from a rate with its unit (`500/s`, `30/min`); UsageError without one or for a rate of zero."""
    number, unit = _split(text, "a rate", "500/s or 30/min")
    if not unit.startswith("/") or unit[1:] not in _PER_SECOND:
        raise UsageError(f"{text!r} is not a rate: a unit is needed, as in 500/s or 30/min")
    if number <= 0:
        raise UsageError(f"{text!r} is not a rate: it must be above zero")
    return number * _PER_SECOND[unit[1:]]


def share(text: str) -> float:
    """A share of one from its percents (`10%`, `0.5 %`); UsageError without the sign, or for more than all."""
    number, unit = _split(text, "a share", "10% or 0.5%")
    if unit != "%" or number > 100:
        raise UsageError(f"{text!r} is not a share: write it in percent, up to 100%, as in 10% or 0.5%")
    return number / 100


def size(text: str) -> int:
    """Bytes from a size (`4MB`, `512KiB`, `1000`)."""
    number, unit = _split(text, "a size", "4MB, 512KiB or 1000")
    if unit not in _BYTES:
        raise UsageError(f"{text!r} is not a size: the unit must be one of {', '.join(u for u in _BYTES if u)}")
    return int(number * _BYTES[unit])


def show_seconds(value: float) -> str:
    """A duration as a person reads it: `20 ms`, `850 µs`, `1.5 s`."""
    if value < 0.001:
        return f"{value * 1e6:.3g} µs"
    if value < 1:
        return f"{value * 1e3:.3g} ms"
    return f"{value:.3g} s" if value < 1000 else f"{value:.0f} s"


def show_rate(value: float) -> str:
    """A rate a second as a person reads it, without its unit: `12,300`, `340`, `7.5`."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def show_size(value: int) -> str:
    """A size as a person reads it: `12.3 kB`, `4 MB`."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value} B"
