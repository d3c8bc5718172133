# Everything a developer or CI types. `make help` lists it. Python 3.11 or newer is the only prerequisite:
# the environment is made from requirements.lock, Java comes from PyPI when the machine has none.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
SEEDS  ?= 1000
SAMPLE ?= 0
FIRST  ?= 1
SEED   ?= 1
MINUTES ?= 10
# Lanes within one process take all cores, test by test. Those that start servers go file by file, three at once:
# they wait more than they compute, and each has a ZooKeeper or a JVM of some 500 MB. What they leave of the
# processors the others take meanwhile, and yield it: `make test` runs both, and shows what servers' said at the end.
INSIDE  := tidy unit property contract crash simulation
# `browser` is for itself: it needs Chromium, and some minutes in which Dagster has the machine alone.
LANES   := $(INSIDE) dagster golden spark zookeeper browser
SERVERS := $(filter-out $(INSIDE) browser,$(LANES))
# Tests write many small files, and servers wait for the disk with each of theirs. In memory they wait for nothing, and
# the small ones take a sixth less processor time: some GB, where there is room for them, 10 GB are free, and files may be run.
SCRATCH  = $(shell df -Pk /dev/shm 2>/dev/null | cat - /proc/meminfo /proc/mounts 2>/dev/null | awk '\
  $$6 == "/dev/shm" {room = $$4} $$1 == "MemAvailable:" {free = $$2} $$2 == "/dev/shm" {runs = $$4 !~ /noexec/} \
  END {if (room > 4e6 && free > 1e7 && runs) print "/dev/shm"}')

export DAGSTER_DISABLE_TELEMETRY := yes
# What one process compiles, the others need not.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv demo dev test classes lint format crash simulate mutants machine-mutants fuzz soak soak-jvm soak-partitions quickstart coverage bench lock clean $(LANES:%=test-%)

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  make test-LANE  one lane of the tests: $(LANES)"

venv: $(READY) ## create .venv from requirements.lock

# uv when the machine has it (half a minute), else pip (two minutes); both insist on the hashes. PySpark comes as
# source, and its wheel is not compressed: that would take a quarter of a minute, for jars that are. pip would compile
# on one core, the packages' own tests, too, and uv leaves it to whoever imports first: here all cores do it.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) is missing or older than 3.11: install Python 3.11 or newer, or say make PYTHON=/path/to/it" >&2; exit 1; }
	@if command -v uv >/dev/null && uv --version >/dev/null 2>&1; then \
	  echo "making $(VENV) with uv: half a minute, if the packages come quickly" >&2; \
	  { test -x $(BIN)/python || uv venv --quiet --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" $(VENV); } && \
	  uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock && \
	  uv pip install --quiet --python $(BIN)/python --no-deps -e . ; \
	else \
	  echo "making $(VENV) with pip: some minutes (PySpark alone is 450 MB); with uv it takes half a minute" >&2; \
	  { test -x $(BIN)/pip || $(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
	    echo "$(PYTHON) cannot make virtual environments: install its venv module (Debian: apt install python3-venv) or uv" >&2; exit 1; }; } && \
	  { test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV); } && \
	  printf '[bdist_wheel]\ncompression = stored\n' >$(VENV)/stored.cfg && \
	  DIST_EXTRA_CONFIG="$(CURDIR)/$(VENV)/stored.cfg" $(BIN)/pip install --quiet --disable-pip-version-check \
	    --use-pep517 --no-compile --require-hashes -r requirements.lock && \
	  $(BIN)/pip install --quiet --disable-pip-version-check --no-deps -e . ; \
	fi
	@$(BIN)/python -m compileall -q -j 0 -x '/tests/' $(VENV)/lib rmt_pipeline >/dev/null 2>&1 || true
	@touch $@

demo: $(READY) ## a year of flights through Dagster onto two replicas, checked; ends what it started
	$(BIN)/python -m examples.flights

dev: $(READY) ## ZooKeeper, two servers, Spark and Dagster's UI, until Ctrl-C
	$(BIN)/rmt up

