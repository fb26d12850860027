"""docs/howto/embed.md: its cells run one after the other inside a running event loop, as a notebook runs them."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import shutil
import socket
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from onbudget.engine.embedded import bundle_path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "embed.md"


def test_the_pages_cells_run_in_a_running_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Answers, batches of 16, 16 and 8, and a server that answers between two cells and ends when it is told to."""
    cells = re.findall(r"^<!-- notebook -->\n```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(cells) == 3
    monkeypatch.chdir(tmp_path)
    shutil.copy(bundle_path(), "served.onnx")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    async def notebook() -> int:
        space: dict[str, Any] = {}
        for number, cell in enumerate(cells):
            code = compile(cell.replace("8000", str(port)), f"cell {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if inspect.iscoroutine(ran := eval(code, space)):
                await ran
            if number == 1:
                async with httpx.AsyncClient() as client:
                    status = (await client.get(f"http://127.0.0.1:{port}/ready")).status_code
        assert space["running"].done()
        return status

    assert asyncio.run(notebook()) == 200
    assert "[16, 16, 8]" in capsys.readouterr().out
