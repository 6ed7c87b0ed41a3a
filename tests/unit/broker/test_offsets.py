"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.handlers import list_offsets
from ottla.broker.handlers.list_offsets import SINCE_VERSION
from ottla.common import work
from ottla.common.errors import ErrorCode
from ottla.common.ids import OFFSETS_TOPIC
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.records import BatchProducer

from .harness import START_MS, BrokerHarness

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
UNKNOWN = (0, -1, -1, -1)


def listed(
    harness: BrokerHarness, timestamp: int, version: int = 11, index: int = 0, isolation: int = 0, epoch: int = -1
) -> Any:
    """(error, timestamp, offset, leader epoch)"""
    wanted = ListOffsetsPartition(index, epoch, timestamp)
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[ListOffsetsTopic("t", [wanted])])
    answer = harness.ask(request, version).topics[0].partitions[0]
    return answer.error_code, answer.timestamp, answer.offset, answer.leader_epoch


@pytest.fixture
def log(harness: BrokerHarness) -> BrokerHarness:
    """A log of the offsets 1 to 5 (0 was deleted); offset 3 has the greatest timestamp."""
    harness.create("t")
    for i, later in enumerate((0, 100, 200, 900, 300, 900)):
        harness.append("t", b"%d" % i, timestamp=START_MS + later)
    harness.partition("t").delete_records_before(1)
    return harness


def test_ends_of_the_log(log: BrokerHarness) -> None:
    assert listed(log, LATEST) == (0, -1, 6, 0)
    assert listed(log, EARLIEST) == listed(log, EARLIEST_LOCAL) == (0, -1, 1, 0)
    assert listed(log, LATEST_TIERED) == listed(log, EARLIEST_PENDING) == UNKNOWN


def test_start_of_an_empty_log_has_the_current_epoch(harness: BrokerHarness) -> None:
    harness.create("t")
    assert listed(harness, EARLIEST) == listed(harness, EARLIEST_LOCAL) == (0, -1, 0, 0)


def test_unknown_special_timestamp_is_rejected_before_the_topic_is_looked_up(harness: BrokerHarness) -> None:
    assert listed(harness, -7)[0] == listed(harness, MAX_TIMESTAMP, version=6)[0] == ErrorCode.UNSUPPORTED_VERSION
    assert listed(harness, LATEST)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_offset_by_timestamp_is_of_the_first_record_at_or_after_it(log: BrokerHarness) -> None:
    assert listed(log, 0) == (0, START_MS + 100, 1, 0)
    assert listed(log, START_MS + 101) == (0, START_MS + 200, 2, 0)
    assert listed(log, START_MS + 250) == (0, START_MS + 900, 3, 0)
    assert listed(log, START_MS + 901) == UNKNOWN
    assert listed(log, MAX_TIMESTAMP) == (0, START_MS + 900, 3, 0)


def fill_eight_segments(harness: BrokerHarness) -> None:
    """Write one record to each segment, each a millisecond after the previous one."""
    harness.create("t", segment_bytes="1048576")
    log = harness.partition("t").log
    for i in range(8):
        harness.append("t", b"%d" % i, timestamp=START_MS + i)
        log.roll()


