"""What a server says of itself on `/health`, `/ready` and `/status`."""

from __future__ import annotations

import time

from onbudget.serve.exchange import Response, as_json, refusal
from onbudget.serve.service import Service


def health(service: Service) -> Response:
    """200 while the process can answer at all; says how many lanes had to be restarted, and why the last one."""
    value: dict[str, object] = {"status": "ok"}
    if service.model is not None:
        metadata, lanes = service.model.metadata, service.model.lanes
        if metadata.labels:
            value["classes"] = list(metadata.labels)
        if metadata.params is not None:
            value["params"] = metadata.params
        if lanes.restarts:
            value["lane_restarts"] = lanes.restarts
            value["last_restart"] = lanes.last_restart
    return as_json(200, value)


def ready(service: Service) -> Response:
    """200 with the model, its providers and the effective settings; else 503 with the reason."""
    if service.state != "ready" or service.model is None:
        return refusal(service.not_ready())
    p95, predicted = service.settings.p95, service.metrics.live.predicted
    told: dict[str, object] = {"status": "ready", "p95_ms": p95 * 1000 if p95 else None}
    if predicted is not None:
        told["predicted_limit_rate"] = predicted
    return as_json(200, {**told, **service.model.described()})


def status(service: Service) -> Response:
    """200 with the live figures while there is a model, draining or not; else 503 with the reason."""
    if service.model is None:
        return refusal(service.not_ready())
    return as_json(200, service.live_status.body(service.model, service.state, time.monotonic()))
