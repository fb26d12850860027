"""How many items ran together while a load test went on, as the target's own /metrics tell; other servers tell nothing.

An answer does not say what batch it was in, and a server counts for whoever asks it. So what is told is the difference
of two looks, before the first request and after the last answer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from onbudget.core.errors import TargetError
from onbudget.prove.client import Target, ask
from onbudget.prove.payloads import head, ready_path

_ASK_S = 2.0  # a server that has just been overloaded may take its time; without an answer the sizes are not told
_BUCKET = re.compile(r'^onbudget_batch_size_bucket\{le="([^"]+)"\} (\S+)$', re.MULTILINE)
_SUM = re.compile(r"^onbudget_batch_size_sum (\S+)$", re.MULTILINE)

Look = tuple[tuple[tuple[float, float], ...], float]
"""((largest size, runs of at most that size), …) ascending, and the sum of all items."""


async def told(target: Target, address: tuple[str, int], headers: Sequence[tuple[str, str]]) -> Look | None:
    """One look; None where the server does not tell."""
    try:
        answer = await ask(target, address, head("GET", target, _path(target), headers), _ASK_S)
    except TargetError:  # gone, busy or shut: then its batches are not known, and the run is told all the same
        return None
    return read(answer.body.decode("utf-8", "replace")) if answer.status == 200 else None


def _path(target: Target) -> str:
    return ready_path(target).removesuffix("/ready") + "/metrics"


def read(text: str) -> Look | None:
    """The look in Prometheus' text; None where it is not there, or is no histogram."""
    total = _SUM.search(text)
    try:
        buckets = tuple((float(edge), float(count)) for edge, count in _BUCKET.findall(text))
        return (buckets, float(total[1])) if total and buckets and buckets[-1][0] == math.inf else None
    except ValueError:
        return None


def since(before: Look, after: Look | None) -> dict[str, Any] | None:
    """What came between two looks, as a record keeps it; None where the server was another or tells no more."""
    if after is None or [edge for edge, _ in before[0]] != [edge for edge, _ in after[0]]:
        return None
    sizes: list[list[int | None]] = []
    least, so_far = 1, 0.0
    for (edge, old), (_, new) in zip(before[0], after[0], strict=True):
        most = None if edge == math.inf else int(edge)
        if new - old < so_far:  # it counts from zero again: it was restarted
            return None
        if new - old > so_far:
            sizes.append([least, most, round(new - old - so_far)])
        least, so_far = (most or 0) + 1, new - old
    return {"runs": round(so_far), "items": round(after[1] - before[1]), "sizes": sizes}
