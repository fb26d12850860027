"""The API's document: valid, true of each kind of model, offline; and its examples are requests that work."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import onnx
import pytest
from fastapi import FastAPI
from jsonschema import Draft202012Validator
from onnx import TensorProto, helper, numpy_helper
from openapi_spec_validator import OpenAPIV31SpecValidator

from onbudget.core import errors
from onbudget.core.metadata import KEY, Metadata
from onbudget.core.recipe import Recipe
from onbudget.core.tasks import Classify, MultiLabel, Tensors
from onbudget.engine.images import decode
from onbudget.engine.session import Port
from onbudget.serve.app import create_app
from onbudget.serve.contract import Contract
from onbudget.serve.docs import asset, docs_html, packed_asset
from onbudget.serve.exchange import EMPTY, Head, Request, refusal
from onbudget.serve.items import ARRAYS, BASE64, PICTURE
from onbudget.serve.openapi import REFUSALS, ApiInfo, document
from onbudget.serve.settings import Settings
from onbudget.serve.wire import parse

LABELS = ("water", "town", "wood")


def info(
    shapes: dict[str, tuple[str, tuple[int | None, ...]]],
    recipe: Recipe | None = None,
    metadata: Metadata | None = None,
    **settings: Any,
) -> ApiInfo:
    """A model with these inputs (name → dtype, item shape)."""
    inputs = tuple(Port(name, dtype, (None, *shape)) for name, (dtype, shape) in shapes.items())
    told = metadata or Metadata()
    contract = Contract(told.field, inputs, tuple(shape for _, shape in shapes.values()), recipe, None, "")
    return ApiInfo(contract, told, Settings(**settings), (Port("logits", "float32", (None, 3)),))


PICTURE_RECIPE = Recipe(kind="picture", shape=(64, 48, 3))
CROPPED = Recipe(
    kind="picture", shape=(224, 224, 1), colour="grey", resize="shortest", size=(256, 256), crop=(224, 224)
)
CLASSIFY = Metadata(task="classify", field="tiles", labels=LABELS, output="p")
KINDS = {
    "pictures": info({"tiles": ("uint8", (64, 48, 3))}, PICTURE_RECIPE, CLASSIFY),
    "grey pictures, cropped": info({"x": ("uint8", (224, 224, 1))}, CROPPED, CLASSIFY),
    "pictures as JPEG only": info({"tiles": ("uint8", (64, 48, 3))}, PICTURE_RECIPE, CLASSIFY, accept=("jpeg",)),
    "many labels of a tensor": info(
        {"x": ("float32", (4,))}, None, Metadata(task="multilabel", labels=LABELS, output="p")
    ),
    "pixels from 1 to 2": info(
        {"x": ("float32", (6,))},
        Recipe(kind="tensor", shape=(6,), input_dtype="float32", input_range=(1.0, 2.0)),
        Metadata(task="classify", field="pixels", labels=LABELS, output="p"),
    ),
    "a large tensor": info({"x": ("float32", (3, 60, 60))}),
    "a huge tensor": info({"x": ("float32", (3, 600, 600))}),
    "whole numbers": info({"x": ("int64", (5,))}),
    "a single value": info({"x": ("float32", ())}),
    "text": info({"x": ("object", ())}),
    "two inputs": info({"a": ("float32", (2,)), "b": ("int64", (3,))}),
    "open axes": info({"x": ("int64", (None,))}),
    "two inputs, open axes": info({"a": ("float32", (2,)), "b": ("int64", (None,))}),
}
WITHOUT_EXAMPLE = {"a huge tensor", "open axes", "two inputs, open axes"}


def body(told: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = told["paths"]["/predict"]["post"]["requestBody"]["content"]
    return content


def validator(told: dict[str, Any], name: str) -> Draft202012Validator:
    """A schema of the document, with everything that it refers to."""
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": told["components"]})


@pytest.mark.parametrize("kind", KINDS)
def test_the_document_is_valid_openapi(kind: str) -> None:
    """Each kind of model's document is valid OpenAPI 3.1, and plain JSON."""
    told = document(KINDS[kind])
    OpenAPIV31SpecValidator(json.loads(json.dumps(told, allow_nan=False))).validate()
    assert set(told["paths"]) == {"/predict", "/health", "/ready", "/status", "/metrics"}


