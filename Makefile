# `make setup` makes .venv with all that work here needs; the other targets call it.
VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin

.PHONY: setup demo test long huge coverage mutation lint check bench clean

setup: $(VENV)/ready

$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $@

test: setup
	$(BIN)/python -m pytest -q -n auto -m "not long and not huge"

demo: setup
	$(BIN)/python examples/demo.py

long: setup
	$(BIN)/python -m pytest -q -n auto -m long

huge: setup
	$(BIN)/python -m pytest -q -n auto -m huge

coverage: setup
	$(BIN)/python -m pytest -q -n auto tests/core -m "not long and not huge" --cov=latchguard.core --cov-branch --cov-fail-under=100

mutation: setup
	$(BIN)/python -m tests.mutation

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint coverage test long

bench: setup
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
