# What CI runs and what people run are the same targets. `make` alone lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
# Hashes, all platforms, and neither the index's address nor paths of this machine.
COMPILE_ONLY := $(BIN)/uv pip compile --quiet --no-config --universal \
	--python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url
COMPILE := $(COMPILE_ONLY) pyproject.toml
# Just what is locked, which is all there is to it: left to look for dependencies, pip stumbles over what is
# newer than the lock.
INSTALL := -m pip install -qq --disable-pip-version-check --require-hashes --no-deps
# The clients of Queen MQ that drive our server in tests: one package in two versions, each in a folder.
QUEEN_VERSIONS := 0.15.0 2.6.0
QUEEN_LOCKS := $(QUEEN_VERSIONS:%=tests/queen/clients/%.lock.txt)
# Other queues for Python, which the benchmark of workers runs beside ours: in environments of their own, and
# arq apart, since it needs an older client of Redis than the rest.
RIVALS := $(VENV)
RIVAL_SETS := rivals rivals-arq
RIVAL_STAMPS := $(RIVAL_SETS:%=$(RIVALS)/%/.stamp)
# Tests wait more than they compute. A file stays in one process, for the sake of its servers; the folders go in
# the order of the alphabet, so that the quick files of tests/unit are last, and none is left over for one process.
# Those of Spark come after, in two processes with a session each, which takes every core by itself.
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder

# A soak takes its time.
ENDLESS := --timeout 0 -o faulthandler_timeout=0
ifndef SEED
SEED := $(shell $(PYTHON) -c 'import random; print(random.randrange(1 << 32))')
endif

.DEFAULT_GOAL := help
.PHONY: help setup run demo test soak stress check lint bench bench-log bench-store bench-server bench-failover bench-queues bench-queen bench-work bench-spark bench-deliver bench-scrape race-queen race-spark race-servers race-relay lock format docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with the locked dependencies (nothing to do when up to date)

$(STAMP): pyproject.toml requirements.lock.txt requirements-spark.lock.txt $(QUEEN_LOCKS)
	@tools/system-packages $(PYTHON)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Forebay needs Python 3.11 or newer; set PYTHON=..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(INSTALL) -r requirements.lock.txt
	@$(BIN)/python $(INSTALL) -r requirements-spark.lock.txt
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps \
		--no-build-isolation --editable .
	@for version in $(QUEEN_VERSIONS); do \
		$(BIN)/python $(INSTALL) --upgrade \
			--target $(VENV)/queen/$$version -r tests/queen/clients/$$version.lock.txt || exit 1; \
	done
	@touch $@

run: setup ## serve queues on http://127.0.0.1:6632, data in forebay-data; with FLOWS=file also flows
	$(BIN)/forebay up $(if $(FLOWS),--flows $(FLOWS))

demo: setup ## server, flows and some traffic, to look at
	$(BIN)/python examples/flows/demo.py

test: lint ## everything: linters, types, layers and all tests
	$(BIN)/python -m pytest $(PARALLEL) -m "not spark"
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m spark

soak: setup ## explore: state machines with many examples, then chaos, by a new seed (or SEED=...)
	@echo "make soak SEED=$(SEED)"
	HYPOTHESIS_PROFILE=soak FOREBAY_SEED=$(SEED) $(BIN)/python -m pytest $(PARALLEL) $(ENDLESS) \
		--hypothesis-seed=$(SEED) -m "not spark" -k "hypothesis or machine" tests/unit tests/conformance
	FOREBAY_SEED=$(SEED) $(BIN)/python -m pytest $(PARALLEL) $(ENDLESS) -m "chaos and not spark"
	$(BIN)/python -m tests.chaos.servers_race --rounds 5 --seconds 60 --seed $(SEED)
	$(BIN)/python -m tests.chaos.relay_race --rounds 100 --seed $(SEED)

stress: setup ## all tests, three times, on a machine that others keep busy and that stalls for seconds
	$(BIN)/python -m tests.stress --rounds 3

check: lint ## the quick part of `make test`, about a minute
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow" tests/unit tests/tidy