def test_the_document_knows_the_classes() -> None:
    """What it says of `X-Priority` is what the server reads."""
    told = document(next(iter(KINDS.values())))["paths"]["/predict"]["post"]["parameters"]
    schema = next(given["schema"] for given in told if given["name"] == "X-Priority")
    assert EMPTY.priority == schema["default"]
    for number in range(-1, 6):
        fault = Head([(b"x-priority", b"%d" % number)]).fault
        assert Draft202012Validator(schema).is_valid(number) == (not fault)


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_is_a_request_that_works(kind: str) -> None:
    """The JSON example is parsed, and decoded into the model's shape, by the server's own code."""
    one = KINDS[kind]
    told = document(one)
    assert ("example" not in body(told)["application/json"]) == (kind in WITHOUT_EXAMPLE)
    if kind in WITHOUT_EXAMPLE:
        return
    example = body(told)["application/json"]["example"]
    validator(told, "Items").validate(example)
    sent = json.dumps(example).encode()
    assert len(sent) < 100_000
    parsed = parse(Request(EMPTY, sent, 0.0), one.contract, one.settings)
    assert len(parsed.items) == 1
    way, data, _ = parsed.items[0]
    if way is PICTURE:
        assert one.contract.recipe is not None
        assert decode(data, one.contract.recipe).shape == one.contract.shape
    elif way is ARRAYS:
        assert [a.shape for a in data] == list(one.contract.shapes)
    else:
        raw = base64.b64decode(data) if way is BASE64 else data
        assert len(raw) == one.contract.row_bytes


@pytest.mark.parametrize(
    ("items", "good"),
    [
        ({"tiles": ["QUJD"]}, True),
        ({"instances": ["QUJD"]}, True),
        ({"tiles": ["QUJD"], "top": 3}, True),
        ({"tiles": ["QUJD"], "instances": ["QUJD"]}, False),
        ({"tiles": []}, False),
        ({"tile": ["QUJD"]}, False),
        ({"tiles": "QUJD"}, False),
        ({"tiles": ["QUJD"], "top": 0}, False),
        ({"tiles": ["QUJD"], "top": None}, True),  # what clients write that have no value
        ({}, False),
    ],
)
def test_the_schema_and_the_parser_agree_on_the_body(items: dict[str, Any], good: bool) -> None:
    """What the schema of a picture model's body allows is what its parser takes, names and counts alike."""
    one = KINDS["pictures"]
    assert validator(document(one), "Items").is_valid(items) == good
    raw = base64.b64encode(bytes(64 * 48 * 3)).decode()
    sent = json.loads(json.dumps(items).replace('["QUJD"]', json.dumps([raw])))
    try:
        parse(Request(EMPTY, json.dumps(sent).encode(), 0.0), one.contract, one.settings)
        taken = True
    except errors.RequestError:
        taken = False
    assert taken == good


def test_answers_have_the_shape_that_is_promised() -> None:
    """What the tasks really answer validates against the document, with and without `top`."""
    scores = np.array([[0.7, 0.2, 0.1]], np.float32)
    for kind, task in (
        ("pictures", Classify("p", LABELS)),
        ("many labels of a tensor", MultiLabel("p", LABELS)),
        ("whole numbers", Tensors(("logits",))),
    ):
        check = validator(document(KINDS[kind]), "Predictions")
        for top in (0, 2):
            check.validate({"predictions": task.finish([scores], [top])})
        assert not check.is_valid({"predictions": [{"labe": "water"}]})
        assert not check.is_valid({})


