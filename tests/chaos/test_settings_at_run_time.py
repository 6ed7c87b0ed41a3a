"""Settings that change while a broker runs: they take effect for all brokers or for one, and can be removed."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.chaos.support import WAIT_S, admin, create_topic, read_numbers, value_of
from tests.clients.wire import Connection, ConnectionClosed, Produced, batch, produce, stored_codecs, string
from tests.ottla_process import ForkedOttla, OttlaProcess

TOPIC = "changing"
MESSAGE_TOO_LARGE, INVALID_TIMESTAMP, INVALID_REQUEST = 10, 32, 42
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INCREMENTAL_ALTER_CONFIGS, BROKER, SET, DELETE = 44, 4, 0, 1
SMALLEST_SEGMENT = 1_048_576


@pytest.fixture
def process(tmp_path: Path) -> Iterator[OttlaProcess]:
    properties = {
        "log.initial.task.delay.ms": 0,
        "log.retention.check.interval.ms": 100,
        "log.segment.delete.delay.ms": 0,
        "producer.id.expiration.check.interval.ms": 100,
        "log.flush.offset.checkpoint.interval.ms": 100,
        "log.flush.start.offset.checkpoint.interval.ms": 100,
    }
    with ForkedOttla(tmp_path, properties) as broker:
        yield broker
    broker.assert_no_traceback()


def ask_to_alter(process: OttlaProcess, name: str, value: object | None, broker: str) -> tuple[int, str]:
    """Error code and message of IncrementalAlterConfigs v0: set a broker's setting, or remove it."""
    text = None if value is None else str(value)
    body = struct.pack(">ib", 1, BROKER) + string(broker) + struct.pack(">i", 1)
    body += string(name) + struct.pack(">b", DELETE if text is None else SET) + string(text) + b"\0"
    with Connection(process.bootstrap) as connection:
        answer = connection.ask(INCREMENTAL_ALTER_CONFIGS, 0, body)
    error, length = struct.unpack_from(">hh", answer, 8)
    return error, answer[12 : 12 + max(length, 0)].decode()


def alter(process: OttlaProcess, name: str, value: object | None, *, broker: str = "") -> None:
    """Set or remove a setting, for all brokers or for one."""
    assert ask_to_alter(process, name, value, broker) == (0, "")


def write(process: OttlaProcess, number: int = 0, size: int = 1000, **options: int) -> Produced:
    with Connection(process.bootstrap) as connection:
        return produce(connection, TOPIC, batch([value_of(number, size)], **options))


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_max_message_bytes_for_all_brokers_for_one_and_removed(process: OttlaProcess) -> None:
    create_topic(process, TOPIC)
    assert write(process, size=5000).error == 0
    alter(process, "message.max.bytes", 2000)
    assert write(process, size=5000).error == MESSAGE_TOO_LARGE
    alter(process, "message.max.bytes", 10_000, broker="1")
    assert write(process, size=5000).error == 0
    alter(process, "message.max.bytes", None, broker="1")
    assert write(process, size=5000).error == MESSAGE_TOO_LARGE
    process.kill()
    process.start()
    assert write(process, size=5000).error == MESSAGE_TOO_LARGE, "dynamic settings survive a restart"
    alter(process, "message.max.bytes", None)
    assert write(process, size=5000).error == 0


def test_codec_and_timestamps_of_all_topics(process: OttlaProcess) -> None:
    create_topic(process, TOPIC)
    alter(process, "compression.type", "zstd")
    assert write(process).error == 0
    assert stored_codecs(process.bootstrap, TOPIC) == {"zstd"}
    alter(process, "log.message.timestamp.before.max.ms", 1000)
    assert write(process, timestamp=1_500_000_000_000).error == INVALID_TIMESTAMP


