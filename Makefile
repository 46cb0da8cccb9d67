# One command each: make demo, make test, make bench. Options go through ARGS, as in
#   make demo ARGS="--duration 20 --json"
# The environment is .venv, made from the lock files; stamps in it remember what has been installed.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
LOCKS := requirements
ARGS ?=
PIP := $(BIN)/python -m pip --disable-pip-version-check
UV ?= $(shell command -v uv || echo $(BIN)/uv)
# bench.lock holds everything; the others are the same versions, fewer: test.lock without what `make bench`
# and conformance compare with, demo.lock what it takes to install and run the project, runtime.lock what an image needs to run,
# build.lock what makes the wheel, lowest.lock the lowest versions of what the project names. site.lock adds to demo.lock
# what makes the pages of docs/ a site.
COMPILE := $(UV) pip compile --quiet --universal --python-version 3.10 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links

.PHONY: help demo test test-thorough test-nightly test-all test-lowest test-under-load check bench figures conformance chaos fuzz simulate docs lock clean wheel image image-test security-test seeded-faults site chart chart-package chart-test release
help: ## Show what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

demo: $(STAMPS)/demo ## Run the whole loop on this machine for a minute
	@$(BIN)/stream-learner demo $(ARGS)

test: check ## Check style, types, layers, and run all tests but the long ones (ARGS go to pytest; a folder of the package: its ring)
	@echo "== pytest" && $(BIN)/python -m tests.suite newcomer $(ARGS)

test-thorough: $(STAMPS)/test ## Run the long tests, those marked `thorough`
	@echo "== pytest, thorough" && $(BIN)/python -m tests.suite thorough --ignore=tests/image $(ARGS)

test-nightly: $(STAMPS)/test ## Run the longest tests, those marked `nightly`
	@echo "== pytest, nightly" && $(BIN)/python -m tests.suite nightly --ignore=tests/image $(ARGS)

test-all: test test-thorough test-nightly image-test ## Run every test there is (the image's need root and Buildah)

test-lowest: .build/lowest/stamp ## Run the tests that call libraries with the lowest versions that pyproject.toml allows
	@echo "== pytest, lowest versions" && NUMBA_CACHE_DIR=$(CURDIR)/.build/lowest/kernels \
		.build/lowest/bin/python -m tests.suite lowest $(ARGS)

test-under-load: $(STAMPS)/test ## Run what `make test` does three times in a row, beside four busy processes
	@$(BIN)/python -m tests.suite newcomer --load 4 --repeat 3 $(ARGS)

security-test: $(STAMPS)/test ## Check TLS, SASL and ACLs on a secured broker
	@$(BIN)/python -m pytest tests/security $(ARGS)

seeded-faults: $(STAMPS)/test ## Make one mistake after the other in a copy of the code: which tests notice? (ARGS="--list")
	@$(BIN)/python -m tools.seeded_faults $(ARGS)

check: $(STAMPS)/test ## Check style, types and layers only
	@echo "== ruff check" && $(BIN)/ruff check
	@echo "== ruff format" && $(BIN)/ruff format --check
	@echo "== mypy" && $(BIN)/mypy
	@echo "== import-linter" && $(BIN)/lint-imports

bench: $(STAMPS)/bench ## Measure, beside Vowpal Wabbit and River
	@$(BIN)/python -m benchmarks $(ARGS)

figures: $(STAMPS)/test ## Make the figures of the sources again, into docs/figures.md
	@$(BIN)/python -m proofs.figures $(ARGS)

conformance: $(STAMPS)/bench ## Hold this project, Vowpal Wabbit and River against the papers, and compare losses live
	@$(BIN)/python -m proofs.conformance $(ARGS)
	@$(BIN)/python -m tests.evaluate.vw

fuzz: $(STAMPS)/test ## Fuzz everything that reads bytes of others (ARGS="snapshot-records --inputs 1000000 --seed 1")
	@$(BIN)/python -m proofs.fuzz $(ARGS)

chaos: $(STAMPS)/test ## Kill, cut and fill everything on real brokers, and compare the bits (ARGS="--kills 300 --seed 1")
	@$(BIN)/python -m proofs.chaos $(ARGS)

