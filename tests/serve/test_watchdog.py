"""A run that never ends, in a real ONNX Runtime session: stopped, answered, and the server goes on."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onbudget.serve import exchange
from onbudget.serve.service import Service
from onbudget.serve.settings import Settings


def spin_model(path: Path) -> Path:
    """y = x after as many rounds of a loop as the largest x says: 0 is quick, 1e15 is for ever."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["on_in"], ["on_out"]),
            helper.make_node("Add", ["acc_in", "zero"], ["acc_out"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("round", TensorProto.INT64, []),
            helper.make_tensor_value_info("on_in", TensorProto.BOOL, []),
            helper.make_tensor_value_info("acc_in", TensorProto.FLOAT, ["n", 1]),
        ],
        [
            helper.make_tensor_value_info("on_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info("acc_out", TensorProto.FLOAT, ["n", 1]),
        ],
        [numpy_helper.from_array(np.zeros(1, np.float32), "zero")],
    )
    graph = helper.make_graph(
        [
            helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
            helper.make_node("Cast", ["most"], ["rounds"], to=TensorProto.INT64),
            helper.make_node("Loop", ["rounds", "on", "x"], ["y"], body=body),
        ],
        "spin",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1])],
        [numpy_helper.from_array(np.array(True), "on")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def test_a_hung_run_is_stopped_and_its_caller_told(tmp_path: Path) -> None:
    """RunOptions.terminate ends the run at --stuck-after: 500 for that batch, and the next request is answered."""

    async def ask(service: Service, value: float) -> exchange.Response:
        done: asyncio.Future[exchange.Response] = asyncio.get_running_loop().create_future()
        body = json.dumps({"instances": [[value]]}).encode()
        service.predict(exchange.Request([], body, b"", time.monotonic()), done.set_result)
        return await asyncio.wait_for(done, 30)

    async def go() -> list[exchange.Response]:
        service = Service(spin_model(tmp_path / "spin.onnx"), Settings(stuck_after=0.3, lanes=1))
        await service.start()
        stuck = await ask(service, 1e15)
        after = await ask(service, 0.0)
        health = service.health()
        await service.stop()
        return [stuck, after, health]

    stuck, after, health = asyncio.run(go())
    assert stuck.status == 500
    assert b"--stuck-after" in stuck.body
    assert (after.status, json.loads(after.body)) == (200, {"predictions": [{"y": [0.0]}]})
    assert b"lane_restarts" not in health.body  # the thread listened, so it is still the same one


def test_the_model_it_is_tested_with_is_valid(tmp_path: Path) -> None:
    """The looping model is a legal ONNX file."""
    onnx.checker.check_model(onnx.load(spin_model(tmp_path / "spin.onnx")))
