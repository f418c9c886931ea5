# Everything runs in .venv, made once from pyproject.toml. Needed on the machine: Python 3.11+ and Java 17+.
#   make play | demo | demo-json | demo-mysql | demo-join | demo-rate | check | test | test-long | test-versions |
#   test-servers | test-containers | test-guarded | lint | coverage | lock | bench | docs | site | broker | decoders |
#   soak | fuzz | mutants | clean | distclean
# (make help explains them)

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --disable-pip-version-check install
# What tests and linters need.
INSTALLED := $(VENV)/.installed
# What runs the project and its servers, and what runs its joins; where tests are installed, all of it is there.
TO_RUN := $(if $(wildcard $(INSTALLED)),$(INSTALLED),$(VENV)/.installed-to-run)
TO_JOIN := $(if $(wildcard $(INSTALLED)),$(INSTALLED),$(VENV)/.installed-to-join)
# pip unpacks and builds pyspark's archive of 456 MB without a line, a minute or longer.
WITH_CLOCK := with_clock() { (s=0; while sleep 5; do s=$$((s + 5)); echo "  $$s s: pip is at work"; done) & \
    clock=$$!; "$$@"; status=$$?; kill $$clock; return $$status; }; with_clock
# The project as pip copied it, where a user has installed it.
COPY = $(wildcard $(VENV)/lib/python3*/site-packages/watermark_source)
FUZZER := $(VENV)/.installed-soak

# Extra arguments: make test PYTEST_ARGS="-k idle"
PYTEST_ARGS ?=
# Four processes suit two cores, for many tests wait; each has its own Spark. 0: all in one process.
TEST_PROCESSES ?= 4
# Tests without servers wait now and then.
CHECK_PROCESSES ?= 4
BENCH_ARGS ?=
# Some of the versions: make test-versions VERSIONS_ARGS="--pythons 3.11 --sparks 4.2.1 --packages lowest"
VERSIONS_ARGS ?=
# Some of the servers: make test-servers SERVERS_ARGS="kafka-3.9.1 mariadb-10.11"
SERVERS_ARGS ?=
# Servers that are there: make demo-join DEMO_ARGS="--kafka 127.0.0.1:9092 --mysql mysql://root:root@127.0.0.1:3306"
DEMO_ARGS ?=
PURE_TESTS := tests/unit tests/property tests/transcripts tests/compat
PLANNER_TESTS := tests/unit/planning tests/property tests/transcripts tests/compat
# What differs with where servers run: how they start, and whether sources on executors reach them as they say.
CONTAINER_TESTS := tests/services tests/integration/test_kafka_group_commits.py \
    tests/integration/test_kafka_alignment.py tests/integration/test_mysql_stream.py \
    tests/integration/test_mysql_doctor.py tests/integration/test_group_faults.py \
    tests/integration/test_clickstream_example.py
# Long files first, each in one process: its servers and sessions are shared.
BY_FILE := -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder
# Chooses examples, kills and histories of make test-long. The report's header shows it: make test-long SEED=…
SEED ?= $(shell date +%s)
SEEDS = $(foreach each,kills day snapshot histories networks statements hypothesis,--$(each)-seed=$(1))
SOAK_MINUTES ?= 30
HISTORIES ?= 300
SNAPSHOT_REPLAYS ?= 200
JOIN_KILLS ?= 20
JOIN_USERS ?= 200000
ORDERING_KILLS ?= 20
ANNOUNCING_KILLS ?= 100
# What makes tests longer, for each seed that chooses: every option of tests/conftest.py that has a number.
LONG = --long --timeout=7200 $(SEEDS) --kills=30 --mysql-kills=30 --join-kills=$(JOIN_KILLS) \
    --join-users=$(JOIN_USERS) --ordering-kills=$(ORDERING_KILLS) --announcing-kills=$(ANNOUNCING_KILLS) \
    --group-kills=30 --group-restarts=20 --chain-kills=20 --chain-clicks=5000000 --answers-kills=30 \
    --late-rows-kills=30 --late-rows=10000000 \
    --reader-kills=30 --reader-replays=200 --histories=$(HISTORIES) --snapshot-replays=$(SNAPSHOT_REPLAYS) \
    --day-records=20000 --store-outage=60 --silences=20 --silent-seconds=60 --resumes=100 --wakes=50 \
    --broker-frozen=60 --broken-networks=500 --rows-of-both-forms=10000000 --partitions-added=50 --lost-logs=200 --json-documents=1000000 --statements=100000
FUZZ_MINUTES ?= 10
# Files or folders, and how many faults of each file.
MUTANTS_OF ?= watermark_source/planning
MUTANTS_EACH ?= 30

