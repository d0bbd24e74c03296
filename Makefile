# The main commands are `make quickstart` and `make test`. Both run `make setup` first.
# tests/tiers.py defines the tiers of the tests, and what `make test` runs of each.
# Built tools and environments are cached outside the checkout, in SLIPWAY_CACHE or else in ~/.cache/slipway; Python
# packages in uv's own cache.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help setup quickstart test test-all test-image test-browser upstream fuzz e2e e2e-clean lint charts docs goldens forecast-proof simulate-proof bench site tables pins keys release clean

UV_VERSION := 0.13.8
# Write bytecode here once, so that later starts are fast.
export PYTHONDONTWRITEBYTECODE :=

help: ## Show this help
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

setup: .venv/.done ## Create .venv, with .venv/bin/launcher and the trainer

.venv/.done: pyproject.toml docker/constraints.txt .python-version
	@python=$$(for p in python3.12 python3; do \
	    $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null && echo $$p && break; done); \
	if [ -z "$$python" ]; then \
	    echo "Slipway needs Python 3.12 with venv; install it (Debian: python3.12-venv, macOS: brew install python@3.12) and run make again." >&2; \
	    exit 1; fi; \
	rm -rf .venv && $$python -m venv .venv
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@echo "Installing the trainer and its tools (2.1 GB, once)..." >&2
	@.venv/bin/uv pip install --quiet --python .venv/bin/python -c docker/constraints.txt -e '.[train,dev]'
	@.venv/bin/python -m trainer.deferred_imports
	@touch $@

quickstart: setup ## Train a small model on real text, on the CPU of this machine
	@.venv/bin/launcher submit -f values/quickstart.yaml --name quickstart-$$(date +%Y%m%d-%H%M%S)

# Two processes run the tests: a third one makes all of them slower on two cores. The first free process takes the next
# group of tests (tests/tiers.py).
PYTEST := .venv/bin/python -m pytest
PARALLEL := -n 2 --dist loadgroup --no-loadscope-reorder

test: setup ## Run the quick tests and a smoke test of each slow tier; FILE=… runs only that file
ifdef FILE
	@$(PYTEST) $(FILE)
else
	@.venv/bin/python -m tests.tools quick >/dev/null
	@$(PYTEST) $(PARALLEL) -m quick
endif

TIER := not (image or browser or e2e)
# tests/conftest.py prints the coverage, a line per package. COVERAGE= turns it off. ORDER="-p randomly" shuffles tests.
COVERAGE := --cov --cov-report=
ORDER :=

test-all: setup ## Run every test that needs no cluster of your own, and measure coverage; TIER=… selects tiers
	@.venv/bin/python -m tests.tools all >/dev/null
	@$(PYTEST) $(PARALLEL) -m "$(TIER)" --durations=20 $(COVERAGE) $(ORDER)

test-image: setup ## Build the image and train in its containers; needs root, buildah, debootstrap and runc
	@$(PYTEST) -m image

test-browser: setup ## Test the reports in Chromium
	@$(PYTEST) -m browser

upstream: setup ## Download the CRDs of Kueue, JobSet and KubeRay into the cache, for the tests to use too
	@.venv/bin/python -m tests.upstream.download

fuzz: setup ## Run the commands on N=… (10000) mutated values, objects and logs; SEED=… repeats a run, FUZZ=… selects
	@.venv/bin/python -m tests.fuzz $(FUZZ) $(if $(N),-n $(N)) $(if $(SEED),--seed $(SEED))

e2e: setup ## Run the end-to-end tests on the cluster of your KUBECONFIG
	@.venv/bin/python -m tests.e2e $(E2E)

e2e-clean: setup ## Remove what a killed e2e test has left in that cluster
	@.venv/bin/python -m tests.e2e clean $(E2E)

lint: setup ## Check style, types, layers, text and size, and the charts as chart-testing does
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports --no-logo --cache-dir .mypy_cache/importlinter
	@.venv/bin/python -m tests.charts.lint
	@.venv/bin/python -m tests.prose
	@.venv/bin/python -m tests.size

charts: setup ## Copy the library chart, and what else the charts share, into the charts that contain it
	@.venv/bin/python -m tests.charts.copies

docs: charts ## Generate the charts' README.md files and docs/reference
	@.venv/bin/python -m tests.charts.docs
	@.venv/bin/python -m tests.docs

goldens: charts ## Update the reviewed output: the renders of the presets, the help of the command
	@.venv/bin/python -m tests.charts.goldens
	@UPDATE_GOLDENS=1 .venv/bin/python -m pytest -q tests/cli/test_help.py

forecast-proof: setup ## Forecast published runs and compare with their measurements (an hour; can be interrupted)
	@.venv/bin/python -m tests.products.planner.forecast_proof $(RUNS)

simulate-proof: setup ## Compare the simulation of Kueue with recordings, and write docs/reference/simulate-proof.md
	@.venv/bin/python -m tests.products.planner.simulate_proof

bench: setup ## Measure the ratios of docs/explanation/benchmarks.md in one run
	@.venv/bin/python -m tests.bench

site: setup ## Build the pages as a site with search, into dist/site; OPEN=1 serves it on loopback
	@.venv/bin/python -m tests.docs.site dist/site $(if $(OPEN),--serve)

tables: setup ## Write tests/upstream/tables.json.gz from upstream's CRDs (make upstream)
	@.venv/bin/python -m tests.upstream

pins: setup ## Update the versions in docker/*.txt and of the Python tools in tests/tools/*.txt
	@docker/pin
	@for tool in checkov zensical; do out=tests/tools/$$tool.txt && sed -n '/^#/p' $$out >$$out.new && \
	    sed -n 's/^# from: //p' $$out | tr ' ' '\n' | .venv/bin/uv pip compile --quiet --python-version 3.12 --no-emit-index-url \
	    --no-emit-find-links --no-header --no-annotate - >>$$out.new && mv $$out.new $$out || exit 1; done

keys: setup ## Generate launcher/config/maxtext/{keys,models}.json from the installed MaxText (some minutes)
	@.venv/bin/python -m tests.maxtext_tables.keys

release: setup ## Build the files of the release VERSION=1.2.3 in dist/; the first time, write the version everywhere
	@.venv/bin/python -m tests.release $(VERSION)

clean: ## Remove the environment and the caches of the tools
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*
