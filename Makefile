# The two commands of the README are `make demo` and `make test`. Both make .venv with pip and install what they need;
# a stamp in .venv lets the next call start at once. ARGS passes flags on: make demo ARGS=--once, make test ARGS="-k queue".
# Nothing here is needed to use the package: `pip install` of the wheel is enough.

PYTHON ?= python3
ARGS ?=
VENV := .venv
PY := $(VENV)/bin/python
# pip's own progress on a terminal, nothing in a pipe; stdout is left to the command that was asked for
INSTALL = quiet=--quiet; [ ! -t 2 ] || quiet=; $(PY) -m pip install $$quiet --disable-pip-version-check -c constraints.txt

# what a shell has set for another Python must not leak into this one
unexport PYTHONPATH PYTHONHOME

# an upgraded or removed Python leaves a venv that points to nothing: make it anew
ifeq ($(wildcard $(PY)),)
$(shell rm -f $(VENV)/.made $(VENV)/.runs $(VENV)/.docs $(VENV)/.tests)
endif

.NOTPARALLEL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help demo test test-slow lint format wheel wheel-test pythons docs reference figures constraints clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

demo: $(VENV)/.runs ## serve the embedded model, load it, compare it with the naive way (needs neither torch nor onnx)
	@$(PY) -m onbudget demo $(ARGS)

test: $(VENV)/.tests lint ## lint, types, unit and quick end-to-end tests (installs torch; ARGS go to pytest)
	@$(PY) scripts/system_tools.py
	$(PY) -m pytest -m "not slow" $(ARGS)

test-slow: $(VENV)/.tests ## the tests that take minutes
	$(PY) -m pytest -m slow $(ARGS)

lint: $(VENV)/.tests ## ruff and mypy, as CI runs them
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: $(VENV)/.tests ## let ruff mend what it can
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

wheel: $(VENV)/.made ## build dist/onbudget-….whl
	rm -rf dist
	$(PY) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

wheel-test: wheel ## install the wheel in an empty venv away from here and run its demo
	bash scripts/wheel_test.sh

pythons: wheel ## install the wheel in an empty venv of each Python ≥ 3.11 of this machine, and serve with it
	$(PY) scripts/pythons.py dist/onbudget-*.whl

docs: $(VENV)/.docs ## build the documentation site in docs/_build; a dead link or a lost page fails
	rm -rf docs/_build
	$(PY) -m sphinx --fail-on-warning --keep-going --quiet --builder html --conf-dir docs . docs/_build
	@echo "docs/_build/index.html"

reference: $(VENV)/.tests ## write docs/reference anew from the code
	$(PY) scripts/make_reference.py

figures: $(VENV)/.runs ## write tables and plots anew from benchmarks/results
	$(PY) benchmarks/render.py

constraints: ## resolve constraints.txt anew (minutes; asks the package index)
	bash scripts/constraints.sh

clean: ## remove .venv and everything built or cached
	rm -rf $(VENV) dist build docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests examples scripts -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { echo "onbudget needs Python 3.11 or newer, and there is no $(PYTHON) here; name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "onbudget needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Name another: make PYTHON=python3.11" >&2; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) -V)" >&2
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.runs: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "installing onbudget and what it needs to serve (once)" >&2
	@$(INSTALL) -e . >&2
	@touch $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "installing what builds the documentation (once)" >&2
	@$(INSTALL) -e '.[docs]' >&2
	@touch $(VENV)/.runs $@

$(VENV)/.tests: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "installing onbudget, its tests' tools and torch (once, minutes)" >&2
	@$(INSTALL) -e '.[dev]' torch >&2
	@touch $(VENV)/.runs $(VENV)/.docs $@
