"""kill -9 at bad moments, and SIGTERM under load: a restart always succeeds and loses no acknowledged change."""

from __future__ import annotations

import contextlib
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic

from tests.chaos.support import WAIT_S, Writer, admin, create_topic, read_numbers, value_of
from tests.clients.wire import Connection, ConnectionClosed, batch, produce, record
from tests.ottla_process import ForkedOttla, OttlaProcess

SMALLEST_SEGMENT = 1_048_576
TOPIC = "moments"


@pytest.fixture
def process(tmp_path: Path) -> Iterator[OttlaProcess]:
    broker = ForkedOttla(tmp_path, {"log.cleaner.backoff.ms": 0, "log.initial.task.delay.ms": 0})
    broker.start()
    yield broker
    broker.stop()
    broker.assert_no_traceback()


def segments(process: OttlaProcess, topic: str = TOPIC) -> int:
    return len(list((process.data / f"{topic}-0").glob("*.log")))


def test_kill_9_while_segments_roll(process: OttlaProcess) -> None:
    chance = random.Random(1)
    create_topic(process, TOPIC, segment_bytes=SMALLEST_SEGMENT)
    writer = Writer(process, TOPIC, size=200_000)
    writer.start()
    for _ in range(4):
        writer.wait_for(chance.randrange(30, 60))
        process.kill()
        process.start()
    writer.wait_for(10)
    writer.finish()
    assert segments(process) > 20
    writer.check()


def test_kill_9_while_logs_are_compacted(process: OttlaProcess) -> None:
    """Write five keys repeatedly: the newest record of each key survives, and no record changes its offset."""
    chance = random.Random(2)
    create_topic(
        process, TOPIC, segment_bytes=SMALLEST_SEGMENT, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01
    )
    acknowledged: dict[int, int] = {}
    for _ in range(2):
        with Connection(process.bootstrap) as connection:
            for _ in range(40):
                number = len(acknowledged)
                keyed = record(0, value_of(number, 100_000), key=b"key %d" % (number % 5))
                answer = produce(connection, TOPIC, batch([b""], records=keyed))
                assert answer.error == 0
                acknowledged[answer.base_offset] = number
        time.sleep(1.0 + chance.random() * 0.7)  # the cleaner runs once a second
        process.kill()
        process.start()
        stored = read_numbers(process.bootstrap, TOPIC)
        assert stored.items() <= acknowledged.items(), "another record was written at this offset"
        newest = list(acknowledged.items())[-5:]
        assert set(newest) <= stored.items(), "the newest record of a key is lost"
    deadline = time.monotonic() + WAIT_S
    while len(read_numbers(process.bootstrap, TOPIC)) == len(acknowledged):
        assert time.monotonic() < deadline, "the cleaner does not work any more"
        time.sleep(0.1)


def test_kill_9_while_records_are_deleted(process: OttlaProcess) -> None:
    """A crash may undo DeleteRecords, as in Kafka, but no other record may be lost."""
    create_topic(process, TOPIC, segment_bytes=SMALLEST_SEGMENT)
    writer = Writer(process, TOPIC, size=100_000)
    writer.start()
    asked = 0
    for _ in range(3):
        for _ in range(3):
            writer.wait_for(10)
            asked = max(list(writer.acknowledged.values())) - 2
            admin_client = admin(process)
            deleted = admin_client.delete_records([TopicPartition(TOPIC, 0, asked)])
            next(iter(deleted.values())).result(WAIT_S)
        process.kill()
        process.start()
    writer.wait_for(5)
    writer.finish()
    writer.check(start=asked)


class Changing(threading.Thread):
    """Creates topics, deletes every second one, and records the acknowledged changes."""

    def __init__(self, process: OttlaProcess, life: int) -> None:
        super().__init__(daemon=True)
        self.created: set[str] = set()
        self.deleted: set[str] = set()
        self._life, self._admin = life, admin(process)
        self._stopping = threading.Event()

    def run(self) -> None:
        with contextlib.suppress(KafkaException):  # the broker is killed before it responds
            for i in range(10_000):
                if self._stopping.is_set():
                    return
                name = f"topic-{self._life}-{i}"
                self._admin.create_topics([NewTopic(name, 2, 1)], request_timeout=1)[name].result(WAIT_S)
                self.created.add(name)
                if i % 2:
                    self.created.discard(name)  # unknown until the response
                    self._admin.delete_topics([name], request_timeout=1)[name].result(WAIT_S)
                    self.deleted.add(name)

    def stop(self) -> None:
        self._stopping.set()
        self.join(WAIT_S)
        assert not self.is_alive()


def test_kill_9_while_topics_are_created_and_deleted(process: OttlaProcess) -> None:
    chance = random.Random(3)
    created: set[str] = set()
    deleted: set[str] = set()
    for life in range(3):
        changing = Changing(process, life)
        changing.start()
        time.sleep(0.5 + chance.random() / 2)
        process.kill()
        changing.stop()
        created |= changing.created
        deleted |= changing.deleted
        process.start()
        there = set(admin(process).list_topics(timeout=WAIT_S).topics)
        assert created <= there
        assert not deleted & there
    assert len(created) > 10
    assert len(deleted) > 10
    for name in sorted(created)[:3]:
        with Connection(process.bootstrap) as connection:
            assert produce(connection, name, batch([b"it serves"])).error == 0


def test_kill_9_during_the_first_start(tmp_path: Path) -> None:
    process = ForkedOttla(tmp_path)
    for attempt in range(10):
        with subprocess.Popen(
            process.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path
        ) as starting:
            time.sleep(0.12 + attempt * 0.025)
            starting.kill()
    with process:
        create_topic(process, TOPIC)
        with Connection(process.bootstrap) as connection:
            assert produce(connection, TOPIC, batch([b"it serves"])) == (0, 0)
    process.assert_no_traceback()


def test_sigterm_under_load_is_clean_and_the_next_start_recovers_nothing(process: OttlaProcess) -> None:
    create_topic(process, TOPIC, segment_bytes=SMALLEST_SEGMENT)
    writer = Writer(process, TOPIC)
    writer.start()
    writer.wait_for(300)
    code = process.stop()
    assert code == 0, process.log_tail()
    assert (process.data / ".kafka_cleanshutdown").exists()
    position = process.log_size()
    process.start()
    unclean = "since no clean shutdown file was found"
    assert unclean not in process.log_tail(since=position)
    writer.wait_for(10)
    writer.finish()
    writer.check()
    process.kill()
    position = process.log_size()
    process.start()
    assert unclean in process.log_tail(since=position), (
        "a start after a crash must log its recovery, or the check above proves nothing"
    )


def test_idle_connections_do_not_delay_a_stop(process: OttlaProcess) -> None:
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(Connection(process.bootstrap)) for _ in range(20)]
        # A stop that takes longer than STOP_TIMEOUT_S raises BrokerDied.
        assert process.stop() == 0
        with pytest.raises(ConnectionClosed):
            connections[0].receive()
    process.start()
