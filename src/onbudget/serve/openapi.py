"""The OpenAPI document of a served model, as data: the hot routes are plain ASGI, so no framework can derive it.

`document` is a pure function of what is served, and its examples are requests that this very model answers: a picture
model's example is a small PNG of the right size, a tensor model's is an array of the right shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from onbudget import __version__
from onbudget.core.metadata import Metadata
from onbudget.core.priority import LAST, NORMAL
from onbudget.core.units import show_size
from onbudget.engine.headers import FORMATS, shown
from onbudget.engine.session import Port
from onbudget.serve.contract import Contract
from onbudget.serve.examples import example_answer, example_item
from onbudget.serve.settings import Settings
from onbudget.serve.status import SCHEMA as STATUS

Data = dict[str, Any]

_LABELS_LISTED = 200

# status → what it means here, and what a caller reads; the words are those of core.errors
REFUSALS: dict[int, tuple[str, Data]] = {
    400: ("The body is not what its content type says.", {"detail": "the body is not JSON: ..."}),
    401: (
        "No API key, or none of the server's; only where it asks for keys.",
        {"detail": "this server asks for an API key; send 'Authorization: Bearer KEY' or 'X-Api-Key: KEY'"},
    ),
    408: (
        "The body did not arrive in time.",
        {"detail": "the body did not arrive within 10 s (--client-timeout)"},
    ),
    413: (
        "The body, or a picture in it, is over a stated limit.",
        {"detail": "the body has 20 MB or more; the limit is 16 MB (--max-body)"},
    ),
    415: (
        "A content type, or a picture format, outside the accepted set.",
        {"detail": "content type 'text/plain' is not accepted; this server takes application/json, ..."},
    ),
    422: (
        "Right shape, wrong content; the item is named from both ends.",
        {"detail": "item 8 (tiles[7]): a damaged or truncated JPEG: not enough image data"},
    ),
    429: (
        "Refused by admission; nothing was computed. Come back after `Retry-After`.",
        {"detail": "the server is busy: ...", "reason": "queue_full", "retry_after_ms": 1000},
    ),
    500: ("The model's run failed.", {"detail": "the model's run failed: ..."}),
    503: (
        "Loading or shutting down.",
        {"detail": "the model is still loading", "reason": "loading", "retry_after_ms": 1000},
    ),
}


@dataclass(frozen=True)
class ApiInfo:
    """What the document depends on. `outputs` are shown for models without a task."""

    contract: Contract
    metadata: Metadata
    settings: Settings
    outputs: Sequence[Port] = ()


def document(info: ApiInfo) -> Data:
    """The OpenAPI 3.1 document, JSON-ready."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "onbudget", "version": __version__, "description": _description(info)},
        "paths": {
            "/predict": {"post": _predict(info)},
            "/health": {"get": _small("health", "Whether the process is alive", "Health")},
            "/ready": {"get": _small("ready", "Whether the model can be asked now, and its settings", "Ready", 503)},
            "/status": {"get": _small("status", "Live figures: latency, refusals, batches, cost", "Status", 503)},
            "/metrics": {
                "get": {
                    "operationId": "metrics",
                    "tags": ["operations"],
                    "summary": "Prometheus metrics",
                    "responses": {
                        "200": {"description": "Text exposition format", "content": {"text/plain": {"schema": _STRING}}}
                    },
                }
            },
        },
        "components": {"schemas": _schemas(info)},
    }


_STRING: Data = {"type": "string"}
_NUMBER: Data = {"type": "number"}
_CONFIDENCE: Data = {"type": "number", "minimum": 0, "maximum": 1, "description": "The label's probability."}
_BINARY: Data = {"type": "string", "format": "binary"}


def _ref(name: str) -> Data:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: Data, required: Sequence[str] = (), **more: Any) -> Data:
    return {"type": "object", "properties": properties, "required": list(required), **more}


def _description(info: ApiInfo) -> str:
    contract, settings = info.contract, info.settings
    task = {"classify": "classifies", "multilabel": "labels", "tensors": "answers the tensors of"}[info.metadata.task]
    item = "a picture" if contract.pictures else "an item"
    if contract.shape is not None:
        item += f" of {'×'.join(map(str, contract.shape)) or 'one value'} ({contract.dtype})"
    limits = f"{settings.max_items} items and {show_size(settings.max_body)} a request"
    if contract.pictures:
        limits += f"; pictures: {shown(settings.accept)}, {settings.max_pixels / 1e6:g} megapixels"
    return f"This server {task} {item}. Limits: {limits}."


