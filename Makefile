# `make run` and `make test` do all their own set-up on a fresh machine with Python 3.11+.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help run test check format simulate chaos fuzz mutations corpus bench peers docs clean

help: ## Show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml setup.py constraints.txt $(wildcard src/ottla/*/*.pxd src/ottla/*/_[a-z]*.py src/ottla/clients/producer/*ccumulator.p*)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Ottla and its tools into $(VENV) ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

run: $(STAMP) ## A year of real flights through a broker and a pipeline on Spark, checked against pandas
	@$(BIN)/python examples/flights.py

test: $(STAMP) peers ## Run the whole test suite, with real clients
	@$(BIN)/python -m pytest -n 2 --dist loadgroup $(PYTEST)

check: $(STAMP) ## Lint, formatting, types, import directions
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: $(STAMP) ## Format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

simulate: $(STAMP) ## Run the deterministic simulations longer: make simulate SEEDS=1000
	@OTTLA_SEEDS=$(or $(SEEDS),200) $(BIN)/python -m pytest tests/simulation $(PYTEST)

chaos: $(STAMP) ## Kill, cut the power, harm files and live for long: make chaos MINUTES=30
	@OTTLA_CHAOS_MINUTES=$(or $(MINUTES),10) OTTLA_CHAOS_SEED=$(or $(SEED),$(shell date +%s)) OTTLA_POWER_CUTS=300 OTTLA_HARMED_BYTES=40 $(BIN)/python -m pytest tests/chaos tests/storage/test_power_cut.py tests/storage/test_come_and_go.py tests/storage/test_harmed_bytes.py tests/storage/test_failing_disk.py -rP $(PYTEST)

fuzz: $(STAMP) ## Spoil requests of every API and version with new seeds: make fuzz MINUTES=30
	@OTTLA_FUZZ_MINUTES=$(or $(MINUTES),10) OTTLA_FUZZ_SEED=$(or $(SEED),$(shell date +%s)) $(BIN)/python -m pytest tests/fuzz -rP $(PYTEST)

mutations: $(STAMP) ## Take each protection out of a copy of the source: its test must fail. make mutations ONLY="clock"
	@$(BIN)/python -m tests.mutations $(ONLY)

corpus: $(STAMP) peers ## Record again what real clients send, for the fuzzers (tests/fuzz/corpus)
	@$(BIN)/python -m pytest -q -p tests.fuzz.recording -o filterwarnings=ignore --brokers=ottla tests/interop tests/clients $(PYTEST)

bench: $(STAMP) peers ## Race stock Kafka, 15 minutes, for the table in docs/performance.md; or some: make bench RACE=produce-1k
	@$(BIN)/python -m benchmarks $(or $(strip $(RACE) $(OPTIONS)),--json benchmarks/last.json --docs)

peers: $(STAMP) ## Fetch what the tests talk to: stock Apache Kafka and Spark's connector (Maven), kcat (Debian), kafkajs (npm)
	@$(BIN)/python -m tests.peers fetch

docs: $(STAMP) ## Regenerate the generated tables in docs/
	@$(BIN)/python -m ottla.cli.protocol_table > docs/protocol.md
	@$(BIN)/python -m ottla.config.table > docs/configuration.md

clean: ## Remove everything that was built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