def test_refusals_have_the_shape_that_is_promised() -> None:
    """Every request error's answer validates, and each status that a caller can get is documented."""
    check = validator(document(KINDS["pictures"]), "Refusal")
    kinds = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.RequestError)]
    assert {c.status for c in kinds} - {404} == set(REFUSALS)  # 404 comes with several models
    for kind in kinds:
        if kind in (errors.Shed, errors.NotReady):
            error = kind("wait", reason="full", retry_after_s=0.2)  # type: ignore[call-arg]  # as those two are made
        else:
            error = kind("wrong")
        check.validate(json.loads(refusal(error).body))
    responses = document(KINDS["pictures"])["paths"]["/predict"]["post"]["responses"]
    for _, example in REFUSALS.values():
        check.validate(example)
    assert set(responses) == {"200", *map(str, REFUSALS)}
    assert "Retry-After" in responses["429"]["headers"]


def test_content_types_are_those_that_the_model_takes() -> None:
    """Pictures and multipart only for picture models, raw bytes only where a row has a size."""
    pictures = {"application/json", "application/octet-stream", "multipart/form-data"}
    assert set(body(document(KINDS["pictures"]))) == pictures | {"image/jpeg", "image/png", "image/webp"}
    assert set(body(document(KINDS["pictures as JPEG only"]))) == pictures | {"image/jpeg"}
    assert set(body(document(KINDS["whole numbers"]))) == {"application/json", "application/octet-stream"}
    assert set(body(document(KINDS["text"]))) == {"application/json"}


def test_the_limits_are_the_settings() -> None:
    """What the document says of limits is what the server was told."""
    told = document(info({"x": ("uint8", (64, 48, 3))}, PICTURE_RECIPE, CLASSIFY, max_items=7, max_pixels=2_000_000))
    assert "7 items and 16 MB a request; pictures: JPEG, PNG, WebP, 2 megapixels" in told["info"]["description"]
    files = body(told)["multipart/form-data"]["schema"]["properties"]["file"]
    assert (files["minItems"], files["maxItems"]) == (1, 7)


# ── the page and the served document ──


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny picture bundle: 4×4 RGB in, three labels out."""
    weights = np.random.default_rng(0).normal(size=(48, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Cast", ["tiles"], ["cast"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["cast"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("tiles", TensorProto.UINT8, ["n", 4, 4, 3])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(weights, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    passport = Metadata(
        task="classify", field="tiles", labels=LABELS, output="probabilities", activation="softmax",
        recipe=Recipe(kind="picture", shape=(4, 4, 3), resize="stretch", size=(4, 4)),
    )  # fmt: skip
    helper.set_model_props(made, {KEY: passport.to_json()})
    path = tmp_path_factory.mktemp("model") / "tiny.onnx"
    onnx.save(made, path)
    return path


class Client:
    """Requests to an application in this process, with its lifespan around them; no sockets."""

    def __init__(self, app: FastAPI) -> None:
        self._runner = asyncio.Runner()
        self._life = app.router.lifespan_context(app)
        self._http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here")

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(coroutine)

    def get(self, path: str, **more: Any) -> httpx.Response:
        got: httpx.Response = self.run(self._http.get(path, **more))
        return got

    def post(self, path: str, **more: Any) -> httpx.Response:
        got: httpx.Response = self.run(self._http.post(path, **more))
        return got

    def __enter__(self) -> Client:
        self.run(self._life.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self.run(self._life.__aexit__(None, None, None))
        self.run(self._http.aclose())
        self._runner.close()


@pytest.fixture(scope="module")
def client(model: Path) -> Iterator[Client]:
    """A user's own application on top of ours, with a route of its own."""
    app = create_app(model)

    @app.get("/mine", summary="A user's own route")
    def mine() -> dict[str, int]:
        return {"answer": 42}

    with Client(app) as client:
        yield client


