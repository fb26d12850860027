#!/usr/bin/env bash
# Resolves scripts/constraints.in into constraints.txt, in a throw-away venv, without installing anything.
#   scripts/constraints.sh           keeps today's pins and adds what is missing; fails where they cannot stay together
#   scripts/constraints.sh --fresh   resolves from nothing: the newest set that fits
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/venv"
keep=(-c constraints.txt)
if [ "${1:-}" = --fresh ] || [ ! -e constraints.txt ]; then keep=(); fi
"$work/venv/bin/python" -m pip install --quiet --dry-run --ignore-installed --prefer-binary \
    --report "$work/report.json" "${keep[@]}" -r scripts/constraints.in
"$work/venv/bin/python" scripts/constraints.py "$work/report.json" > "$work/constraints.txt"
mv "$work/constraints.txt" constraints.txt
echo "constraints.txt: $(grep -c == constraints.txt) packages" >&2
