#!/usr/bin/env bash
# Installs dist/onbudget-….whl in an empty venv away from the repository, and runs its demo as a stranger would:
# no extras, no torch, no onnx, nothing of this checkout in reach. `make wheel-test` builds the wheel first.
set -euo pipefail
cd "$(dirname "$0")/.."
repo=$PWD
wheels=(dist/onbudget-*.whl)
[ "${#wheels[@]}" = 1 ] && [ -e "${wheels[0]}" ] || { echo "one wheel is wanted in dist/: make wheel" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "${wheels[0]}" "$work/"
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV
"${PYTHON:-python3}" -m venv "$work/venv"
cd "$work"
venv/bin/python -m pip install --quiet --disable-pip-version-check -c "$repo/constraints.txt" ./onbudget-*.whl

venv/bin/python - <<'PY'
import importlib.util
import onbudget
from pathlib import Path

assert "venv" in Path(onbudget.__file__).parts, onbudget.__file__
for name in ("torch", "onnx", "onnxscript"):
    assert importlib.util.find_spec(name) is None, f"{name} came with the wheel, without an extra"
PY
venv/bin/onbudget --version

started=$SECONDS
timeout 60 venv/bin/onbudget demo --once --json > demo.json || {
    code=$?
    # 10: served and measured, and the budget was missed on this machine. That is an answer, not a broken wheel.
    [ "$code" = 10 ] || { echo "onbudget demo ended with $code (124: it took over 60 s)" >&2; exit 1; }
}
venv/bin/python -m json.tool demo.json > /dev/null
echo "1 passed, 0 failed: the wheel's demo took $((SECONDS - started)) s" >&2
