"""Exactly-once Spark queries while their processes and the broker are killed at random: each record is read once.

Two queries read the same topic. One writes to a topic directly, with tasks that share the partitions of the output; the
other has a state store, and writes in foreachBatch. Killed are the driver, its JVM, executors, Python's workers, the
processes that plan batches, and the broker. Some workers are cut off from Spark and continue later.

In the end a reader with read_committed must see each number once, and in order what one task has written.

Only in `make chaos`: `OTTLA_CHAOS_MINUTES` sets the duration, `OTTLA_CHAOS_SEED` the choice of kills, and
`OTTLA_TEST_BROKERS=kafka` starts stock Kafka instead, which is not killed. `make test-long` kills queries at chosen
points (tests/spark/test_sink_faults.py).
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.spark_program import (
    IN_TRANSACTION,
    WAIT_S,
    Chaos,
    Program,
    read,
    read_by_librdkafka,
    run_until,
    start_load,
)
from tests.conftest import KAFKA
from tests.ottla_process import OttlaProcess
from tests.peers.kafka import StockKafka
from tests.spark.processes import DAEMON, DRIVER, EXECUTOR, JVM, PLANNER, WORKER

SECONDS = float(os.environ.get("OTTLA_CHAOS_MINUTES", "0")) * 60
SEED = int(os.environ.get("OTTLA_CHAOS_SEED", "5"))
SOURCES, TARGETS = 3, 2
PROGRAM = Path(__file__).parent / "exactly_once_queries.py"
QUERIES = ("copied", "deduplicated")
FAULTS = {
    WORKER: 15, IN_TRANSACTION: 15, "paused worker": 10, EXECUTOR: 15, "worker cut off": 15, DAEMON: 5, PLANNER: 5,
    "broker": 15, DRIVER: 2, JVM: 2, "all": 2,
}  # fmt: skip
SETTINGS = {"transaction.state.log.num.partitions": 3, "offsets.topic.num.partitions": 3}

pytestmark = pytest.mark.skipif(not SECONDS, reason="only in `make chaos`: a Spark cluster takes too long")


@pytest.fixture
def process(tmp_path: Path) -> Iterator[OttlaProcess | StockKafka]:
    if os.environ.get("OTTLA_TEST_BROKERS") == KAFKA:
        with StockKafka(tmp_path / "kafka") as stock:
            yield stock
        return
    broker = OttlaProcess(tmp_path / "broker", SETTINGS)
    broker.start()
    yield broker
    broker.stop()
    broker.assert_no_traceback()


@pytest.fixture
def program(process: OttlaProcess | StockKafka, tmp_path: Path) -> Iterator[Program]:
    home = tmp_path / "program"
    command = [sys.executable, PROGRAM, process.bootstrap, home]
    running = Program(home, command, {name: name for name in QUERIES}, SOURCES)
    yield running
    running.kill()


@pytest.mark.timeout(SECONDS + 3 * WAIT_S)
def test_each_record_is_read_once_and_in_order_whatever_is_killed(
    process: OttlaProcess | StockKafka, program: Program
) -> None:
    load = start_load(process.bootstrap, QUERIES, SOURCES, TARGETS)
    chaos = Chaos(program, process, FAULTS, SEED)
    program.ensure_running()
    chaos.wait_for_batches()
    chaos.run(SECONDS)
    load.finish()
    assert not load.failures
    run_until(program, lambda: all(program.positions(name) == load.sent for name in QUERIES))
    assert "ExactlyOnceError" not in program.log(), "no batch was taken for a changed one"
    batches = program.batches()
    for name in QUERIES:
        seen = read(process.bootstrap, name, TARGETS, "read_committed")
        assert read_by_librdkafka(process.bootstrap, name, TARGETS) == seen
        check(name, seen, load.sent)
        records = sum(map(len, seen))
        aborted = sum(map(len, read(process.bootstrap, name, TARGETS, "read_uncommitted"))) - records
        print(f"{name}: {records} records in {batches[name]} batches, and {aborted} that were aborted")
    print(f"seed {SEED}: killed {dict(chaos.done)}, {program.starts} starts, {program.log().count('FAILED')} failures")


def check(name: str, seen: list[list[str]], sent: list[int]) -> None:
    """Check that the partitions have each number of the source once; if it was copied, in order."""
    for target, values in enumerate(seen):
        for source in range(SOURCES):
            numbers = [int(value.split()[1]) for value in values if int(value.split()[0]) == source]
            expected = list(range(target, sent[source], TARGETS))
            found = Counter(numbers)
            doubled = [number for number, copies in found.items() if copies > 1]
            lost = sorted(set(expected) - set(numbers))
            assert not doubled, f"{name}-{target}: {len(doubled)} numbers of source {source} doubled: {doubled[:10]}"
            assert not lost, f"{name}-{target}: {len(lost)} numbers of source {source} lost: {lost[:10]}"
            assert sorted(numbers) == expected
            # A shuffle has no order.
            assert numbers == expected or name == "deduplicated", f"{name}-{target}: source {source} is out of order"