lint: setup ## ruff, mypy --strict and the import layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: bench-log bench-store bench-server bench-failover bench-queues bench-queen bench-work bench-spark bench-deliver bench-scrape ## all benchmarks

bench-log: setup ## benchmark of the logs
	$(BIN)/python -m benchmarks.log

bench-store: setup ## benchmark of the store
	$(BIN)/python -m benchmarks.store

bench-server: setup ## benchmark of the server over HTTP
	$(BIN)/python -m benchmarks.server

bench-failover: setup ## benchmark of pushes and replay while the database is away
	$(BIN)/python -m benchmarks.failover

bench-queues: setup ## benchmark of a queue among 50,000 idle ones, and of 200,000 partitions
	$(BIN)/python -m benchmarks.queues

bench-queen: setup ## benchmark of a Queen MQ client (beside a Queen server, with QUEEN_URL=...)
	$(BIN)/python -m benchmarks.queen

bench-work: setup $(RIVAL_STAMPS) ## benchmark of workers, beside celery, dramatiq, rq, taskiq, arq and others
	RIVALS=$(RIVALS) $(BIN)/python -m benchmarks.work

$(RIVAL_STAMPS): $(RIVALS)/%/.stamp: benchmarks/work/%.lock.txt | $(STAMP)
	@test -x $(RIVALS)/$*/bin/python || $(BIN)/python -m venv $(RIVALS)/$*
	@$(RIVALS)/$*/bin/python $(INSTALL) -r $<
	@touch $@

bench-spark: setup ## benchmark of sources, sinks and bulk replay on Spark, beside Spark's own JDBC
	$(BIN)/python -m benchmarks.spark

bench-deliver: setup ## benchmark of deliveries: FastQueue and the relay, beside persist-queue and aiohttp
	$(BIN)/python -m benchmarks.deliver

bench-scrape: setup ## benchmark of metrics: scrapes and refreshes beside 1,000 and 5,000,000 messages
	$(BIN)/python -m benchmarks.scrape

race-queen: setup ## 16 producers and 16 consumers of Queen MQ for minutes: none lost, none twice, in order
	$(BIN)/python -m tests.queen.race --seconds 60

race-spark: setup ## kill -9 of Spark's drivers, workers and executors, 50 times: every message once, in order
	$(BIN)/python -m tests.chaos.spark_race --rounds 50
	$(BIN)/python -m tests.chaos.spark_race --rounds 50 --cluster

race-servers: setup ## two servers under all faults of database, Valkey and themselves: 60 rounds of a minute
	$(BIN)/python -m tests.chaos.servers_race --rounds 60 --seconds 60 --seed $(SEED)

race-relay: setup ## kill -9 of a relay under load, 100 times: nothing acknowledged is lost
	$(BIN)/python -m tests.chaos.relay_race --rounds 100 --seed $(SEED)

lock: setup ## resolve the dependencies anew, into the lock files
	$(COMPILE) --upgrade --extra postgres --extra valkey --extra tarantool --extra dev \
		--output-file requirements.lock.txt
	$(COMPILE) --upgrade --extra spark --constraint requirements.lock.txt \
		--output-file requirements-spark.lock.txt
	for version in $(QUEEN_VERSIONS); do \
		$(COMPILE_ONLY) tests/queen/clients/$$version.in --upgrade \
			--output-file tests/queen/clients/$$version.lock.txt || exit 1; \
	done
	for set in $(RIVAL_SETS); do \
		$(COMPILE_ONLY) benchmarks/work/$$set.in --upgrade \
			--output-file benchmarks/work/$$set.lock.txt || exit 1; \
	done

format: setup ## format the code and apply safe fixes
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: setup ## write the reference pages and the synchronous client from the code, and check all documents
	$(BIN)/python tools/faces.py
	$(BIN)/python tools/reference.py
	$(BIN)/python tools/dashboard.py
	$(BIN)/python -m pytest tests/tidy -k "link or make or reference"

clean: ## remove the environment and all caches
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
