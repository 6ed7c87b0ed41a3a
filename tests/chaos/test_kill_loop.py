"""Repeated kill -9 at random moments, with several real clients: no acknowledged record is lost or duplicated.

Short here; `make chaos MINUTES=30` kills for that long. Segments roll, logs are compacted and shortened by
retention, and metadata snapshots and checkpoints are written all the time, so that kills hit them. Some kills hit a
start or the formatting of a directory.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.clients import Admin, Consumer, TopicPartition
from ottla.clients.errors import ClientError
from tests.chaos.load import Confluent, ConfluentLoose, KafkaPython, Keyed, Load, Own, Reader
from tests.chaos.support import WAITING, HurriedProcess, create_topic
from tests.clients.support import collect_left_sockets
from tests.ottla_process import OttlaProcess

SECONDS = float(os.environ.get("OTTLA_CHAOS_MINUTES", "0.2")) * 60
PARTITIONS = 2
WAIT_S = 60.0
GROUP = "readers"
# Periodic tasks run as often as possible, and an index is full after a few batches.
BUSY = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 2,
    "log.initial.task.delay.ms": 20,
    "log.flush.offset.checkpoint.interval.ms": 100,
    "log.flush.start.offset.checkpoint.interval.ms": 100,
    "replica.high.watermark.checkpoint.interval.ms": 100,
    "log.retention.check.interval.ms": 100,
    "log.cleaner.backoff.ms": 50,
    "log.segment.delete.delay.ms": 200,
    "metadata.log.max.record.bytes.between.snapshots": 500,
    "metadata.max.retention.bytes": 20_000,
}
ROLLING = {"index.interval.bytes": 0, "segment.index.bytes": 240}
QUICKLY = {"index.interval.bytes": 0, "segment.index.bytes": 40}
TOPICS: dict[str, dict[str, object]] = {
    "confluent": QUICKLY,
    "loose": ROLLING,
    "python": ROLLING,
    "own": {},
    "compacted": {**QUICKLY, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01},
    "brief": {**QUICKLY, "retention.bytes": 20_000},
}


class Chaos:
    """One broker, its clients, and the number of its kills."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.directory = directory
        self.process = HurriedProcess(directory / "broker", BUSY)
        self.kills = self.kills_while_starting = self.kills_while_formatting = 0
        self.churned: set[str] = set()
        self.gone: set[str] = set()
        self.loads: list[Load] = []
        self.names = (f"churn-{i}" for i in itertools.count())

    def start_load(self) -> None:
        self.process.start()
        bootstrap = self.process.bootstrap
        with Admin(bootstrap) as admin:
            for topic, config in TOPICS.items():
                admin.create_topic(topic, partitions=PARTITIONS, config=config)
        self.loads = [
            Confluent(bootstrap, "confluent", PARTITIONS),
            ConfluentLoose(bootstrap, "loose", PARTITIONS),
            KafkaPython(bootstrap, "python", PARTITIONS),
            Own(bootstrap, "own", PARTITIONS),
            Keyed(bootstrap, "compacted", PARTITIONS),
            Own(bootstrap, "brief", PARTITIONS),
        ]
        self.reader = Reader(bootstrap, "own", GROUP)
        for thread in (*self.loads, self.reader):
            thread.start()

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.churn()
            if self.chance.random() < 0.7:
                self.wait_until_all_make_progress()
            time.sleep(self.chance.random() * 0.4)
            self.process.kill()
            self.kills += 1
            if self.chance.random() < 0.4:
                self.kill_during_start()
            if self.chance.random() < 0.1:
                self.kill_during_format()
            self.process.start()
            assert not self.failures(), self.failures()[:3]

    def wait_until_all_make_progress(self) -> None:
        """Wait for all clients, because those with the longest backoff would otherwise miss all kills."""
        before, deadline = [load.total() for load in self.loads], time.monotonic() + WAIT_S
        while any(load.total() == total for load, total in zip(self.loads, before, strict=True)):
            assert not self.failures(), self.failures()[:3]
            assert time.monotonic() < deadline, self.stall_report(before)
            time.sleep(0.005)

    def stall_report(self, before: list[int]) -> str:
        """A full report of clients without progress, because a rare stall is hard to reproduce."""
        self.process.assert_no_traceback()
        states = [f"{load.state()}; {then} before" for load, then in zip(self.loads, before, strict=True)]
        return "\n".join([f"Not all get on after {self.kills} kills:", *states, self.process.ask()])

    def churn(self) -> None:
        """Create a topic and delete another, so that metadata is written; remember the acknowledged changes."""
        with contextlib.suppress(ClientError), Admin(self.process.bootstrap, request_timeout_ms=3000) as admin:
            name = next(self.names)
            admin.create_topic(name)
            self.churned.add(name)
            if len(self.churned) > 5:
                gone = self.churned.pop()  # unknown until the response
                admin.delete_topic(gone)
                self.gone.add(gone)

    def kill_during_start(self) -> None:
        """Kill a start between its first instruction and its first response."""
        after_s = self.chance.random() * 0.8
        with (self.directory / "starting.log").open("ab") as log:
            process = subprocess.Popen(
                self.process.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.process.directory
            )
            time.sleep(after_s)
            process.kill()
            process.wait(WAIT_S)
        self.kills_while_starting += 1

    def kill_during_format(self) -> None:
        """Kill the first start in an empty directory: the next start must succeed."""
        self.kills_while_formatting += 1
        fresh = OttlaProcess(self.directory / f"fresh-{self.kills_while_formatting}", {})
        fresh.directory.mkdir()
        with (self.directory / "starting.log").open("ab") as log:
            process = subprocess.Popen(
                fresh.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=fresh.directory
            )
            time.sleep(0.1 + self.chance.random() * 0.4)
            process.kill()
            process.wait(WAIT_S)
        fresh.start()
        assert fresh.stop() == 0
        fresh.assert_no_traceback()

    def failures(self) -> list[str]:
        return [failure for thread in (*self.loads, self.reader) for failure in thread.failures]

    def finish(self) -> None:
        for thread in (*self.loads, self.reader):
            thread.finish()
        assert not self.failures(), self.failures()[:5]

    # -- checks ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        for load in self.loads:
            for partition in range(PARTITIONS):
                stored = read_all(self.process.bootstrap, load.topic, partition)
                self.check_partition(load, partition, stored)
        with Admin(self.process.bootstrap) as admin:
            topics = {topic.name for topic in admin.list_topics()}
            assert self.churned <= topics, "acknowledged topics exist"
            assert not self.gone & topics, "deleted topics do not exist"
            found = admin.list_group_offsets(GROUP)
        for partition, offset in self.reader.committed.items():
            assert found[TopicPartition("own", partition)].offset >= offset, "an acknowledged commit is lost"
        assert self.reader.committed, "the group made progress"
        self.check_it_was_busy()
        self.process.assert_no_traceback()
        if self.kills_while_starting:
            assert "Traceback" not in (self.directory / "starting.log").read_text()

    def check_it_was_busy(self) -> None:
        """Check that rolls, compaction, retention, snapshots and checkpoints happened at all between the kills."""
        data = self.process.data
        assert len(list(data.glob("confluent-0/*.log"))) > self.kills, "no segment rolled between two kills"
        bases = [int(path.stem) for path in data.glob("brief-0/*.log")]
        assert min(bases) > 0, "retention deleted no segment"
        cleaned = (data / "cleaner-offset-checkpoint").read_text().split()
        assert int(cleaned[-1]) > 0, "no log was compacted"
        points = (data / "recovery-point-offset-checkpoint").read_text().split()
        assert any(int(point) > 0 for point in points[4::3]), "no recovery points were written"
        assert list(data.glob("__cluster_metadata-0/*.checkpoint")), "no metadata snapshots were written"

    def check_partition(self, load: Load, partition: int, stored: dict[int, int]) -> None:
        where = f"{load.topic}-{partition}"
        acknowledged = load.acknowledged[partition]
        first = min(stored, default=0)
        for value, offset in acknowledged.items():
            if offset in stored:
                assert stored[offset] == value, f"{where}: {value} was acknowledged at offset {offset}"
            else:
                assert self.may_be_deleted(load, value, offset, first, stored), f"{where}: {value} at {offset} is lost"
        numbers = list(stored.values())
        if load.topic == "compacted":
            assert numbers == sorted(set(numbers)), f"{where}: once and in order"
            return
        if load.idempotent:
            assert numbers == list(range(numbers[0], load.sent[partition])), f"{where}: once and in order"
            assert list(stored) == list(range(first, first + len(stored))), f"{where}: offsets without gaps"
        elif load.topic == "python":
            firsts = list(dict.fromkeys(numbers))
            assert firsts == sorted(firsts), f"{where}: in order"

    @staticmethod
    def may_be_deleted(load: Load, value: int, offset: int, first: int, stored: dict[int, int]) -> bool:
        if load.topic == "brief":
            return offset < first
        if load.topic == "compacted":
            same = [at for at, other in stored.items() if other % Keyed.KEYS == value % Keyed.KEYS]
            return bool(same) and max(same) > offset
        return False


