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

# It takes half a minute on a quiet machine; a busy one may need more, and its verdict may be anything.
started=$SECONDS
timeout 120 venv/bin/onbudget demo --once --json > demo.json || { echo "onbudget demo ended with $? (124: over two minutes)" >&2; exit 1; }
took=$((SECONDS - started))
venv/bin/python -m json.tool demo.json > /dev/null
[ "$took" -lt 60 ] || echo "the demo took $took s, where 60 are promised: is this machine busy?" >&2
echo "wheel: the demo ran in $took s" >&2