test: $(READY) ## everything that must hold before a change lands
	@$(MAKE) --no-print-directory classes & \
	trap 'kill $$! 2>/dev/null; wait; exit 130' INT TERM; \
	$(MAKE) --no-print-directory lint; linted=$$?; wait; exit $$linted
	@said=$$(mktemp); files=$$(TMPDIR="$(or $(SCRATCH),$${TMPDIR:-/tmp})" mktemp -d); \
	trap 'kill -INT $$! 2>/dev/null; wait; rm -rf "$$said" "$$files"' EXIT; trap 'exit 130' INT TERM; \
	export TMPDIR=$$files; \
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(SERVERS:%=tests/%) >"$$said" 2>&1 & \
	nice -n 10 $(BIN)/python -m pytest -n auto --dist worksteal $(INSIDE:%=tests/%); inside=$$?; \
	wait $$!; servers=$$?; cat "$$said"; \
	test $$inside = 0 || echo "Tests in $(INSIDE:%=tests/%) failed: see above" >&2; \
	test $$inside = 0 && test $$servers = 0

# While the linters take one core. Half of what a JVM of Spark costs to start is reading its classes: the first run
# keeps them in .venv. And in a fresh clone the tests are compiled once, not by each of the processes that run them.
classes: $(READY)
	@$(BIN)/python -m tests.support.spark_classes
	@ls tests/__pycache__/conftest.*pytest*.pyc >/dev/null 2>&1 || \
	  $(BIN)/python -m pytest --collect-only -q tests >/dev/null 2>&1 || true

$(LANES:%=test-%): test-%: $(READY)
	$(BIN)/python -m pytest tests/$*

lint: $(READY) ## ruff, mypy --strict, the import layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## let ruff format and fix what it can
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

crash: $(READY) ## every fault at every effect of every scenario, and pairs of them; `make test` takes some
	RMT_CRASH_EVERY=1 $(BIN)/python -m pytest -n auto --dist worksteal tests/crash

simulate: $(READY) ## SEEDS=n seeds of the protocol's simulation, from FIRST=k on
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --first $(FIRST)

mutants: $(READY) ## plant every bug of docs/proof.md: each must be noticed
	$(BIN)/python -m tests.mutants

machine-mutants: $(READY) ## a bug in every comparison, guard, effect, multi (SAMPLE=n SEED=k: some); nightly
	$(BIN)/python -m tests.mutants.machine --sample $(SAMPLE) --seed $(SEED)

fuzz: $(READY) ## MINUTES=n of any bytes for every decoder
	$(BIN)/python -m tests.property.fuzz --minutes $(MINUTES)

soak: $(READY) ## MINUTES=n of real servers and a real ZooKeeper that are killed while clients insert
	$(BIN)/python -m tests.soak --minutes $(MINUTES)

soak-jvm: $(READY) ## the same, each server with a JVM of its own: MINUTES=n of kills leave none
	$(BIN)/python -m tests.soak --minutes $(MINUTES) --own-jvm

soak-partitions: $(READY) ## MINUTES=n of inserts, DROP, REPLACE, MOVE and overwrites of the same partitions on two servers
	RMT_SECONDS=$$(( $(MINUTES) * 60 )) $(BIN)/python -m pytest -s tests/zookeeper/test_partitions_at_once.py

quickstart: $(READY) ## type the page of examples/quickstart into an empty directory and environment: minutes
	$(BIN)/python -m tests.quickstart

coverage: $(READY) ## the branches of protocol/ that unit and property tests take
	$(BIN)/coverage run --branch --source rmt_pipeline/protocol -m pytest -q tests/unit tests/property
	$(BIN)/coverage report --show-missing --skip-covered

bench: $(READY) ## the benchmarks; each prints its table
	@for file in $$(grep -l __main__ benchmarks/*.py); do \
	  module=benchmarks.$$(basename $$file .py); echo "== $$module"; \
	  $(BIN)/python -m $$module || exit 1; done

lock: ## write requirements.lock anew from pyproject.toml (needs uv)
	uv pip compile pyproject.toml --quiet --all-extras --universal --python-version 3.11 \
	  --generate-hashes --no-header --no-annotate --no-strip-extras --no-emit-index-url --upgrade --output-file requirements.lock

clean: ## remove caches, build output and the demo's data; .venv and your own tables stay
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage
	rm -rf spark-warehouse metastore_db derby.log rmt-data/demo
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