def test_the_served_example_is_answered(client: Client) -> None:
    """Whoever copies the example out of /openapi.json gets an answer of the promised shape."""
    told = client.get("/openapi.json").json()
    OpenAPIV31SpecValidator(told).validate()
    got = client.post("/predict", json=body(told)["application/json"]["example"])
    assert got.status_code == 200
    validator(told, "Predictions").validate(got.json())
    assert got.json()["predictions"][0]["label"] in LABELS
    validator(told, "Health").validate(client.get("/health").json())
    validator(told, "Ready").validate(client.get("/ready").json())
    validator(told, "Status").validate(client.get("/status").json())
    refused = client.post("/predict", json={"tiles": ["?"]})
    assert refused.status_code == 422
    validator(told, "Refusal").validate(refused.json())


def test_a_users_own_routes_are_in_the_document(client: Client) -> None:
    """FastAPI's routes and ours stand side by side, in /openapi.json and in app.openapi()."""
    told = client.get("/openapi.json").json()
    assert {"/mine", "/predict", "/health"} <= set(told["paths"])
    assert told["paths"]["/mine"]["get"]["summary"] == "A user's own route"
    assert client.get("/mine").json() == {"answer": 42}


def test_the_page_needs_nothing_from_elsewhere(client: Client) -> None:
    """Every address in /docs is relative and served, and its policy forbids any other."""
    page = client.get("/docs")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    linked = re.findall(r'(?:src|href|data-openapi)="([^"]+)"', page.text)
    assert sorted(linked) == [
        "data:,", "docs/docs.js", "docs/swagger-ui-bundle.js", "docs/swagger-ui.css", "openapi.json", "openapi.json",
    ]  # fmt: skip
    for name in linked:
        if not name.startswith("data:"):
            assert client.get(f"/{name}").status_code == 200, name


def test_files_are_sent_packed_or_plain(client: Client) -> None:
    """A client that takes gzip gets it, another gets the same file plain; both with a content type."""
    for name, kind in (
        ("swagger-ui-bundle.js", "text/javascript"),
        ("swagger-ui.css", "text/css"),
        ("docs.js", "text/javascript"),
    ):
        packed = client.get(f"/docs/{name}", headers={"accept-encoding": "gzip"})
        plain = client.get(f"/docs/{name}", headers={"accept-encoding": "identity"})
        assert packed.headers["content-encoding"] == "gzip"
        assert "content-encoding" not in plain.headers
        assert packed.content == plain.content == asset(name)[0]  # the client unpacks
        assert plain.headers["content-type"].startswith(kind)
        assert len(packed_asset(name)[0]) < len(asset(name)[0])


def test_no_other_file_is_served(client: Client) -> None:
    """Names outside the list, paths upwards included, are 404."""
    for name in ("LICENSE", "..%2f..%2fapp.py", "%2e%2e/openapi.py", "swagger-ui.css.gz"):
        assert client.get(f"/docs/{name}").status_code == 404
    with pytest.raises(KeyError):
        asset("../__init__.py")


def test_addresses_in_the_page_are_escaped() -> None:
    """A prefix with odd characters cannot break out of its attribute."""
    page = docs_html('/a"b<c/openapi.json', '/a"b/')
    assert 'data-openapi="/a&quot;b&lt;c/openapi.json"' in page
    assert 'href="/a&quot;b/swagger-ui.css"' in page


async def _until_ready(app: FastAPI) -> None:
    await app.state.service.start()


def test_mounted_below_a_path_everything_still_works(model: Path) -> None:
    """Under /model the page's relative addresses resolve, and the document names the prefix as its server."""
    outer = FastAPI()
    inner = create_app(model)
    outer.mount("/model", inner)
    with Client(outer) as client:
        assert (
            client.get("/model/openapi.json").status_code == 503
        )  # no lifespan reaches it: its first request loads it
        items = {"instances": [np.zeros((4, 4, 3), int).tolist()]}
        assert client.post("/model/predict", json=items).status_code == 200
        client.run(_until_ready(inner))
        assert client.post("/model/predict", json=items).status_code == 200
        told = client.get("/model/openapi.json").json()
        assert told["servers"] == [{"url": "/model"}]
        assert client.get("/model/docs").status_code == 200
        assert client.get("/model/docs/docs.js").status_code == 200
        client.run(inner.state.service.stop())
