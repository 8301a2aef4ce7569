# Needs Python 3.11 or later, git and make. Everything else goes into .venv, once;
# another interpreter: `make clean`, then for example `PYTHON=python3.12 make test`.

PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help demo test lint format bench clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/.installed ## the three distances on the paper's 31 states: checked, drawn, saved in demo/
	@$(BIN)/bisimetric demo --output demo

test: lint ## linters, types and all tests (a few minutes on two cores)
	$(BIN)/python -m pytest -n auto

lint: .venv/.installed-dev ## ruff and mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: .venv/.installed-dev ## let ruff rewrite the layout
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: .venv/.installed .venv-peers/.installed ## the speed ratios of benchmarks/README.md; BENCH=--write keeps them there
	$(BIN)/python benchmarks/run.py $(BENCH)

clean: ## remove everything that was made here, .venv included
	rm -rf .venv .venv-peers demo dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "bisimetric needs Python 3.11 or later, and '$(PYTHON)' is not one: install it (python.org), then PYTHON=python3.12 make ..." >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; \
	  echo "'$(PYTHON) -m venv' failed: install the venv module of that Python (Debian, Ubuntu: apt install python3-venv)." >&2; exit 1; }

.venv/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

.venv-peers/.installed: benchmarks/peers.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --requirement benchmarks/peers.txt
	@touch $@

.venv/.installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch .venv/.installed $@
