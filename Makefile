# `make run` and `make test` set up .venv themselves, with any Python 3.11+ on the machine; PYTHON=... names one.
VENV := .venv
BIN := $(VENV)/bin
# Workers of `make test`. Two thirds of the tests' time is waiting, so that six workers keep two cores busy.
WORKERS := 6
# `make soak` also runs a pipeline on Spark; `make soak PIPELINE=` does not.
PIPELINE = --pipeline
# The tests start thousands of processes. Each one compiles its imports again where the environment forbids bytecode,
# which doubles the CPU time of a broker's start and triples the time of Spark's Python workers.
export PYTHONDONTWRITEBYTECODE :=
# After Ctrl-C (exit code 130) make ends by the signal too, without a message of its own.
OR_INTERRUPT = || { code=$$?; [ $$code -eq 130 ] && kill -INT $$PPID || exit $$code; }
install = @trap : INT; \
	{ python=$$($(SHELL) tools/find-python.sh $(PYTHON)) && "$$python" tools/environment.py $(1) $(PYTHON); } $(OR_INTERRUPT)

.DEFAULT_GOAL := help
.PHONY: help demo-environment dev-environment run test test-long test-kafka test-failed check format simulate scenarios chaos soak fuzz mutations corpus bench peers spark-versions docs site wheels sbom image deb clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo-environment:
	$(call install,run)

dev-environment:
	$(call install,dev)

run: demo-environment ## A year of real flights through a broker and a pipeline on Spark, checked against pandas
	@trap : INT; $(BIN)/python examples/flights.py $(OR_INTERRUPT)

# Each test belongs to exactly one of the next three, which tests/unit/test_suites.py proves: `jvm` decides first, then `long`.
test: dev-environment peers ## Run the tests, with real clients in several languages: 13 minutes on two cores
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not jvm and not long" $(PYTEST)

test-long: dev-environment peers ## Run the other tests of this code alone: long faults, Spark started often, wheels: 10 minutes
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not jvm and long" $(PYTEST)

test-kafka: dev-environment peers ## Run the tests that compare with stock Kafka, or that use its tools and clients: 12 minutes
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m jvm $(PYTEST)

test-failed: dev-environment peers ## Run the tests that failed last time once more, one at a time
	@$(BIN)/python -m pytest -n 1 --last-failed --last-failed-no-failures=none $(PYTEST)

check: dev-environment ## Lint, formatting, language, types, import directions: a minute
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python tools/check_language.py
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

metrics: dev-environment ## Files, lines, functions, nesting, parameters, attributes, circles of imports, broad excepts
	@$(BIN)/python tools/metrics.py

format: dev-environment ## Format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

simulate: dev-environment ## Run the simulations longer: make simulate SEEDS=1000; replay: SEED=417 WORLD=replication
ifdef SEED
	@PYTHONHASHSEED=0 OTTLA_SEEDS=$$(($(SEED) + 1)) $(BIN)/python -m pytest tests/simulation/test_$(WORLD).py -k "[$(SEED)]" -n 0
else
	@PYTHONHASHSEED=0 OTTLA_SEEDS=$(or $(SEEDS),200) $(BIN)/python -m pytest tests/simulation $(PYTEST)
endif

scenarios: dev-environment ## Write the effects of this code into tests/scenarios/*.txt, to be reviewed as a diff
	@$(BIN)/python -m tests.scenarios --write

chaos: dev-environment ## Kill, cut the power, harm files and live for long: make chaos MINUTES=30
	@OTTLA_CHAOS_MINUTES=$(or $(MINUTES),10) OTTLA_CHAOS_SEED=$(or $(SEED),$(shell date +%s)) OTTLA_POWER_CUTS=300 OTTLA_CORRUPT_BYTES=40 $(BIN)/python -m pytest tests/chaos tests/storage/test_power_cut.py tests/storage/test_topic_lifecycle.py tests/storage/test_corrupt_bytes.py tests/storage/test_failing_disk.py tests/connect/postgres/test_kills.py tests/connect/mysql/test_kills.py -rP $(PYTEST)

soak: dev-environment ## Hours of light load with kills: is anything lost, does anything grow? make soak MINUTES=120
	@$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),120) $(PIPELINE) $(OPTIONS)

fuzz: dev-environment ## Spoil requests of every API and version with new seeds, and draw many examples: make fuzz MINUTES=30
	@OTTLA_DRAWN_EXAMPLES=$(or $(EXAMPLES),1000) $(BIN)/python -m pytest -n $(WORKERS) -o timeout=1800 -m hypothesis tests/unit tests/storage $(PYTEST)
	@OTTLA_STREAM_EXAMPLES=$(or $(STREAM_EXAMPLES),30) $(BIN)/python -m pytest tests/streams/test_operations_random.py $(PYTEST)
	@OTTLA_FUZZ_MINUTES=$(or $(MINUTES),10) OTTLA_FUZZ_SEED=$(or $(SEED),$(shell date +%s)) $(BIN)/python -m pytest tests/fuzz -rP $(PYTEST)

mutations: dev-environment ## Take each protection out of a copy of the source: its test must fail. make mutations ONLY="clock"
	@$(BIN)/python -m tests.mutations $(ONLY)

corpus: dev-environment peers ## Record again what real clients send, for the fuzzers (tests/fuzz/corpus)
	@$(BIN)/python -m pytest -q -p tests.fuzz.recording -o filterwarnings=ignore --brokers=ottla tests/interop tests/clients $(PYTEST)

bench: dev-environment peers ## Race stock Kafka, 15 minutes, for the table in docs/performance.md; or some: make bench RACE=produce-1k
	@$(BIN)/python -m benchmarks $(or $(strip $(RACE) $(OPTIONS)),--json benchmarks/last.json --docs)

peers: dev-environment ## Fetch what the tests talk to: stock Apache Kafka, Kafka Streams and Spark's connector (Maven), kcat (Debian), kafkajs (npm), franz-go and sarama (Go), Confluent's clients (PyPI)
	@$(BIN)/python -m tests.peers fetch

spark-versions: dev-environment ## Test the adapter to private API of Spark with each supported pyspark, in environments of their own
	@$(BIN)/python tools/spark_versions.py $(ONLY)

docs: dev-environment ## Regenerate the generated tables in docs/ and the types of the clients' settings
	@$(BIN)/python -m tools.pages.protocol > docs/protocol.md
	@$(BIN)/python -m tools.pages.authorization > docs/authorization.md
	@$(BIN)/python -m tools.pages.configuration > docs/configuration.md
	@$(BIN)/python -m tests.unit.clients.test_typed_settings
	@$(BIN)/python tools/dependencies.py licenses > docs/licenses.md

site: dev-environment ## The documentation site, in build/site; a broken link is an error
	@$(BIN)/python -m tools.docsite

wheels: ## Wheels for CPython 3.11 to 3.14 on x86-64 and aarch64, in dist/, each of them checked and run; and a source archive
	@python=$$($(SHELL) tools/find-python.sh $(PYTHON)) && "$$python" tools/wheels/build.py $(ONLY)

sbom: dev-environment ## Software bill of materials (CycloneDX) of the base and the extras, in dist/
	@mkdir -p dist && $(BIN)/python tools/dependencies.py sbom > dist/ottla.cdx.json

image: ## Container image `ottla` of this checkout, with docker or the command in DOCKER
	@$(or $(DOCKER),docker) build -f deploy/container/Dockerfile -t ottla .

deb: ## Debian package of this checkout, in dist/
	@deploy/debian/build.sh dist .

clean: ## Remove everything that was built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
