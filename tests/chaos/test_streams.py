"""Exactly-once pipelines of `ottla stream run` while their processes and the broker are killed at random.

Four pipelines read one topic: one has no state, one counts and writes updates, one writes final windows, and one writes
invalid records to a topic. Killed are the driver, its JVM, Python's workers and their daemon, the processes that plan
batches, and the broker; workers also when they have written in an open transaction. A supervisor starts a program
again that ended; whatever else fails, the program restarts by itself.

In the end a reader with read_committed must see each number once and in order, each update of a count once, each window
once, and each invalid record once, with the headers of Kafka Connect; and the last counts and the windows equal the
input.

`make chaos` kills for `OTTLA_CHAOS_MINUTES`, chosen by `OTTLA_CHAOS_SEED`. `make test-long` runs the count alone, and
kills a worker, the broker, all processes, and then some of the next start.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.clients import Consumer, Producer, Record
from ottla.common.ids import TopicPartition
from ottla.spark.session import QUICK_JAVA
from tests.chaos.spark_program import (
    IN_TRANSACTION,
    STARTING,
    WAIT_S,
    Chaos,
    Numbers,
    Program,
    read,
    read_by_librdkafka,
    read_records,
    run_until,
    start_load,
)
from tests.ottla_process import OttlaProcess
from tests.spark.processes import DAEMON, DRIVER, JVM, PLANNER, SERVER, WORKER

SECONDS = float(os.environ.get("OTTLA_CHAOS_MINUTES", "0")) * 60
SEED = int(os.environ.get("OTTLA_CHAOS_SEED", "5"))
SOURCES, TARGETS = 3, 2
PROGRAM = Path(__file__).parent / "streams_pipelines.py"
NAMES = ("copied", "counted", "seconds", "checked") if SECONDS else ("counted",)
INVALID = "invalid"
ERRORS = "__connect.errors."
HEADERS = (
    "topic", "partition", "offset", "connector.name", "task.id", "stage", "class.name", "exception.class.name",
    "exception.message",
)  # fmt: skip
"""The headers of Kafka Connect's DeadLetterQueueReporter (KIP-298), except for the stack trace."""
FAULTS = {
    WORKER: 20, IN_TRANSACTION: 20, "paused worker": 10, DAEMON: 8, PLANNER: 8, SERVER: 3, "broker": 20,
    DRIVER: 3, JVM: 3, "all": 3, STARTING: 6,
}  # fmt: skip
FEW = ((WORKER, "broker"), (STARTING,))
"""Kills together, and then until the next batch."""
SETTINGS = {"transaction.state.log.num.partitions": 3, "offsets.topic.num.partitions": 3}
AHEAD_MS = 30 * 60_000
"""The last records are so much later that all windows before them end."""
# Short-lived JVMs.
SPARK = (
    "--driver-memory 768m "
    f"--driver-java-options '{QUICK_JAVA}' "
    "--conf spark.ui.enabled=false --conf spark.log.level=ERROR pyspark-shell"
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(SECONDS + 3 * WAIT_S), pytest.mark.xdist_group("spark")]


class Rows(Numbers):
    """Numbers in JSON; of ten, one is text in the JSON, and one is not JSON."""

    def key(self, value: int) -> bytes:
        return b"key %d" % value

    def body(self, value: int) -> bytes:
        form = {3: b"number %d %s", 7: b'{"number": "%d", "padding": "%s"}'}
        return form.get(value % 10, b'{"number": %d, "padding": "%s"}') % (value, b"." * 180)


def is_valid(value: int) -> bool:
    return value % 10 not in (3, 7)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[OttlaProcess]:
    broker = OttlaProcess(tmp_path / "broker", SETTINGS)
    broker.start()
    yield broker
    broker.stop()
    broker.assert_no_traceback()


@pytest.fixture
def program(process: OttlaProcess, tmp_path: Path) -> Iterator[Program]:
    home = tmp_path / "program"
    command = [
        sys.executable, "-m", "ottla.cli.main", "stream", "run", PROGRAM, *NAMES,
        "--bootstrap-server", process.bootstrap, "--checkpoints", home, "--master", "local[2]",
        "--latency", "0 ms",  # the more micro-batches, the more of them are interrupted
    ]  # fmt: skip
    running = Program(home, command, {name: f"{name}/{name}" for name in NAMES}, SOURCES)
    running.environment["PYSPARK_SUBMIT_ARGS"] = SPARK
    yield running
    running.kill()


def test_each_result_is_read_once_whatever_is_killed(process: OttlaProcess, program: Program) -> None:
    load = start_load(process.bootstrap, [*NAMES, INVALID], SOURCES, TARGETS, Rows)
    chaos = Chaos(program, process, FAULTS, SEED)
    program.ensure_running()
    chaos.wait_for_batches()
    if SECONDS:
        chaos.run(SECONDS)
    else:
        for faults in FEW:
            chaos.inflict_all(*faults)
    load.finish()
    assert not load.failures
    end_windows(process.bootstrap, load)
    run_until(program, lambda: is_done(process.bootstrap, program, load.sent))
    # A supervisor starts it again only where the driver or its JVM was killed.
    failed = re.search(
        r"Pipelines? '.*(?:failed|did not start)|^py4j\.protocol\.Py4JJavaError", program.log(), re.MULTILINE
    )
    assert failed is None, f"all of this can be retried: {program.log()[failed.start() :][:4000]}"
    for name in NAMES:
        CHECKS[name](process.bootstrap, load.sent)
    print(f"seed {SEED}: killed {dict(chaos.done)}, {program.starts} starts, {program.batches()} batches")