def _predict(info: ApiInfo) -> Data:
    contract, settings = info.contract, info.settings
    content: Data = {"application/json": {"schema": _ref("Items")}}
    if (item := example_item(contract, settings.accept)) is not None:
        content["application/json"]["example"] = {contract.field: [item]}
    if contract.row_bytes:
        what = f"Items end to end, {contract.row_bytes} bytes each ({contract.dtype}, C order)."
        content["application/octet-stream"] = {"schema": {**_BINARY, "description": what}}
    if contract.pictures:
        for name in settings.accept:
            content[FORMATS[name].types[0]] = {"schema": {**_BINARY, "description": "One picture."}}
        files = {
            "type": "array",
            "items": _BINARY,
            "minItems": 1,
            "maxItems": settings.max_items,
            "description": "One or many pictures.",
        }
        content["multipart/form-data"] = {"schema": _object({"file": files}, ["file"])}
    answers = {"schema": {"oneOf": [_ref("Predictions"), _ref("Prediction")]}}
    if not contract.reworded and (answer := example_answer(info.metadata)) is not None:
        answers["example"] = {"predictions": [answer]}
    headers = {
        "Server-Timing": {"description": "Milliseconds: decode, queue, infer.", "schema": _STRING},
        "X-Onbudget-Late": {"description": "By how many milliseconds it missed its deadline.", "schema": _STRING},
    }
    good = {"description": _GOOD, "content": {"application/json": answers}, "headers": headers}
    return {
        "operationId": "predict",
        "tags": ["model"],
        "summary": "Ask the model",
        "parameters": _parameters(info),
        "requestBody": {"required": True, "content": content},
        "responses": {"200": good, **{str(status): _refused(status) for status in REFUSALS}},
    }


_GOOD = (
    "One prediction an item, in order; the prediction itself where one picture, or one item's flat numbers, was sent."
)


def _parameters(info: ApiInfo) -> list[Data]:
    given: list[Data] = [
        {
            "name": "X-Request-Id",
            "in": "header",
            "schema": _STRING,
            "description": "Comes back in the answer's header of that name.",
        },
        {
            "name": "X-Deadline-Ms",
            "in": "header",
            "schema": {"type": "number", "exclusiveMinimum": 0, "example": 20},
            "description": "For how many milliseconds the answer is of use, counted from the last body byte: the "
            "request is refused when that can't be held, and told `expired` when it was not.",
        },
        {
            "name": "X-Priority",
            "in": "header",
            "schema": {"type": "integer", "minimum": 0, "maximum": LAST, "default": NORMAL},
            "description": "1 goes before 2, which is what 0 and no header mean, and 2 before 3; when not all can be "
            "answered in time, those of the highest number are given up first.",
        },
    ]
    if info.metadata.task != "tensors":
        top = {"type": "integer", "minimum": 1, "maximum": 1000}
        given.insert(
            0, {"name": "top", "in": "query", "schema": top, "description": "List so many labels, best first."}
        )
    return given


def _refused(status: int) -> Data:
    meaning, example = REFUSALS[status]
    told: Data = {
        "description": meaning,
        "content": {"application/json": {"schema": _ref("Refusal"), "example": example}},
    }
    if status in (429, 503):
        whole = {"type": "integer", "minimum": 1}
        told["headers"] = {"Retry-After": {"description": "Whole seconds, rounded up.", "schema": whole}}
    return told


def _small(name: str, summary: str, schema: str, *refusals: int) -> Data:
    good = {"description": "OK", "content": {"application/json": {"schema": _ref(schema)}}}
    return {
        "operationId": name,
        "tags": ["operations"],
        "summary": summary,
        "responses": {"200": good, **{str(status): _refused(status) for status in refusals}},
    }


