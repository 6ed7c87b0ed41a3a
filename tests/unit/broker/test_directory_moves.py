"""Replicas move between the log directories of a broker: requests, progress, limits, restarts and failures. KIP-113."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.log import LogDirectory
from ottla.partitions.replication.mirrored import MirroredPartition, MirrorPorts
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.records import BatchProducer, encode_batch

from .harness import BrokerHarness, batch, open_harness, records_of

ONE, TWO = "one", "two"
BROKER, SET = 4, 0
SECOND_MS = 1000


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[BrokerHarness]:
    with open_harness(f"{tmp_path / ONE},{tmp_path / TWO}") as opened:
        yield opened


def move(harness: BrokerHarness, path: Path | str, topic: str = "moved", index: int = 0) -> int:
    directory = AlterReplicaLogDir(str(path), [AlterReplicaLogDirTopic(topic, [index])])
    response = harness.ask(AlterReplicaLogDirsRequest(dirs=[directory]))
    (result,) = response.results
    assert result.topic_name == topic
    return int(result.partitions[0].error_code)


def described(harness: BrokerHarness) -> dict[tuple[str, bool], int]:
    """The lag of each replica of the topic, by directory and whether it is a copy."""
    return {
        (Path(result.log_dir).name, part.is_future_key): part.offset_lag
        for result in harness.ask(DescribeLogDirsRequest(topics=None)).results
        for topic in result.topics
        for part in topic.partitions
        if topic.name == "moved"
    }


def home(harness: BrokerHarness) -> str:
    return Path(harness.partition("moved").log.log_directory.path).name


def elsewhere(harness: BrokerHarness) -> Path:
    here = Path(harness.partition("moved").log.log_directory.path)
    return here.parent / (TWO if here.name == ONE else ONE)


def directory_at(harness: BrokerHarness, path: Path) -> LogDirectory:
    return next(each for each in harness.broker.logs.log_directories() if each.path == str(path))


def limit(harness: BrokerHarness, bytes_per_second: int) -> None:
    setting = AlterableConfig("replica.alter.log.dirs.io.max.bytes.per.second", SET, str(bytes_per_second))
    resource = AlterConfigsResource(BROKER, "", [setting])
    assert not harness.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code


def fetched(harness: BrokerHarness) -> list[tuple[int, bytes | None]]:
    """Return the records that a consumer can read."""
    partition, found = harness.partition("moved"), []
    while len(found) < partition.high_watermark:
        found += records_of(partition.log.read(len(found), 1 << 20, partition.high_watermark))
    return found


def fill(harness: BrokerHarness, batches: int, size: int = 100) -> list[tuple[int, bytes | None]]:
    start = harness.partition("moved").log.log_end_offset
    values = [b"%d" % (start + number) + b"." * size for number in range(batches)]
    for value in values:
        harness.append("moved", value)
    return [(start + number, value) for number, value in enumerate(values)]


def test_replica_moves_while_it_is_written_and_read(harness: BrokerHarness) -> None:
    harness.create("moved")
    there = elsewhere(harness)
    expected = fill(harness, 20)
    assert move(harness, there) == 0
    expected += fill(harness, 5)
    harness.loop.advance(SECOND_MS)
    assert described(harness) == {(there.name, False): 0}
    assert home(harness) == there.name
    expected += fill(harness, 5)
    assert fetched(harness) == expected
    assert move(harness, there) == 0
    assert harness.broker.logs.futures == {}


def test_copy_of_another_cluster_continues_in_the_log_that_was_moved(harness: BrokerHarness) -> None:
    harness.create("moved")
    there = elsewhere(harness)
    ports = MirrorPorts(harness.threads.run, lambda: None)
    mirrored = MirroredPartition(harness.partition("moved"), 9, 4, ports)
    copied = [memoryview(encode_batch([(0, None, value, [])], base_offset=i)) for i, value in enumerate((b"a", b"b"))]
    mirrored.append(copied[0], harness.loop.wall_ms())
    assert mirrored.log.log_end_offset == 1
    assert move(harness, there) == 0
    harness.loop.advance(SECOND_MS)
    assert home(harness) == there.name
    mirrored.append(copied[1], harness.loop.wall_ms())
    assert mirrored.log.log_end_offset == 2
    assert fetched(harness) == [(0, b"a"), (1, b"b")]
    assert mirrored.truncate(1)
    assert fetched(harness) == [(0, b"a")]


def test_log_with_a_truncation_that_is_not_on_disk_is_not_replaced(harness: BrokerHarness) -> None:
    harness.create("moved")
    here, there = home(harness), elsewhere(harness)
    expected = fill(harness, 3)
    harness.partition("moved").cut(2)
    assert move(harness, there) == 0
    harness.loop.advance(5 * SECOND_MS)
    assert home(harness) == here
    harness.partition("moved").is_truncation_synced = True
    harness.loop.advance(5 * SECOND_MS)
    assert (home(harness), fetched(harness)) == (there.name, expected[:2])


def test_kafkas_error_codes(harness: BrokerHarness, tmp_path: Path) -> None:
    harness.create("moved")
    harness.create("x" * 240)
    assert move(harness, tmp_path / "three") == ErrorCode.LOG_DIR_NOT_FOUND
    assert move(harness, TWO) == ErrorCode.LOG_DIR_NOT_FOUND
    assert move(harness, tmp_path / TWO, "unknown") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(harness, tmp_path / TWO, index=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    long = harness.partition("x" * 240).log.log_directory.path
    other = tmp_path / (TWO if long.endswith(ONE) else ONE)
    assert move(harness, other, "x" * 240) == ErrorCode.INVALID_TOPIC_EXCEPTION
    there = elsewhere(harness)
    directory_at(harness, there).take_offline(OSError("test"))
    assert move(harness, there) == ErrorCode.KAFKA_STORAGE_ERROR


def test_lag_of_a_copy_is_described_and_its_rate_is_limited(harness: BrokerHarness) -> None:
    harness.create("moved")
    here, there = home(harness), elsewhere(harness)
    chunk = 200_000
    fill(harness, 12, chunk)
    limit(harness, 2 * chunk)
    assert move(harness, there) == 0
    harness.loop.advance(2 * SECOND_MS)
    lag = described(harness)
    assert lag[here, False] == 0
    # Four seconds' worth is the most that the rate of the first samples admits.
    assert 5 <= lag[there.name, True] <= 9
    harness.loop.advance(2 * SECOND_MS)
    assert described(harness)[there.name, True] < lag[there.name, True]
    limit(harness, 1 << 40)
    harness.loop.advance(2 * SECOND_MS)
    assert described(harness) == {(there.name, False): 0}


def test_move_is_cancelled_by_a_move_to_where_the_replica_is(harness: BrokerHarness) -> None:
    harness.create("moved")
    here, there = home(harness), elsewhere(harness)
    expected = fill(harness, 8, 200_000)
    limit(harness, 1000)
    assert move(harness, there) == 0
    harness.loop.advance(SECOND_MS)
    assert len(described(harness)) == 2
    assert move(harness, there.parent / here) == 0
    assert described(harness) == {(here, False): 0}
    harness.loop.advance(60 * SECOND_MS)
    assert home(harness) == here
    assert fetched(harness) == expected


def test_next_role_does_not_touch_a_copy_that_a_thread_completes(harness: BrokerHarness) -> None:
    harness.create("moved")
    there, partition = elsewhere(harness), harness.partition("moved")
    expected = fill(harness, 2)
    harness.threads.held = True
    assert move(harness, there) == 0
    harness.loop.advance(SECOND_MS)
    assert len(harness.threads.work) == 1
    # As by a new leader epoch.
    harness.broker.directory_moves.resigned(partition)
    harness.broker.directory_moves.leading(partition)
    harness.loop.advance(SECOND_MS)
    assert len(harness.threads.work) == 1, "two threads would rename the same files, and the directory would go offline"
    harness.threads.held = False
    harness.threads.finish()
    harness.loop.advance(SECOND_MS)
    assert home(harness) == there.name
    assert fetched(harness) == expected


def test_move_is_continued_after_a_restart(tmp_path: Path) -> None:
    paths = f"{tmp_path / ONE},{tmp_path / TWO}"
    with open_harness(paths) as harness:
        harness.create("moved")
        there = elsewhere(harness)
        expected = fill(harness, 8, 200_000)
        limit(harness, 1000)
        move(harness, there)
        harness.loop.advance(SECOND_MS)
        limit(harness, 1 << 40)
    with open_harness(paths) as harness:
        assert len(harness.broker.logs.futures) == 1
        harness.partition("moved")
        harness.loop.advance(SECOND_MS)
        assert described(harness) == {(there.name, False): 0}
        assert fetched(harness) == expected


def test_deleted_topic_takes_its_copy_with_it(harness: BrokerHarness, tmp_path: Path) -> None:
    harness.create("moved")
    fill(harness, 8, 200_000)
    limit(harness, 1000)
    move(harness, elsewhere(harness))
    harness.loop.advance(SECOND_MS)
    harness.delete("moved")
    harness.create("moved")
    expected = fill(harness, 1)
    harness.loop.advance(10 * SECOND_MS)
    folders = [path.name for path in tmp_path.glob("*/moved-0*") if not path.name.endswith("-delete")]
    assert folders == ["moved-0"]
    assert fetched(harness) == expected


def test_failing_directory_ends_only_the_move_into_it(harness: BrokerHarness) -> None:
    harness.create("moved")
    there = elsewhere(harness)
    expected = fill(harness, 8, 200_000)
    limit(harness, 1000)
    move(harness, there)
    harness.loop.advance(SECOND_MS)
    directory_at(harness, there).take_offline(OSError("test"))
    limit(harness, 1 << 40)
    harness.loop.advance(5 * SECOND_MS)
    assert fetched(harness) == expected
    assert harness.broker.logs.futures == {}


def test_copy_waits_until_the_metadata_shows_its_directory(harness: BrokerHarness) -> None:
    harness.create("moved")
    moves, partition = harness.broker.directory_moves, harness.partition("moved").topic_partition
    reports: list[bytes | None] = []
    moves.report = lambda moved: reports.append(moves.directory_of(moved))
    here, there = home(harness), elsewhere(harness)
    fill(harness, 3)
    move(harness, there)
    harness.loop.advance(SECOND_MS)
    target = directory_at(harness, there).directory_id
    assert reports[-1] == target
    assert home(harness) == here
    expected = fill(harness, 3)
    moves.metadata_published(_with_directory(harness, target))
    moves._ports = _showing(moves._ports, _with_directory(harness, target))
    harness.loop.advance(SECOND_MS)
    assert home(harness) == there.name
    assert fetched(harness)[3:] == expected
    assert moves.directory_of(partition) == target


def test_replica_in_a_directory_that_fails_before_it_was_reported_is_reported_there(harness: BrokerHarness) -> None:
    """Without the report, the controller would let this broker lead it for ever."""
    harness.create("moved")
    partition = harness.partition("moved")
    directory = partition.log.log_directory
    directory.take_offline(OSError("test"))
    harness.broker.directory_failed(directory.path)
    assert harness.broker.directory_moves.directory_of(partition.topic_partition) == directory.directory_id


def test_replica_to_come_is_created_where_it_was_requested(harness: BrokerHarness) -> None:
    for directory in harness.broker.logs.log_directories():
        harness.broker.logs.preferred[TopicPartition("moved", 0)] = directory
        harness.create("moved")
        assert harness.partition("moved").log.log_directory is directory
        harness.delete("moved")
    assert harness.broker.logs.preferred == {}


def test_flush_policy_holds_through_a_move(tmp_path: Path) -> None:
    with open_harness(f"{tmp_path / ONE},{tmp_path / TWO}") as harness:
        harness.create("moved", flush_messages="1")
        partition = harness.partition("moved")
        fill(harness, 3)
        assert partition.high_watermark == 3
        harness.threads.held = True
        move(harness, elsewhere(harness))
        fill(harness, 1)
        for _ in range(20):
            harness.loop.advance(SECOND_MS)
            harness.threads.finish()
            assert partition.high_watermark <= partition.log.flushed_offset
        assert (partition.high_watermark, home(harness)) == (4, Path(partition.log.log_directory.path).name)


def test_records_on_disk_stay_on_disk_when_the_copy_takes_over(tmp_path: Path) -> None:
    with open_harness(f"{tmp_path / ONE},{tmp_path / TWO}") as harness:
        harness.create("moved")
        partition = harness.partition("moved")
        fill(harness, 3)
        harness.threads.held = True
        move(harness, elsewhere(harness))
        harness.loop.advance(SECOND_MS)
        original = partition.log
        fill(harness, 2)
        original.flush()
        for _ in range(5):
            harness.threads.finish()
            harness.loop.advance(SECOND_MS)
        assert partition.log is not original
        assert partition.log.flushed_offset == original.flushed_offset == 5


def _with_directory(harness: BrokerHarness, directory: bytes) -> Any:
    image = harness.broker.metadata.image
    topic = image.topics_by_name["moved"]
    changed = topic._replace(partitions={0: topic.partitions[0]._replace(directories=(directory,))})
    topics: Mapping[str, Any] = {**image.topics_by_name, "moved": changed}
    return _Image(image, topics)


class _Image:
    def __init__(self, image: Any, topics: Mapping[str, Any]) -> None:
        self.metadata_version = image.metadata_version
        self.topics_by_name = topics


def _showing(ports: Any, image: Any) -> Any:
    from dataclasses import replace

    return replace(ports, image=lambda: image)


def test_batch_is_written_once(harness: BrokerHarness) -> None:
    harness.create("moved")
    partition = harness.partition("moved")
    data = batch(b"x", producer=BatchProducer(3, 0, 0))
    assert partition.append(memoryview(bytearray(data))).first_offset == 0
    move(harness, elsewhere(harness))
    harness.loop.advance(SECOND_MS)
    again = partition.append(memoryview(bytearray(data)))
    assert (again.first_offset, again.duplicate) == (0, True)
