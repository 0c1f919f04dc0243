# Every target sets up what it needs in .venv, once for each change of its inputs.
#
#   make run       a development cluster: name server, three brokers, one checked round trip
#   make test      the whole suite: style, types, tests
#   make interop   the suite against Apache's own clients and brokers (Maven, Java, Go, Node)
#   make simulate  SEEDS (10,000) runs of a simulated group with every fault
#   make mutations proof that the simulation sees what it must: broken twins of our functions
#   make bench     the benchmarks
#   make bench-peer     ours beside Apache's brokers, the same loads in turns (Maven, Java)
#   make bench-growth   what a message costs as topics, connections and stored bytes grow
#   make crash-states   100,000 states that a power cut may leave of a store, each recovered
#   make soak           MINUTES (30) of our clients under load while their cluster is hurt
#   make power-cuts     200 power cuts of a whole group under load, nothing acknowledged is lost
#   make faults         RUNS (1) of FAULTS (all) with brokers on hosts of their own (root, Linux)

.DEFAULT_GOAL := help
.PHONY: help install run test interop simulate mutations bench bench-peer bench-growth lint clean \
	crash-states faults power-cuts soak

BIN := .venv/bin
INSTALLED := .venv/.installed
STAMP := .venv/.ready
SOURCES := $(shell find ledgermq -name '*.py')
# What the kernel is compiled from, where there is a C compiler.
KERNEL := setup.py $(shell find ledgermq -name '*.pxd') \
	$(wildcard $(patsubst %.pxd,%.py,$(shell find ledgermq -name '*.pxd')))
# What `make interop` starts besides Python. Java 17 runs the clients, Maven and npm fetch them.
INTEROP_TOOLS := java mvn go node npm
# First seed of `make simulate`, and how many.
SEED ?= 0
SEEDS ?= 10000

help:
	@sed -n 's/^#   //p' Makefile

install: $(STAMP)

$(BIN)/python:
	@python=; \
	for candidate in python3 python3.13 python3.12 python3.11; do \
	  if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    python=$$candidate; break; \
	  fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "LedgerMQ needs Python 3.11 or newer; found: $$(python3 --version 2>&1)." >&2; exit 1; \
	fi; \
	if ! $$python -m venv .venv; then \
	  rm -rf .venv; \
	  echo "$$python cannot make a virtual environment; on Debian: apt install python3-venv." >&2; \
	  exit 1; \
	fi

$(INSTALLED): $(BIN)/python pyproject.toml constraints.txt $(KERNEL)
	@echo "installing into .venv (about a minute, once)"
	@PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip install --quiet \
	  --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(INSTALLED)

# Bytecode, as pip makes it of a package: where Python is told not to write any
# (PYTHONDONTWRITEBYTECODE), each process of a cluster would compile all sources of an editable
# installation anew, which is a third of its start.
$(STAMP): $(INSTALLED) $(SOURCES)
	@$(BIN)/python -m compileall -q ledgermq
	@touch $(STAMP)

run: $(STAMP)
	@exec $(BIN)/ledgermq up --round-trip

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict ledgermq

# Where the kernel was compiled, what rests on it is tested uncompiled first.
PURE_TESTS := tests/property tests/unit/protocol tests/unit/dledger tests/unit/commitlog \
	tests/unit/broker tests/e2e/test_broker_group.py
test: lint
	LEDGERMQ_PURE=1 $(BIN)/python -m pytest -q $(PURE_TESTS)
	$(BIN)/python -m pytest tests --ignore=tests/interop

interop: $(STAMP)
	@for tool in $(INTEROP_TOOLS); do \
	  command -v $$tool >/dev/null || missing="$$missing $$tool"; \
	done; \
	if [ -n "$$missing" ]; then \
	  echo "make interop runs Apache's own clients and needs, besides Python:$$missing" >&2; exit 1; \
	fi
	$(BIN)/python -m pytest tests/interop -s $(INTEROP_OPTIONS)

STATES := 100000
crash-states: $(STAMP)
	@$(BIN)/python -m tests.fault.crash_states --states $(STATES)

CUTS := 200
power-cuts: $(STAMP)
	@$(BIN)/python -m tests.fault.power_cuts --cuts $(CUTS)
	@$(BIN)/python -m tests.fault.power_cuts --cuts $(CUTS) --flush ASYNC_FLUSH

# Names of faults with commas between; `python -m tests.fault.hosts.run --help` lists them.
FAULTS := all
RUNS := 1
faults: $(STAMP)
	@$(BIN)/python -m tests.fault.hosts.run --runs $(RUNS) --seed $(SEED) --faults $(FAULTS)

MINUTES := 30
soak: $(STAMP)
	@$(BIN)/python -m tests.fault.soak --minutes $(MINUTES)

simulate: $(STAMP)
	@$(BIN)/ledgermq simulate --seed $(SEED) --seeds $(SEEDS) --processes 2

# Twins replace functions by their names, which compiled loops do not look up.
mutations: $(STAMP)
	@LEDGERMQ_PURE=1 $(BIN)/python -m tests.simulation.mutations

bench: $(STAMP)
	@$(BIN)/python -m bench

# Apache's broker and clients are started beside ours. Both targets renew docs/performance.md with its
# pictures; `python -m bench.peer` and `bench.growth` without --page and --json only print.
bench-peer: $(STAMP)
	@$(BIN)/python -m bench.peer --page --json docs/charts/peer.json $(PEER_OPTIONS)
	@$(BIN)/python -m bench.charts

GIB := 20
bench-growth: $(STAMP)
	@$(BIN)/python -m bench.growth --page --json docs/charts/growth.json --gib $(GIB) $(GROWTH_OPTIONS)
	@$(BIN)/python -m bench.charts

clean:
	rm -rf .venv build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find ledgermq -name '*.so' -delete
	find ledgermq tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
