# The one door: everything this project does on a machine is a target here, and CI opens the same one.
#
# Rules of the file: no step by hand before or after a target; a target needs Python, make and the network for the
# first install, and uses a Rust compiler if there is one; a second run installs nothing unless a lock file, the
# build or the decoder's source has changed.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
UV     ?= uv

# Damaged inputs that `make fuzz` tries of each kind, and what `make bench` hands to each benchmark.
N    ?= 20000
ARGS ?=

# At night a second run decodes in plain Python. With a change tests/decode compares both decoders, and tests/golden reads
# all that brokers wrote with each of them.
ALL_DECODING := $(wildcard tests/prepare tests/scan tests/session tests/cli tests/golden tests/test_examples.py tests/test_arrow*.py tests/test_fuzz.py)

# Whole test files side by side, more than processors, for those with brokers mostly wait. Each of the processes has
# brokers of its own, a GB of memory for both versions.
# In the order that tests/conftest.py gives: xdist's own begins with the files of most tests, which are not the slow ones.
# A process that ends before its tests do ends the run: xdist would give its file to other processes, nine times.
JOBS ?= 5
SIDE_BY_SIDE := -n $(JOBS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0

# The tests start hundreds of Python processes. Each would compile the whole product anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv install-project install-packages demo broker test test-fast test-all soak mutations test-broker test-spark check check-style check-types check-arrows check-rules check-tests bench fuzz sanitize docs pictures cover lock modules dist sbom clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ---------------------------------------------------------------------------------------------------- environments
# One .venv for both: what `make test` installs contains what `make demo` needs.

BROKEN_OFF := $(VENV)/broken-off.stamp
ifneq ($(wildcard $(BROKEN_OFF)),)
.PHONY: $(VENV)/made.stamp
endif

$(VENV)/made.stamp:
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
	  echo "No $(PYTHON) here. Install Python 3.11 or later, or name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) is `$(PYTHON) -V 2>&1`; 3.11 or later is needed: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@$(PYTHON) -m venv $(if $(wildcard $(BROKEN_OFF)),--clear) $(VENV)
	@touch $@

BUILD_INPUTS := pyproject.toml requirements/build.lock $(wildcard $(addprefix remote_fetch/decode/,native/Cargo.toml native/Cargo.lock native/src/*.rs))

# $(1): the lock file. Hashes are checked; the project itself is built with what a lock file brought, so nothing else
# is downloaded. The file is complete, and pip is not to resolve it: pip 23 takes the newest version of a package that is
# required with an extra (`coverage[toml]`), finds it in no lock file, and ends.
# The project, with the native decoder, is built while the packages are downloaded and unpacked: each leaves a processor idle.
# Two targets of make, and no `&` of the shell: Ctrl-C would not end such a build.
define install
	@echo "Installing $(1) into $(VENV)$(2)"
	@$(PIP) install --no-compile --require-hashes --no-deps --requirement requirements/build.lock
	@$(MAKE) --no-print-directory -j 2 install-project install-packages PACKAGES=$(1)
endef

# An installer would compile the modules one by one. compileall uses all processors, and passes over what no Python can compile.
# It leaves out a quarter, of which tests and checks import next to nothing: mypy, for one, runs as the libraries beside its
# modules. The first import compiles such a module, without a warning.
SELDOM_IMPORTED := /(debugpy|hive_metastore|mypyc?|pygments/lexers|pyspark/(examples|ml|mllib|pandas)|sqlalchemy/testing|tests?|SelfTest)/

install-project:
	@$(PIP) install --no-compile --no-build-isolation --no-deps --editable .

# For dev.lock uv takes 12 s of a processor, and pip 78. uv does not read pip's configuration: if it gets no packages, for
# example because only pip knows the mirror, pip installs them, with the same hashes. pip does it too if it cannot get uv.
# If Ctrl-C or a kill ends uv, some packages lack files, and neither uv nor pip notices. Then the next make clears .venv.
install-packages:
	@$(PIP) install --no-compile --only-binary :all: --require-hashes --no-deps --requirement requirements/installer.lock || true
	@touch $(BROKEN_OFF); \
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-build-isolation --require-hashes --no-deps --requirement $(PACKAGES); \
	code=$$?; if [ $$code -gt 128 ]; then exit $$code; fi; rm $(BROKEN_OFF); test $$code = 0 || { \
	  echo "uv cannot install $(PACKAGES): pip does it" >&2; \
	  $(PIP) install --no-compile --require-hashes --no-deps --requirement $(PACKAGES); }
	@$(BIN)/python -W ignore -m compileall -qq -j 0 -x '$(SELDOM_IMPORTED)' $(VENV)/lib || true

# The demo decodes in plain Python: the native decoder takes a minute of CPU time to build.
$(VENV)/demo.stamp: export CARGO := not-for-the-demo
$(VENV)/demo.stamp: $(VENV)/made.stamp requirements/runtime.lock $(BUILD_INPUTS)
	$(call install,requirements/runtime.lock)
	@touch $@

$(VENV)/dev.stamp: export DIST_EXTRA_CONFIG := $(CURDIR)/requirements/build.cfg
$(VENV)/dev.stamp: $(VENV)/made.stamp requirements/dev.lock $(BUILD_INPUTS)
	$(call install,requirements/dev.lock,: this takes some minutes)
	@touch $@ $(VENV)/demo.stamp

venv: $(VENV)/dev.stamp  ## make .venv with everything a developer needs

# ---------------------------------------------------------------------------------------------------------- use it

demo: $(VENV)/demo.stamp  ## read a small bucket that a real broker wrote; needs Python 3.11+ only
	@$(BIN)/remote-fetch demo

broker: $(VENV)/dev.stamp  ## a real broker with tiered storage to try things on (VERSION=3.9.2); needs Java and Maven
	@$(BIN)/python -m tests.rig $(if $(VERSION),--version $(VERSION))

# -------------------------------------------------------------------------------------------------------- prove it

# Three sizes. What the markers mean is in pyproject.toml.
# - FAST=1: no broker, no Spark, no server of a store, nothing slow.
# - a change: all but what is marked `scheduled`. Random searches try a fifth of their examples (tests/searches.py).
# - the schedule (.github/workflows/ci.yml): all, and the random searches at length.
# A few tests that fail beside all others are run once more, alone (tests/second_run.py).
FIFTH   := REMOTE_FETCH_EXAMPLES=$(or $(REMOTE_FETCH_EXAMPLES),0.2)

ifdef FAST
test: test-fast  ## with FAST=1 the tests that need no Java and take a minute and a half; else check, then what proves a change
else
test: check
	$(FIFTH) $(BIN)/python -m pytest $(SIDE_BY_SIDE) --second-run 3 -m "not scheduled"
endif

test-fast: $(VENV)/dev.stamp
	$(FIFTH) $(BIN)/python -m pytest -n 3 --dist worksteal \
	  -m "not scheduled and not java and not servers and not slow"

test-all: check  ## check, then all tests, with the native decoder and in plain Python
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) --second-run 3
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) --second-run 3 -p tools.interpreted_decoder $(ALL_DECODING)

# SECONDS_EACH: of the random workload on each version of Kafka; a group has a 32nd of it.
SECONDS_EACH ?= 120
RESTARTS     ?= 20
SCHEDULES    ?= 100

soak: $(VENV)/dev.stamp  ## the random searches at length (SECONDS_EACH=120 RESTARTS=20 SCHEDULES=100)
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m soak \
	  --workload-seconds $(SECONDS_EACH) --stream-restarts $(RESTARTS) --fault-schedules $(SCHEDULES)

mutations: $(VENV)/dev.stamp  ## change the product in many small ways, one by one: the tests have to notice each
	$(BIN)/python -m tools.mutations $(ARGS)

# What reads the tier, in test files that every Kafka version since 3.6 can be asked.
BROKER_TESTS := $(patsubst %,tests/rig/test_%.py,\
  rig read fallbacks consumer_faults metadata_topic broker_channel cluster_descriptions messages cat kcat)

test-broker: $(VENV)/dev.stamp  ## the tests of reading on another Kafka version (VERSION=4.0.0); needs Java and Maven
	@test -n "$(VERSION)" || { echo "Name a version of Kafka: make test-broker VERSION=4.0.0" >&2; exit 1; }
	RIG_KAFKA=$(VERSION) $(BIN)/python -m pytest $(SIDE_BY_SIDE) $(BROKER_TESTS)

# Streams need PySpark 4.2; PySpark 4.1 leaves sockets open.
SPARK ?= 4.1.4
IS_BEFORE_STREAMS := $(filter 4.1.%,$(SPARK))
SPARK_TESTS := $(wildcard tests/spark/test_*.py tests/rig/test_spark*.py)
STREAM_TESTS := $(if $(IS_BEFORE_STREAMS),tests/spark/test_streaming.py tests/rig/test_spark_streaming.py)
LEFT_OPEN := $(if $(IS_BEFORE_STREAMS),-W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning)

test-spark: $(VENV)/dev.stamp  ## the tests of Spark with another PySpark (SPARK=4.1.4); 400 MB are downloaded once
	@test -d .rig/pyspark-$(SPARK) || $(PIP) install --no-deps --target .rig/pyspark-$(SPARK) pyspark==$(SPARK)
	PYTHONPATH=.rig/pyspark-$(SPARK) $(BIN)/python -m pytest $(LEFT_OPEN) $(filter-out $(STREAM_TESTS),$(SPARK_TESTS))

# Two at a time, the longest first. check-tests is here because it compiles the test files: without it, each of the
# processes that run them does that for itself.
CHECKS := check-types check-style check-rules check-arrows check-tests docs

check: $(VENV)/dev.stamp  ## ruff, mypy, import contracts, house rules, imports of all tests, documentation
	@$(MAKE) --no-print-directory -j 2 $(CHECKS)

check-style: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check-types: $(VENV)/dev.stamp
	$(BIN)/mypy

check-arrows: $(VENV)/dev.stamp
	$(BIN)/lint-imports --no-cache

check-rules: $(VENV)/dev.stamp
	$(BIN)/python -m tools.house_rules

check-tests: $(VENV)/dev.stamp
	@echo "$(BIN)/python -m pytest --collect-only"
	@found="$$($(BIN)/python -m pytest --collect-only --quiet --quiet 2>&1)" || { echo "$$found"; exit 1; }

cover: $(VENV)/dev.stamp  ## branch coverage, in plain Python so that all lines count
	$(BIN)/python -m pytest -p tools.interpreted_decoder --cov --cov-report=term-missing

bench: $(VENV)/dev.stamp  ## measure beside named peers; ARGS=--write puts the tables into docs/performance/
	@for script in tests/benchmarks/bench_*.py; do \
	  $(BIN)/python -m tests.benchmarks.$$(basename $$script .py) $(ARGS) || exit 1; done

fuzz: $(VENV)/dev.stamp  ## N=20000 damaged inputs for every parser of foreign bytes (ARGS="--seed 7 --target batch")
	$(BIN)/python -m tools.fuzz --mutations $(N) $(ARGS)

sanitize: $(VENV)/dev.stamp  ## the native decoder under AddressSanitizer: its tests, and a short fuzz; needs cargo and gcc
	$(BIN)/python -m tools.sanitize $(ARGS)

docs: $(VENV)/dev.stamp  ## build the documentation into site/, every snippet executed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # without the theme's own advertisement
	$(BIN)/python -m tools.site_check site

pictures: $(VENV)/dev.stamp  ## render the pictures of the documentation from their text (ARGS=--all renders each again)
	$(BIN)/python -m tools.pictures $(ARGS)

# --------------------------------------------------------------------------------------------------------- keep it

LOCK := pip compile --quiet --universal --python-version 3.11 --generate-hashes --custom-compile-command 'make lock'

# The extras of the images: what the command line and the service can use, without the libraries of tables and Spark.
CONTAINER_EXTRAS := avro azure broker-api cli encryption gcs http protobuf registry s3 service

lock:  ## write all lock files from pyproject.toml; needs uv (UPGRADE=--upgrade takes new versions)
	@command -v $(UV) >/dev/null 2>&1 || { echo "No $(UV) here: pip install uv, or make UV=/path/to/uv lock" >&2; exit 1; }
	$(UV) $(LOCK) $(UPGRADE) --extra cli pyproject.toml requirements/build.in -o requirements/runtime.lock
	$(UV) $(LOCK) $(UPGRADE) --extra dev -c requirements/runtime.lock pyproject.toml requirements/build.in -o requirements/dev.lock
	$(UV) $(LOCK) $(UPGRADE) -c requirements/runtime.lock requirements/build.in -o requirements/build.lock
	$(UV) $(LOCK) $(UPGRADE) requirements/installer.in -o requirements/installer.lock
	$(UV) $(LOCK) $(UPGRADE) $(addprefix --extra ,$(CONTAINER_EXTRAS)) -c requirements/dev.lock pyproject.toml -o requirements/container.lock

dist: $(VENV)/dev.stamp  ## the wheel of this machine and the source distribution, in dist/; needs cargo and a C compiler
	$(PIP) wheel --no-build-isolation --no-deps --wheel-dir dist .
	$(BIN)/python -c 'from setuptools import build_meta; build_meta.build_sdist("dist")' > /dev/null

sbom: $(VENV)/dev.stamp  ## write the bill of materials (CycloneDX) of a release to dist/
	$(BIN)/python -m tools.sbom dist/remote-fetch.cdx.json

modules:  ## write docs/modules.md, the list of all modules, from their docstrings
	$(PYTHON) -m tools.module_list

clean:  ## remove all that was made here, .venv and the brokers' jars (.rig) too
	rm -rf remote_fetch/decode/native/target
	rm -rf $(VENV) .rig build dist site htmlcov .coverage *.egg-info
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .grimp_cache
	find remote_fetch/decode -name '*.so' -delete
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