def end_windows(bootstrap: str, load: Numbers) -> None:
    """Send one more number to each partition, much later."""
    at = int(time.time() * 1000) + AHEAD_MS
    with Producer(bootstrap_servers=bootstrap) as producer:
        for partition in range(SOURCES):
            number = load.sent[partition]
            producer.send("source", load.body(number), key=load.key(number), partition=partition, timestamp_ms=at)
            load.sent[partition] += 1


def is_done(bootstrap: str, program: Program, sent: list[int]) -> bool:
    """Whether the pipelines have finished all records, and written all windows but the last."""
    if any(program.positions(name) != sent for name in NAMES):
        return False
    if "seconds" not in NAMES:
        return True
    written = sum(map(len, read(bootstrap, "seconds", TARGETS, "read_committed")))
    return written >= len(arrived(bootstrap)) - 1


def arrived(bootstrap: str) -> Counter[int]:
    """How many records of the input each second has."""
    places = [TopicPartition("source", number) for number in range(SOURCES)]
    found: Counter[int] = Counter()
    with Consumer({"auto.offset.reset": "earliest"}, bootstrap_servers=bootstrap) as reader:
        reader.assign(places)
        ends = reader.end_offsets(places)
        deadline = time.monotonic() + WAIT_S
        while any(reader.position(place) < end for place, end in ends.items()):
            assert time.monotonic() < deadline, "the end of the input cannot be read"
            for record in reader.poll(1.0):
                found[record.timestamp // 1000] += 1
    return found


# -- what the outputs must have ----------------------------------------------------------------------------------------


def outputs(bootstrap: str, name: str) -> list[list[str]]:
    """The values of each partition with read_committed, the same by two clients."""
    seen = read(bootstrap, name, TARGETS, "read_committed")
    assert read_by_librdkafka(bootstrap, name, TARGETS) == seen
    records = sum(map(len, seen))
    aborted = sum(map(len, read(bootstrap, name, TARGETS, "read_uncommitted"))) - records
    print(f"{name}: {records} records, and {aborted} that were aborted")
    return seen


def check_copied(bootstrap: str, sent: list[int]) -> None:
    check_numbers(bootstrap, "copied", [list(range(last)) for last in sent])


def check_numbers(bootstrap: str, name: str, expected: list[list[int]]) -> None:
    """Each number of each source once and in order: its partition is the key, so that one target has all."""
    found: dict[int, list[int]] = defaultdict(list)
    for values in outputs(bootstrap, name):
        for value in values:
            source, number = map(int, value.split())
            found[source].append(number)
    for source, numbers in enumerate(expected):
        doubled = [number for number, copies in Counter(found[source]).items() if copies > 1]
        assert not doubled, f"{len(doubled)} numbers of source {source} are doubled: {doubled[:10]}"
        lost = sorted(set(numbers) - set(found[source]))
        assert not lost, f"{len(lost)} numbers of source {source} are lost: {lost[:10]}"
        assert found[source] == numbers, f"source {source} is out of order"


def check_checked(bootstrap: str, sent: list[int]) -> None:
    """Each number of a valid record, and each invalid record as it was."""
    check_numbers(bootstrap, "checked", [list(filter(is_valid, range(last))) for last in sent])
    outputs(bootstrap, INVALID)
    given = {
        (record.partition, record.offset): record
        for records in read_records(bootstrap, "source", SOURCES, "read_committed")
        for record in records
    }
    expected = {place for place, record in given.items() if not is_valid(number_of(record))}
    assert len(expected) == sum(not is_valid(number) for last in sent for number in range(last))
    found: Counter[tuple[int, int]] = Counter()
    for records in read_records(bootstrap, INVALID, TARGETS, "read_committed"):
        for record in records:
            assert [name for name, _ in record.headers] == [ERRORS + name for name in HEADERS]
            about = {name.removeprefix(ERRORS): (value or b"").decode() for name, value in record.headers}
            place = int(about["partition"]), int(about["offset"])
            found[place] += 1
            origin = given[place]
            assert (record.key, record.value, record.timestamp) == (origin.key, origin.value, origin.timestamp)
            assert (about["topic"], about["connector.name"], about["stage"]) == ("source", "checked", "VALUE_CONVERTER")
            reason = "is not JSON" if number_of(record) % 10 == 3 else "the value's field number"
            assert reason in about["exception.message"]
    doubled = [place for place, copies in found.items() if copies > 1]
    assert not doubled, f"{len(doubled)} invalid records are doubled: {doubled[:10]}"
    lost = sorted(expected - found.keys())
    assert not lost, f"{len(lost)} invalid records are lost: {lost[:10]}"
    assert found.keys() == expected


def number_of(record: Record) -> int:
    return int((record.key or b"").split()[1])


def check_counted(bootstrap: str, sent: list[int]) -> None:
    """Each update of a key is greater than the previous one, and the last one is the number of its records."""
    last: dict[str, int] = {}
    for values in outputs(bootstrap, "counted"):
        for row in map(json.loads, values):
            before = last.get(row["key"], 0)
            assert row["count"] > before, f"key {row['key']}: {row['count']} comes after {before}"
            last[row["key"]] = row["count"]
    expected = Counter(f"{source}-{number % 20}" for source, numbers in enumerate(sent) for number in range(numbers))
    assert last == expected


def check_seconds(bootstrap: str, _sent: list[int]) -> None:
    """Each second once, with the number of its records."""
    rows = [json.loads(value) for values in outputs(bootstrap, "seconds") for value in values]
    expected = arrived(bootstrap)
    del expected[max(expected)]  # it has not ended
    starts = Counter(row["start"] for row in rows)
    assert [start for start, copies in starts.items() if copies > 1] == []
    assert {row["start"]: row["count"] for row in rows} == expected


CHECKS = {"copied": check_copied, "counted": check_counted, "seconds": check_seconds, "checked": check_checked}
