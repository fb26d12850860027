"""A runtime's error as one sentence for people: onnxruntime's own begin with source files and C++ signatures."""

from __future__ import annotations

import re

_NODE = re.compile(r"while running (\S+) node\. Name:'([^']*)' Status Message: (.*)")
_CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
# /onnxruntime_src/…/model.cc:256 onnxruntime::Model::Model(onnx::ModelProto&&, …) – or just matmul_helper.h:59 Compute
_SOURCE = re.compile(r"/\S+\.(?:cc|h):\d+ .*?\) (?=\S)|\b\w+\.(?:cc|h):\d+ \w+ ")
_LIMIT = 300


def told(error: BaseException) -> str:
    """The error's sentence; it begins with the graph's node where the error names one."""
    text = _CODE.sub("", " ".join(str(error).split())) or type(error).__name__
    found = _NODE.search(text)
    text = f"{found[1]} node {found[2]!r}: {_SOURCE.sub('', found[3])}" if found else _SOURCE.sub("", text)
    return text if len(text) <= _LIMIT else text[: _LIMIT - 1] + "…"