simulate: $(STAMPS)/test ## Run random histories of the protocols in one process (ARGS="--histories 100000 --seed 1 --jobs 2")
	@$(BIN)/python -m proofs.simulation $(ARGS)

wheel: $(STAMPS)/demo ## Build a wheel for this Python and machine into dist/, with its kernels compiled
	@HATCH_BUILD_HOOK_ENABLE_CUSTOM=true $(PIP) wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

image: ## Build the image with Docker, Podman or Buildah (IMAGE=name:tag, BASE=image)
	@tools/build-image $(ARGS)

image-test: $(STAMPS)/test ## Build the image and run every command from it (needs root and Buildah)
	@$(BIN)/python -m pytest tests/image $(ARGS)

chart: $(STAMPS)/test ## Write what of the Helm chart is made from other files anew
	@$(BIN)/python -m tools.chart

chart-package: $(STAMPS)/test ## Pack the Helm chart into dist/ (SOURCE=address of the source code)
	@mkdir -p dist && $(BIN)/python -m tools.chart_package dist

chart-test: $(STAMPS)/test ## Check the Helm chart, and run what it renders
	@$(BIN)/python -m pytest tests/chart $(ARGS)

site: $(STAMPS)/site ## Make the pages of docs/ a site in .build/site, every link and anchor checked (Python 3.11 or later)
	@$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env -b html -c tools/site -d .build/doctrees . .build/site
	@$(BIN)/python -m tools.site .build/site

release: $(STAMPS)/test $(STAMPS)/site ## Make all that a release has in dist/, which is emptied, and check it (the image: as image-test)
	@rm -rf dist && $(MAKE) wheel chart-package site >&2
	@$(BIN)/python -m tools.release

docs: $(STAMPS)/test ## Write the generated pages of docs/ anew
	@$(BIN)/python -m tools.docs

lock: ## Resolve the lock files anew (needs uv)
	@command -v $(UV) >/dev/null || { echo "uv is missing: pip install uv" >&2; exit 1; }
	@$(COMPILE) $(ARGS) pyproject.toml --group build --group test --group bench -o $(LOCKS)/bench.lock
	@$(COMPILE) -c $(LOCKS)/bench.lock pyproject.toml --group build --group test -o $(LOCKS)/test.lock
	@$(COMPILE) -c $(LOCKS)/bench.lock pyproject.toml --group build -o $(LOCKS)/demo.lock
	@$(COMPILE) -c $(LOCKS)/bench.lock pyproject.toml --group build --group site -o $(LOCKS)/site.lock
	@$(COMPILE) -c $(LOCKS)/bench.lock --group build -o $(LOCKS)/build.lock
	@$(COMPILE) -c $(LOCKS)/bench.lock pyproject.toml --extra grpc --extra avro --extra protobuf -o $(LOCKS)/runtime.lock
	@$(COMPILE) --resolution lowest-direct pyproject.toml --extra grpc --extra avro --extra protobuf --extra evaluate -o $(LOCKS)/lowest.lock

clean: ## Remove the environment, caches and what was built; never a model's state
	@rm -rf $(VENV) .build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Everything below prints to stderr: stdout belongs to the command that was asked for.

$(BIN)/python:
	@tools/make-venv $(VENV) >&2

.build/lowest/stamp: $(LOCKS)/test.lock $(LOCKS)/lowest.lock pyproject.toml
	@tools/make-venv .build/lowest >&2
	@.build/lowest/bin/python -m pip install --quiet --require-hashes -r $(LOCKS)/test.lock >&2
	@.build/lowest/bin/python -m pip install --quiet --no-deps --require-hashes -r $(LOCKS)/lowest.lock >&2
	@.build/lowest/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable . >&2
	@touch $@

$(STAMPS)/%: $(LOCKS)/%.lock pyproject.toml | $(BIN)/python
	@echo "Setting up $(VENV) from $< …" >&2
	@$(PIP) install --quiet --require-hashes -r $< >&2
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable . >&2
	@mkdir -p $(@D) && touch $@