def test_retention_of_all_topics_and_its_files(process: OttlaProcess) -> None:
    create_topic(process, TOPIC, segment_bytes=SMALLEST_SEGMENT)
    for number in range(25):
        assert write(process, number, 100_000, timestamp=int(time.time() * 1000)).error == 0
    directory = process.data / f"{TOPIC}-0"
    assert len(list(directory.glob("*.log"))) == 3
    alter(process, "log.retention.ms", 1)
    until(lambda: not (directory / f"{0:020}.log").exists(), "old segments go")
    until(lambda: not list(directory.glob("*.deleted")), "their files go too, after log.segment.delete.delay.ms")
    with Connection(process.bootstrap) as connection:
        assert produce(connection, TOPIC, batch([value_of(25, 10)])) == (0, 25)


def test_checkpoints_are_written_at_their_intervals(process: OttlaProcess) -> None:
    create_topic(process, TOPIC, flush_messages=1)
    for number in range(5):
        assert write(process, number).error == 0
    recovery_points = process.data / "recovery-point-offset-checkpoint"
    until(lambda: recovery_points.exists() and f"{TOPIC} 0 5" in recovery_points.read_text(), "the recovery point")


def test_inactive_producers_expire(process: OttlaProcess) -> None:
    """An expired producer may continue with any sequence number."""
    create_topic(process, TOPIC)
    # A producer whose last record is a day old is forgotten at the next check.
    now_ms = int(time.time() * 1000)
    assert write(process, 0, producer_id=1, epoch=0, sequence=0, timestamp=now_ms).error == 0
    assert write(process, 1, producer_id=1, epoch=0, sequence=7).error == OUT_OF_ORDER_SEQUENCE_NUMBER
    alter(process, "producer.id.expiration.ms", 1)
    until(lambda: write(process, 1, producer_id=1, epoch=0, sequence=7).error == 0, "it is forgotten")


def test_connections_beyond_a_new_limit_are_rejected(process: OttlaProcess) -> None:
    create_topic(process, TOPIC)
    alter(process, "max.connections.per.ip", 5)
    until(lambda: _connects(process, 5), "five connections work")
    assert not _connects(process, 30)
    # The connection that removes the limit must be accepted, too.
    until(lambda: _connects(process, 1), "closed ones count no more")
    alter(process, "max.connections.per.ip", None)
    assert _connects(process, 30)


def _connects(process: OttlaProcess, count: int) -> bool:
    connections = [Connection(process.bootstrap) for _ in range(count)]
    try:
        for connection in connections:
            if produce(connection, TOPIC, batch([value_of(0, 1)])).error:
                return False
    except ConnectionClosed:
        return False
    finally:
        for connection in connections:
            connection.socket.close()
    return True


@pytest.mark.parametrize(
    ("name", "value", "resource"),
    [
        ("num.partitions", 3, ""),
        ("log.dirs", "/tmp/elsewhere", "1"),
        ("message.max.bytes", "many", ""),
        ("listeners", "PLAINTEXT://:1", ""),
        ("listeners", "PLAINTEXT://:1", "1"),
        ("log.cleaner.threads", -1, ""),
        ("no.such.thing", 1, "1"),
    ],
)
def test_read_only_settings_are_rejected(process: OttlaProcess, name: str, value: object, resource: str) -> None:
    error, message = ask_to_alter(process, name, value, resource)
    assert error == INVALID_REQUEST
    assert name in message


@pytest.mark.parametrize("name", ["num.partitions", "listeners", "no.such.thing", "log.retention.ms"])
def test_any_dynamic_setting_can_be_removed(process: OttlaProcess, name: str) -> None:
    """As in Kafka, so that settings of other software can be removed."""
    alter(process, name, None)


def test_append_to_a_list_starts_from_the_effective_value(tmp_path: Path) -> None:
    with ForkedOttla(tmp_path, {"log.cleanup.policy": "compact"}) as process:
        create_topic(process, TOPIC)
        entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.APPEND)
        resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
        client = admin(process)
        client.incremental_alter_configs([resource])[resource].result(WAIT_S)
        described = client.describe_configs([ConfigResource(ResourceType.TOPIC, TOPIC)])
        values = next(iter(described.values())).result(WAIT_S)
        assert values["cleanup.policy"].value == "compact,delete"
        assert read_numbers(process.bootstrap, TOPIC) == {}
