"""Install a wheel in an empty venv of each Python that this machine has, and serve with it. `make pythons`.

    python scripts/pythons.py dist/onbudget-….whl [PYTHON...]

Without PYTHONs: the newest of each version from 3.11 on, on the PATH and under pyenv. What is served is the embedded
model, as a stranger would: no extras, the pins of constraints.txt, nothing of this checkout in reach.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OLDEST = (3, 11)
_TELL = "import sys, venv, ensurepip; print(*sys.version_info[:3])"  # a Python without these makes no venv


def pythons() -> dict[tuple[int, int], str]:
    """(major, minor) → an interpreter that runs and can make a venv; of several of one version the newest."""
    found: dict[tuple[int, int], tuple[tuple[int, ...], str]] = {}
    for path in _candidates():
        told = subprocess.run([path, "-c", _TELL], capture_output=True, text=True, env=_clean(), cwd="/")
        if told.returncode:
            continue
        version = tuple(int(part) for part in told.stdout.split())
        if version[:2] >= OLDEST and found.get(version[:2], ((), ""))[0] < version:
            found[version[:2]] = (version, path)
    return {version: path for version, (_, path) in sorted(found.items())}


def _candidates() -> Iterator[str]:
    yield sys.executable
    for folder in os.get_exec_path():
        for path in sorted(Path(folder).glob("python3*")):
            if re.fullmatch(r"python3(\.\d+)?(\.exe)?", path.name) and os.access(path, os.X_OK):
                yield str(path)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from (str(path) for path in sorted(pyenv.glob("versions/*/bin/python")))


def _clean() -> dict[str, str]:
    """Our environment without what would let another Python, or this checkout, in."""
    mine = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "ONBUDGET_", "COVERAGE_")
    return {name: value for name, value in os.environ.items() if not name.startswith(mine)}


def lowest() -> str:
    """Pins for pip: the oldest version of each dependency that pyproject.toml says is enough."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = [re.match(r"([\w-]+)>=([\d.]+)", one) for one in project["dependencies"]]
    assert all(bounds), project["dependencies"]
    return "".join(f"{bound[1]}=={bound[2]}\n" for bound in bounds if bound)


def smoke(python: str, wheel: Path, folder: Path, pins: Path = ROOT / "constraints.txt") -> str:
    """Install `wheel` with `pins` in a new venv in `folder`, serve, ask, end → a line that says what it ran on.

    RuntimeError with the last words of what went wrong.
    """
    _run([python, "-m", "venv", str(folder / "venv")], folder)
    scripts = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    pip = [str(scripts / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    _run([*pip, "-c", str(pins), str(wheel)], folder)
    shutil.copy(ROOT / "scripts" / "smoke.py", folder)
    return _run([str(scripts / "python"), "smoke.py"], folder)


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, env=_clean(), capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command[:4])} … ended with {done.returncode}: {(done.stdout + done.stderr)[-3000:]}"
        )
    return done.stdout.strip()


def main() -> int:
    """A line for each Python; exit code 1 where one failed."""
    if len(sys.argv) < 2:
        print("which wheel? make wheel, then: python scripts/pythons.py dist/onbudget-….whl", file=sys.stderr)
        return 2
    wheel, failed = Path(sys.argv[1]).resolve(), 0
    for python in sys.argv[2:] or pythons().values():
        print(f"{python}: installing and serving", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="onbudget-python-") as folder:
            try:
                print(f"{python}: {smoke(python, wheel, Path(folder))}")
            except RuntimeError as error:
                failed += 1
                print(f"{python}: {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