def read_all(bootstrap: str, topic: str, partition: int) -> dict[int, int]:
    """Map the offset of each record of a partition to its value; checks CRCs."""
    place = TopicPartition(topic, partition)
    stored: dict[int, int] = {}
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        end = consumer.end_offsets([place])[place]
        consumer.assign([place])
        consumer.seek_to_beginning([place])
        deadline = time.monotonic() + WAIT_S
        while consumer.position(place) < end:
            assert time.monotonic() < deadline, f"{place}: read to {consumer.position(place)} of {end}"
            for record in consumer.poll(timeout_s=0.5):
                stored[record.offset] = int(record.value[:12])
    return stored


@pytest.fixture
def chaos(tmp_path: Path) -> Iterator[Chaos]:
    chaos = Chaos(tmp_path, int(os.environ.get("OTTLA_CHAOS_SEED", "6")))
    yield chaos
    chaos.process.kill()
    chaos.loads.clear()


@pytest.fixture(scope="module", autouse=True)
def no_sockets_left_behind() -> Iterator[None]:
    """Collect leaked sockets, so that their warnings do not fail a later test with stricter filters."""
    yield
    collect_left_sockets()


# kafka-python leaves sockets to the garbage collector when a connection is refused.
@pytest.mark.long
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.timeout(SECONDS + 300)
def test_acknowledged_records_survive_any_number_of_kills(chaos: Chaos) -> None:
    chaos.start_load()
    chaos.run(SECONDS)
    chaos.finish()
    chaos.check()
    for load in chaos.loads:
        assert load.total() > 0, f"{load.name} never had a record acknowledged"
    print(
        f"{chaos.kills} kills, {chaos.kills_while_starting} more while starting, {chaos.kills_while_formatting} while"
        f" formatting; acknowledged: {', '.join(f'{load.topic} {load.total()}' for load in chaos.loads)}"
    )


def test_report_of_a_failure_says_what_waits(tmp_path: Path) -> None:
    with HurriedProcess(tmp_path / "broker") as process:
        create_topic(process, "orders")
        (line,) = [each for each in process.ask().splitlines() if each.startswith(WAITING)]
    assert json.loads(line.removeprefix(WAITING))["partitions"] == {"orders-0": [0, 0, 0]}