# Spark starts its Python workers with this interpreter.
export PYSPARK_PYTHON := $(CURDIR)/$(RUN)
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(RUN)
# Images for containers often set it, and then each of the hundreds of processes of a run compiles the project anew.
unexport PYTHONDONTWRITEBYTECODE
# NumPy's threads wait busily for a while in each of them.
export OPENBLAS_NUM_THREADS := 1
# Examples and servers run as they are here, also beside a copy that is installed.
USERS := play demo demo-json demo-mysql demo-join demo-rate demo-chain demo-complete broker decoders
$(USERS): export PYTHONPATH := $(CURDIR):$(CURDIR)/connectors

.DEFAULT_GOAL := help
.PHONY: help $(USERS) check pure test test-long test-versions test-servers test-containers test-guarded lint coverage \
    lock bench docs site soak fuzz mutants clean distclean python java prepared

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST)

play: java $(TO_RUN) ## a broker with a topic that keeps being written, until Ctrl-C; it prints the lines to try
	$(RUN) -m examples play $(DEMO_ARGS)

demo: java $(TO_RUN) ## a skewed topic, aggregated with and without this source, side by side
	$(RUN) -m examples skewed_topic $(DEMO_ARGS)

demo-json: java $(TO_RUN) ## orders whose event time is in their JSON, with withWatermark and with eventTimeColumn
	$(RUN) -m examples json_event_time $(DEMO_ARGS)

demo-mysql: java $(TO_RUN) ## MySQL tables copied by their stream while they are written to
	$(RUN) -m examples mysql_changes $(DEMO_ARGS)

demo-join: java $(TO_JOIN) ## clicks from Kafka, each joined with its user from MySQL
	$(RUN) -m examples clickstream_enrichment $(DEMO_ARGS)

demo-rate: java $(TO_JOIN) ## clicks of Spark's rate source, each joined with its user from MySQL
	$(RUN) -m examples rate_enrichment $(DEMO_ARGS)

demo-chain: java $(TO_RUN) ## three jobs in a row: watermarks that travel with the rows, beside a bound in each job
	$(RUN) -m examples job_chain $(DEMO_ARGS)

demo-complete: java $(TO_RUN) ## hours counted into files, read by batch jobs: once complete, and ten minutes later
	$(RUN) -m examples complete_hours $(DEMO_ARGS)

check: $(INSTALLED) ## lint, and what needs no server, side by side: two to three minutes
	$(MAKE) --no-print-directory --jobs=2 lint pure

pure: $(INSTALLED)
	$(RUN) -m pytest $(PURE_TESTS) --without-services -q -n $(CHECK_PROCESSES) --dist worksteal $(PYTEST_ARGS)

test: prepared ## all tests, against real servers: seventeen minutes on two cores
	$(RUN) -m pytest tests $(BY_FILE) --durations=10 $(PYTEST_ARGS)

test-long: prepared ## the same and what is longer by nature: more kills, histories, silences; an hour and more
	$(RUN) -m pytest tests $(BY_FILE) --durations=30 $(call LONG,$(SEED)) --hypothesis-profile=long --log-cli-level=INFO $(PYTEST_ARGS)

test-versions: prepared ## a core of the tests for each Python and PySpark, with the lowest and the newest packages
	$(PIP) --quiet --group versions
	$(RUN) -m tests.versions $(VERSIONS_ARGS)

test-servers: prepared ## a core of the tests on each release of Kafka, MySQL and MariaDB that can be had
	$(RUN) -m tests.versions --servers $(SERVERS_ARGS)

test-containers: java $(INSTALLED) ## the servers, docker-compose.yml and some queries, all in containers; needs an engine
	WATERMARK_SOURCE_SERVICES=container $(RUN) -m pytest $(CONTAINER_TESTS) --long --durations=10 $(PYTEST_ARGS)

test-guarded: prepared ## what make test leaves out while nothing that it guards changes, and a record that it passed
	$(RUN) -m tests.guarded

prepared: java $(INSTALLED)
	$(RUN) -m services.prepare

lint: $(INSTALLED) ## ruff, mypy, typos, and the workflow's own linter
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(VENV)/bin/typos --exclude $(VENV)
	$(VENV)/bin/zizmor --offline --no-progress --quiet .github

bench: java $(INSTALLED) ## Spark's built-in source and ours, side by side
	$(RUN) -m benchmarks $(BENCH_ARGS)

coverage: $(INSTALLED) ## how much of the pure packages tests without servers reach, branch by branch; fails below 97 %
	$(RUN) -m pytest $(PLANNER_TESTS) --without-services -q -n $(CHECK_PROCESSES) --dist worksteal --cov-branch \
	    --cov=watermark_source.planning --cov-report=term --cov-fail-under=97 $(PYTEST_ARGS)

LOCKED := uv pip compile pyproject.toml --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header \
    --quiet --upgrade
