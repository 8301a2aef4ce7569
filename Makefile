# Needs Python 3.11 or later, git and make. Everything else goes into .venv, once;
# another interpreter: `make clean`, then for example `PYTHON=python3.12 make test`.

PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-minimum test-sb3 test-browser test-js explorer mutate lint format docs bench peers dist clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/.installed ## compute, check and plot three distances on the paper's 31 states; saved in demo/
	@$(BIN)/bisimetric demo --output demo

test: lint ## linters, type checks and all tests that take seconds (some minutes on two cores)
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow" --ignore=tests/browser

test-slow: .venv/.installed-dev ## the tests marked slow
	EXAMPLES=1 $(BIN)/python -m pytest -n auto --dist worksteal -m slow --ignore=tests/browser

# Numba's cache is valid for one version. Matplotlib 3.10 calls functions that Pyparsing has renamed.
test-minimum: .venv-minimum/.installed ## the tests of `make test` with the oldest versions that pyproject.toml allows, in .venv-minimum
	EXAMPLES=1 NUMBA_CACHE_DIR=$(CURDIR)/.venv-minimum/numba .venv-minimum/bin/python -m pytest -n auto --dist worksteal -m "not slow" --ignore=tests/browser --ignore=tools/docs \
	  -W ignore::pyparsing.warnings.PyparsingDeprecationWarning

test-sb3: .venv-sb3/.installed ## agents of Stable-Baselines3, PyTorch and gymnax, and losses of PyTorch, in .venv-sb3
	.venv-sb3/bin/python -m pytest atari/tests/test_stable_baselines.py atari/tests/test_hostile_zips.py atari/tests/test_own_agents.py tests/losses/test_torch.py tests/losses/test_agents.py tests/benchmarks/test_minatar_losses.py

test-browser: .venv/.installed-dev ## the explorer page in Chromium, which is installed if possible
	@for name in chromium chromium-browser google-chrome google-chrome-stable; do \
	    command -v $$name > /dev/null && exit 0; done; \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; \
	  then apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core > /dev/null; \
	  else echo "no Chromium is installed: install it (Debian, Ubuntu: apt install chromium), then make test-browser." >&2; exit 1; fi
	$(BIN)/python -m pytest -n auto --dist worksteal tests/browser

test-js: node_modules/.installed ## the explorer's scripts: eslint, prettier, type checks, tests, and that the bundles are up to date (needs Node 20)
	npm run --silent lint
	npm run --silent types
	npm test --silent
	npm run --silent check

explorer: node_modules/.installed ## bundle the explorer's scripts into src/bisimetric/explorer/built (needs Node 20)
	npm run --silent build

mutate: .venv/.installed-dev ## mutation testing of the modules that prove bounds; MUTATE="--line exact/_request.py:60"
	$(BIN)/python tools/mutate.py $(MUTATE)

lint: .venv/.installed-dev ## ruff, codespell and mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/codespell src atari tests tools benchmarks examples docs *.md
	$(BIN)/mypy

format: .venv/.installed-dev ## format the code with ruff and, where Node is installed, prettier
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	@if command -v npm > /dev/null; then $(MAKE) --no-print-directory node_modules/.installed && npm run --silent format; fi

docs: .venv/.installed-dev ## build the documentation site into site/; DOCS=--draft leaves out what runs for minutes
	$(BIN)/python tools/docs/build.py $(DOCS)

bench: .venv/.installed ## times and speed ratios; BENCH=--write updates docs/reports/benchmarks.md
	$(BIN)/python benchmarks/run.py $(BENCH)

peers: .venv/.installed .venv-peers/.installed ## comparison with other programs; PEERS="--published FOLDER --write" updates docs/reports/peers.md
	$(BIN)/python benchmarks/peers.py $(PEERS)

dist: .venv-dist/.installed ## build sdist and wheel of both distributions into dist/, check them, and run the installed wheels
	rm -rf dist
	.venv-dist/bin/python -m build --outdir dist
	.venv-dist/bin/python -m build --outdir dist atari
	.venv-dist/bin/python -m twine check --strict dist/*
	$(PYTHON) tools/check_distributions.py dist $(if $(TAG),--tag $(TAG))

clean: ## remove everything that was generated, .venv included
	rm -rf .venv .venv-dist .venv-minimum .venv-peers .venv-sb3 node_modules build demo dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "bisimetric needs Python 3.11 or later, and '$(PYTHON)' is not one: install it (python.org), then PYTHON=python3.12 make ..." >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; \
	  echo "'$(PYTHON) -m venv' failed: install the venv module of that Python (Debian, Ubuntu: apt install python3-venv)." >&2; exit 1; }

.venv/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

node_modules/.installed: package.json package-lock.json
	@node -e 'process.exit(process.versions.node.split(".")[0] < 20 ? 1 : 0)' 2> /dev/null || { \
	  echo "the explorer's scripts are bundled and tested with Node 20 or later, which is not installed: install it (nodejs.org). Nothing else needs it." >&2; exit 1; }
	npm ci --silent
	@touch $@

.venv-peers/.installed: benchmarks/peers.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --requirement benchmarks/peers.txt
	@touch $@

.venv-dist/.installed: tools/dist.txt
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python -m pip install --quiet --requirement tools/dist.txt
	@touch $@

# On Linux, PyTorch installs gigabytes of GPU libraries unless pip finds a CPU build, "2.13.0+cpu",
# which satisfies the requirement and has precedence. gymnax is here and not in the extra `test`: it
# excludes the newest Gymnasium, and needs Flax; it imports six without requiring it.
.venv-sb3/.installed: pyproject.toml atari/pyproject.toml atari/tests/sb3.txt
	$(PYTHON) -m venv .venv-sb3
	.venv-sb3/bin/python -m pip install --quiet --requirement atari/tests/sb3.txt --editable . --editable atari
	@touch $@

.venv-minimum/.installed: pyproject.toml atari/pyproject.toml tools/minimum_versions.py
	$(PYTHON) -m venv .venv-minimum
	$(PYTHON) tools/minimum_versions.py > .venv-minimum/versions.txt
	.venv-minimum/bin/python -m pip install --quiet --requirement .venv-minimum/versions.txt --editable '.[test]' --editable atari
	@touch $@

.venv/.installed-dev: pyproject.toml atari/pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]' --editable atari
	@touch .venv/.installed $@