def _schemas(info: ApiInfo) -> Data:
    field, many = info.contract.field, {"minItems": 1, "maxItems": info.settings.max_items}
    names = dict.fromkeys((field, "instances"))  # the model's own name first; both where they differ
    top = (
        {} if info.metadata.task == "tensors" else {"top": {"type": ["integer", "null"], "minimum": 1, "maximum": 1000}}
    )
    # A list of items, or the flat numbers of exactly one item (which are as many as the item has).
    given: Data = {"type": "array", "items": _ref("Item"), **({"minItems": 1} if _flat(info) else many)}
    health = {"status": {"const": "ok"}, "classes": {"type": "array", "items": _STRING}, "params": {"type": "integer"}}
    return {
        "Items": {
            "type": "object",
            "properties": {**dict.fromkeys(names, given), **top},
            "oneOf": [{"required": [name]} for name in names],
            "additionalProperties": False,
        },
        "Item": _item(info),
        "Predictions": _object({"predictions": {"type": "array", "items": _ref("Prediction")}}, ["predictions"]),
        "Prediction": _prediction(info),
        "Refusal": _object(
            {
                "detail": {"type": "string", "description": "What is wrong, where, and what to do."},
                "reason": {"type": "string", "description": "One word for programs, where there is one."},
                "retry_after_ms": {"type": "integer", "minimum": 0},
            },
            ["detail"],
        ),
        "Health": _object(health, ["status"]),
        "Ready": _object({"status": {"const": "ready"}, "providers": {"type": "array", "items": _STRING}}, ["status"]),
        "Status": STATUS,
    }


def _flat(info: ApiInfo) -> bool:
    return not info.contract.own and info.contract.shape is not None and prod(info.contract.shape) > 1


def _item(info: ApiInfo) -> Data:
    contract = info.contract
    if contract.own:
        return {"description": "Whatever this application's `decode` takes."}
    ways: list[Data] = []
    if contract.pictures:
        ways.append(
            {**_STRING, "contentEncoding": "base64", "description": f"A picture: {shown(info.settings.accept)}."}
        )
    if contract.row_bytes:
        what = f"Exactly {contract.row_bytes} raw bytes ({contract.dtype}, C order)."
        ways.append({**_STRING, "contentEncoding": "base64", "description": what})
    if len(contract.inputs) > 1:
        by_name = {p.name: _nested(s, p.dtype) for p, s in zip(contract.inputs, contract.shapes, strict=True)}
        ways.append(_object(by_name, list(by_name)))
    else:
        ways.append(_nested(contract.shape or contract.shapes[0], str(contract.dtype)))
        if _flat(info):
            ways.append(_STRING if contract.dtype.kind == "O" else _NUMBER)  # an item's numbers, without their shape
    return {"anyOf": ways}


def _nested(shape: Sequence[int | None], dtype: str) -> Data:
    """The schema of nested lists of `shape`, None being any size."""
    schema: Data = {
        "type": {"object": "string", "bool": "boolean"}.get(dtype, "number" if "float" in dtype else "integer")
    }
    if dtype.startswith("uint"):
        schema["minimum"] = 0
    if dtype == "uint8":
        schema["maximum"] = 255
    for size in reversed(shape):
        exact = {} if size is None else {"minItems": size, "maxItems": size}
        schema = {"type": "array", "items": schema, **exact}
    return schema


def _prediction(info: ApiInfo) -> Data:
    if info.contract.reworded:
        return {"description": "Whatever this application's `finish` makes of an answer."}
    labels = info.metadata.labels
    label: Data = {"type": "string"}
    if 0 < len(labels) <= _LABELS_LISTED:
        label["enum"] = list(dict.fromkeys(labels))
    one = {"label": label, "confidence": _CONFIDENCE}
    several = {"type": "array", "items": _object(one, list(one)), "description": "Best first."}
    if info.metadata.task == "classify":
        return _object({**one, "top": several}, list(one))
    if info.metadata.task == "multilabel":
        return _object({"labels": several}, ["labels"])
    outputs = {port.name: {"description": _shaped(port)} for port in info.outputs}
    return _object(outputs, list(outputs), description="The model's outputs, as nested lists.")


def _shaped(port: Port) -> str:
    return f"{port.dtype} of {'×'.join('?' if d is None else str(d) for d in port.shape[1:]) or 'one value'}"