# With hashes what a release is built and published with. pip, which checks hashes of all or of none, has none for a
# checkout that is installed: .venv goes without.
lock: $(INSTALLED) ## requirements.lock: one version of each package, with which .venv is made
	$(PIP) --quiet --group lock
	$(RUN) -m $(LOCKED) --extra all --group dev --output-file requirements.lock
	$(RUN) -m $(LOCKED) --extra spark --extra compiler --extra kafka --extra mysql --group release --generate-hashes \
	    --constraint requirements.lock --output-file release/requirements.lock

docs: $(INSTALLED) ## the pages that are written from the code
	$(RUN) docs/generate.py

site: $(INSTALLED) ## the docs as a site with search, in build/site/site; a link that leads nowhere fails it
	$(RUN) -m docs.site

broker: java $(TO_RUN) ## a broker to play with, until Ctrl-C
	$(RUN) -m services.kafka

decoders: $(TO_RUN) ## machine code of the decoders, with which no query compiles: a minute and a half; needs cc
	$(RUN) -m release.decoders

soak: prepared ## property and integration tests as in test-long and more examples, over and over for SOAK_MINUTES (30)
	@end=$$(( $$(date +%s) + 60 * $(SOAK_MINUTES) )); \
	while [ "$$(date +%s)" -lt "$$end" ]; do \
	    $(RUN) -m pytest tests/property tests/integration tests/soak -x $(call LONG,$$(date +%s)) \
	        --hypothesis-profile=soak $(PYTEST_ARGS) || exit 1; \
	done

fuzz: $(FUZZER) ## each fuzz target for FUZZ_MINUTES (10), then what it found through compiled code
	@for target in $$($(RUN) -m tests.soak.fuzz.targets); do \
	    echo "fuzzing $$target"; \
	    $(RUN) -m tests.soak.fuzz $$target --minutes $(FUZZ_MINUTES) || exit 1; \
	done
	$(RUN) -m pytest tests/soak/test_fuzz.py --corpus=build/fuzz $(PYTEST_ARGS)

mutants: $(INSTALLED) ## MUTANTS_EACH (30) small faults in each file of MUTANTS_OF (the planner), and which no test notices
	$(RUN) -m tests.soak.mutants $(MUTANTS_OF) --each $(MUTANTS_EACH)

clean: ## remove what tools left behind; .venv and downloaded servers stay
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.* build dist *.egg-info
	rm -rf spark-warehouse metastore_db derby.log artifacts watermark_source/decoders-*.elf connectors/*/decoders-*.elf
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

distclean: clean ## clean, and .venv
	rm -rf $(VENV)

# A stamp is written last: an interrupted installation is taken up again, a finished one is reused.
$(INSTALLED): pyproject.toml requirements.lock | $(RUN)
	@echo "installing the project, tests and linters into $(VENV) (once; 1.7 GB in all)"
	$(PIP) 'pip>=25.1'
	@$(WITH_CLOCK) $(PIP) --editable '.[all]' --group dev --constraint requirements.lock
	$(RUN) -m release.bytecode  # every query starts half a second sooner
	@touch $@

# A copy, with the versions of packages that its user has, stays as it is.
$(VENV)/.installed-to-run: EXTRAS := spark,compiler,kafka,mysql,monitor
$(VENV)/.installed-to-join: EXTRAS := spark,compiler,kafka,mysql,monitor,operators
$(VENV)/.installed-to-run $(VENV)/.installed-to-join: pyproject.toml requirements.lock | $(RUN)
	@echo "$(if $(COPY),adding what the demos need to the project in $(VENV),installing the project into $(VENV) (once; 1 GB, without tests and linters))"
	$(PIP) 'pip>=25.1'
	@# Bytecode is written as it is used: seven seconds of a core and 60 MB less. pip's cache would have pyspark a second time.
	@$(WITH_CLOCK) $(PIP) --no-compile --no-cache-dir $(if $(COPY),'watermark-source[$(EXTRAS)]',--editable '.[$(EXTRAS)]' --constraint requirements.lock)
	$(if $(COPY),,$(RUN) -m release.bytecode)
	@touch $@

$(RUN): | python
	@echo "creating $(VENV) with $$($(PYTHON) --version)"; $(PYTHON) -m venv $(VENV) || { \
	    rm -rf $(VENV); \
	    echo "'$(PYTHON) -m venv' failed. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }

$(FUZZER): $(INSTALLED)
	$(PIP) --group soak
	@touch $@

# What the machine must bring is looked at before anything is downloaded.
python:
	@test -x $(RUN) || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "Python 3.11 or newer is needed; '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null || echo not there)." >&2; \
	    echo "Name another one: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 1; }

java: | python
	@"$$(test -x $(RUN) && echo $(RUN) || echo $(PYTHON))" -m services.java
