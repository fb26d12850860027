"""Models that people bring: which are served, which are refused at the start, and in which words. Real sessions."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from onbudget.core.errors import BundleError
from onbudget.serve import exchange
from onbudget.serve.service import Service
from onbudget.serve.settings import Settings

FLOAT, TEXT = TensorProto.FLOAT, TensorProto.STRING
info = helper.make_tensor_value_info


def model(path: Path, node: Any, inputs: Sequence[Any], output: Any, *constants: Any) -> Path:
    """A file of one node."""
    graph = helper.make_graph([node], "one", list(inputs), [output], list(constants))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    return path


def ask(path: Path, *items: Any) -> exchange.Response:
    """Serve a file, send one request, stop."""

    async def go() -> exchange.Response:
        service = Service(path, Settings(lanes=1, max_batch=4))
        await service.start()
        done: asyncio.Future[exchange.Response] = asyncio.get_running_loop().create_future()
        body = json.dumps({"instances": items}).encode()
        service.predict(exchange.Request(exchange.EMPTY, body, time.monotonic()), done.set_result)
        response = await asyncio.wait_for(done, 30)
        await service.stop()
        return response

    return asyncio.run(go())


def test_a_single_value_is_an_input(tmp_path: Path) -> None:
    """A model whose one input has no axes takes a number an item."""
    node = helper.make_node("Identity", ["x"], ["y"])
    path = model(tmp_path / "one.onnx", node, [info("x", FLOAT, [])], info("y", FLOAT, []))
    response = ask(path, 1.5, 2.5)
    assert json.loads(response.body) == {"predictions": [{"y": 1.5}, {"y": 2.5}]}


def test_a_model_without_inputs_is_refused(tmp_path: Path) -> None:
    """There is nothing to send it, and the start says so."""
    one = numpy_helper.from_array(np.ones(1, np.float32), "c")
    node = helper.make_node("Identity", ["c"], ["y"])
    with pytest.raises(BundleError, match="no inputs"):
        ask(model(tmp_path / "none.onnx", node, [], info("y", FLOAT, [1]), one))


def test_a_model_that_never_answers_row_by_row_is_refused_at_the_start(tmp_path: Path) -> None:
    """One answer for the whole batch can be given to nobody: no server says ready and then 500 for ever (pain 42)."""
    node = helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)
    path = model(tmp_path / "sum.onnx", node, [info("x", FLOAT, ["n", 2])], info("y", FLOAT, []))
    with pytest.raises(BundleError, match="answered 0 rows of 'y' for a batch of 1"):
        ask(path, [1, 2])


def test_a_model_that_answers_one_row_for_many_is_served_one_at_a_time(tmp_path: Path) -> None:
    """Right alone and wrong in company: nobody shares a run, and /ready says why (pain 35)."""
    node = helper.make_node("ReduceMean", ["x"], ["y"], axes=[0], keepdims=1)
    path = model(tmp_path / "mean.onnx", node, [info("x", FLOAT, ["n", 2])], info("y", FLOAT, ["m", 2]))
    assert json.loads(ask(path, [1, 2], [3, 4]).body) == {"predictions": [{"y": [1.0, 2.0]}, {"y": [3.0, 4.0]}]}


def test_made_up_text_is_no_proof_against_a_model(tmp_path: Path) -> None:
    """A model that reads numbers from text fails on the empty text of the warm-up, and serves all the same."""
    node = helper.make_node("Cast", ["x"], ["y"], to=FLOAT)
    path = model(tmp_path / "cast.onnx", node, [info("x", TEXT, ["n", 1])], info("y", FLOAT, ["n", 1]))
    assert json.loads(ask(path, ["1.5"]).body) == {"predictions": [{"y": [1.5]}]}


def test_a_map_of_scores_with_nan_is_the_models_fault(tmp_path: Path) -> None:
    """Scores that are no numbers are 500 in a map as they are in a tensor, and never null."""
    scores = helper.make_sequence_type_proto(
        helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(FLOAT, []))
    )
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[5, 6])
    path = model(tmp_path / "map.onnx", node, [info("x", FLOAT, ["n", 2])], helper.make_value_info("y", scores))
    assert json.loads(ask(path, [1, 2]).body) == {"predictions": [{"y": {"5": 1.0, "6": 2.0}}]}
    nan = np.full(2, np.nan, np.float32).tobytes()
    assert ask(path, base64.b64encode(nan).decode()).status == 500
