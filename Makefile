# Every target works on a machine that has Python >= 3.11 and make, nothing else: the first one that runs makes
# .venv and installs the locked requirements into it. Another interpreter: `make test PYTHON=python3.13`.

PYTHON ?= python3
OBJECTS ?= 1000
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# How many test processes run side by side, each with servers of its own (`make test JOBS=4` where there are cores
# for it). A file stays with one of them, so that what its module sets up is set up once.
JOBS ?= 2
SIDE_BY_SIDE = --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help install demo dev test check format simulation crash bench bench-storage soak idle wheel lock clean histories

help:  ## Show the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; $(PYTHON) is `$(PYTHON) --version`. Try: make PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

install: $(STAMP)  ## Make .venv from the lock

demo: $(STAMP)  ## Three inputs through a real Temporal server and a real database
	$(BIN)/threads demo

dev: $(STAMP)  ## The same kept running, with the Web UI (Ctrl-C drains)
	$(BIN)/threads dev

test: $(STAMP)  ## Everything: format, lint, types, and all tiers of tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests $(SIDE_BY_SIDE)

check: $(STAMP)  ## The fast loop: format, lint, types, import layers, unit tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/unit

soak: $(STAMP)  ## 3 000 inputs on one thread with two followers (some minutes)
	SOAK_INPUTS=3000 $(BIN)/python -m pytest tests/workflow/test_field_cases.py -k long_thread

crash: $(STAMP)  ## kill -9 at every point of a pass, besides what make test does
	CRASH_POINTS=all $(BIN)/python -m pytest tests/crash/test_kill.py -k maintenance

STEPS ?= 100000

simulation: $(STAMP)  ## The core under a seeded scheduler (STEPS=100000 SEED=1); DEPTH=9 searches a small scope whole
	$(BIN)/python -m tests.simulation --steps $(STEPS) $(if $(SEED),--seed $(SEED)) $(if $(DEPTH),--depth $(DEPTH))

histories: $(STAMP)  ## Random histories of lanes and logs, fifty times as many as in test, on both databases (some minutes)
	HISTORIES=50 $(BIN)/python -m pytest tests/contract/test_lifecycle.py -o faulthandler_timeout=3600

idle: $(STAMP)  ## OBJECTS=1000 objects at rest: no event, no timer, no row, no work (the longer one: OBJECTS=10000)
	IDLE_OBJECTS=$(OBJECTS) $(BIN)/python -m pytest -s tests/workflow/test_idle.py -k cost_nothing

format: $(STAMP)  ## Format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

wheel: $(STAMP)  ## Build wheel and sdist into dist/
	$(BIN)/python -m hatchling build -d dist

bench: $(STAMP)  ## W1 to W5, beside plain Temporal where it is at hand (BENCH="--only w1,w2 --reps 1 --check")
	$(BIN)/python -m benchmarks.run $(BENCH)

bench-storage: $(STAMP)  ## What an operation of the store costs with 100 000 records or threads behind it (BENCH=--check)
	$(BIN)/python -m benchmarks.storage $(BENCH)

lock: $(STAMP)  ## Resolve anew: writes requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pip-tools
	$(BIN)/python .ci/lock.py > $(VENV)/lock.in
	$(BIN)/pip-compile --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras \
	  --no-header --no-annotate --no-emit-options --output-file requirements.txt $(VENV)/lock.in

clean:  ## Remove what the other targets made
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