def test_timestamps_of_many_segments_are_looked_up_in_slices(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_eight_segments(harness)
    iterations: list[Callable[[], None]] = []

    def later(callback: Callable[[], None]) -> None:
        iterations.append(callback)
        harness.loop.call_soon(callback)

    monkeypatch.setattr(list_offsets, "SLICE", 2)
    passing = itertools.count(step=work.SLICE_MS)  # every step takes a whole slice
    monkeypatch.setattr(harness.loop, "monotonic_ms", lambda: next(passing))
    harness.use_worker(work.Worker(harness.loop, later))
    assert listed(harness, START_MS + 6) == (0, START_MS + 6, 6, 0)
    looked_up = len(iterations)
    iterations.clear()
    assert listed(harness, START_MS + 3) == (0, START_MS + 3, 3, 0)
    assert looked_up > len(iterations)


def test_slices_of_a_fast_disk_share_an_iteration(harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_eight_segments(harness)
    iterations: list[Callable[[], None]] = []
    harness.use_worker(work.Worker(harness.loop, iterations.append))
    monkeypatch.setattr(list_offsets, "SLICE", 2)
    assert listed(harness, START_MS + 6) == (0, START_MS + 6, 6, 0)
    assert not iterations


@pytest.mark.parametrize("version", range(1, 12))
def test_special_timestamps_need_their_version(log: BrokerHarness, version: int) -> None:
    for timestamp in (LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING, -7):
        known = timestamp != -7 and version >= SINCE_VERSION.get(timestamp, 1)
        assert listed(log, timestamp, version)[0] == (0 if known else ErrorCode.UNSUPPORTED_VERSION), timestamp
    assert listed(log, LATEST, version)[3] == (0 if version >= 4 else -1)


def test_latest_offset_for_read_committed_is_the_start_of_the_open_transaction(log: BrokerHarness) -> None:
    log.append("t", b"open", timestamp=START_MS + 5000, producer=BatchProducer(7, 0, 0), attributes=0x10)
    log.append("t", b"after", timestamp=START_MS + 6000)
    assert listed(log, LATEST)[2] == 8
    assert listed(log, LATEST, isolation=1)[2] == 6
    assert listed(log, START_MS + 5000)[2] == 6
    assert listed(log, START_MS + 5000, isolation=1) == UNKNOWN
    assert listed(log, MAX_TIMESTAMP, isolation=1) == UNKNOWN


def test_errors_of_list_offsets(log: BrokerHarness) -> None:
    assert listed(log, LATEST, index=3) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)
    log.partition("t").leader_epoch = 4
    assert listed(log, LATEST, epoch=3)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert listed(log, LATEST, epoch=5)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert listed(log, LATEST, epoch=4) == (0, -1, 6, 4)
    twice = [
        ListOffsetsPartition(0, -1, LATEST),
        ListOffsetsPartition(0, -1, EARLIEST),
        ListOffsetsPartition(1, -1, -1),
    ]
    answers = log.ask(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic("t", twice)])).topics[0].partitions
    assert [(answer.partition_index, answer.error_code) for answer in answers] == [
        (0, ErrorCode.INVALID_REQUEST),
        (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_end_offset_of_each_leader_epoch(harness: BrokerHarness, version: int) -> None:
    harness.create("t")
    partition = harness.partition("t")
    for epoch, count in ((0, 2), (3, 3), (5, 0)):
        partition.leader_epoch = epoch
        for _ in range(count):
            harness.append("t", b"x")

    def end(epoch: int, current: int = -1, index: int = 0) -> tuple[int, int, int]:
        wanted = OffsetForLeaderPartition(index, current, epoch)
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic("t", [wanted])])
        answer = harness.ask(request, version).topics[0].partitions[0]
        return answer.error_code, answer.leader_epoch, answer.end_offset

    assert end(0) == end(2) == (0, 0, 2)
    assert end(3) == end(4) == (0, 3, 5)
    # The current epoch has no records yet, and ends at the log end offset.
    assert end(5) == (0, 5, 5)
    assert end(6) == (0, -1, -1)
    assert end(0, current=5) == (0, 0, 2)
    assert end(0, current=4)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert end(0, current=6)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert end(0, index=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def delete(harness: BrokerHarness, offset: int, topic: str = "t", index: int = 0) -> tuple[int, int]:
    """(error, low watermark)"""
    request = DeleteRecordsRequest([DeleteRecordsTopic(topic, [DeleteRecordsPartition(index, offset)])])
    answer = harness.ask(request).topics[0].partitions[0]
    return answer.error_code, answer.low_watermark


def test_delete_records_moves_the_start_and_never_back(log: BrokerHarness) -> None:
    assert delete(log, 3) == (0, 3)
    assert delete(log, 2) == (0, 3)
    assert delete(log, -1) == (0, 6)
    assert listed(log, EARLIEST)[2] == listed(log, LATEST)[2] == 6


def test_delete_records_rejects_invalid_requests(log: BrokerHarness) -> None:
    assert delete(log, 7) == delete(log, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(log, 0, "none") == delete(log, 0, index=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    log.create(OFFSETS_TOPIC)
    assert delete(log, 0, OFFSETS_TOPIC) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    for policy, code in (("compact", ErrorCode.POLICY_VIOLATION), ("compact,delete", 0)):
        name = policy.replace(",", "-")
        log.create(name, cleanup_policy=policy)
        assert delete(log, 0, name)[0] == code
    assert listed(log, EARLIEST)[2] == 1


def test_delete_records_is_answered_when_the_start_is_on_disk(log: BrokerHarness) -> None:
    log.threads.held = True
    request = DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 4)])])
    answer = log.start(request)
    checkpoint = f"{log.partition('t').log.log_directory.path}/log-start-offset-checkpoint"
    assert not answer.done
    log.threads.finish()
    assert answer.result().topics[0].partitions[0].low_watermark == 4
    with open(checkpoint) as file:
        assert "t 0 4" in file.read()


def test_delete_records_returns_an_error_if_the_disk_fails(log: BrokerHarness) -> None:
    log.threads.held = True
    answer = log.start(DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 4)])]))

    def broken(_: int) -> None:
        raise OSError(28, "No space left on device")

    log.broker.logs.files.fsync = broken  # type: ignore[method-assign]
    log.threads.finish()
    result = answer.result().topics[0].partitions[0]
    assert (result.error_code, result.low_watermark) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
