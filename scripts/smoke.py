"""What an installed wheel must do on any Python, with the standard library alone; run by that Python (pythons.py).

The embedded model is served by `python -m onbudget serve`, answers tiles, and ends by SIGTERM with exit code 0; the
server has imported neither onnx nor torch, and no warning was one of the interpreter's own.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import onbudget

START_S = 60.0


def ask(url: str, body: bytes | None = None, kind: str = "application/json") -> dict[str, object]:
    request = urllib.request.Request(url, body, {"Content-Type": kind})  # noqa: S310 - loopback
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
        told: dict[str, object] = json.load(answer)
    return told


def main() -> None:
    here = Path(onbudget.__file__).parent
    assert "venv" in here.parts, f"onbudget is from {here}, not from the wheel"
    assert importlib.metadata.version("onbudget") == onbudget.__version__
    assert (here / "py.typed").exists()
    for name in ("torch", "onnx", "onnxscript"):
        assert importlib.util.find_spec(name) is None, f"{name} came with the wheel, without an extra"

    with tempfile.TemporaryFile() as said:
        command = [sys.executable, "-W", "error", "-X", "importtime", "-m", "onbudget", "serve", "--port", "0"]
        server = subprocess.Popen(command, stdout=said, stderr=said, stdin=subprocess.DEVNULL)

        def log() -> str:
            return os.pread(said.fileno(), 1 << 24, 0).decode()

        def words() -> list[str]:
            return [line for line in log().splitlines() if not line.startswith("import time:")]

        try:
            end = time.monotonic() + START_S
            while not (url := next((line.split()[0] for line in words() if line.startswith("http://")), "")):
                assert server.poll() is None, f"the server ended with {server.returncode}: {words()}"
                assert time.monotonic() < end, f"not ready after {START_S:g} s: {words()}"
                time.sleep(0.05)
            classes = ask(f"{url}/health")["classes"]
            answer = ask(f"{url}/predict", bytes(2 * 64 * 64 * 3), "application/octet-stream")
            predictions = answer["predictions"]
            assert isinstance(predictions, list)
            assert isinstance(classes, list)
            assert [one["label"] in classes for one in predictions] == [True, True], answer
            server.terminate()
            assert server.wait(30) == 0, f"it ended with {server.returncode}: {words()}"
        finally:
            server.kill()
            server.wait()
        imported = {line.rsplit("|", 1)[1].strip() for line in log().splitlines() if line.startswith("import time:")}
        assert "onnxruntime" in imported
        heavy = {name for name in imported if name.partition(".")[0] in ("torch", "onnx", "onnxscript", "rich")}
        assert not heavy, f"serving imported {sorted(heavy)}"
        assert not [line for line in words() if "Warning" in line or "Traceback" in line], words()
    loop = "uvloop" if "uvloop" in imported else "asyncio"
    runtime = importlib.metadata.version("onnxruntime")
    print(f"Python {platform.python_version()}, onnxruntime {runtime}, {loop}: {len(predictions)} tiles answered")


if __name__ == "__main__":
    main()
