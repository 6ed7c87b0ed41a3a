"""WriteTxnMarkers: which markers are written, what they end, and when the response is sent."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode
from ottla.common.ids import OFFSETS_TOPIC
from ottla.coordination.internal_topic import partition_of
from ottla.coordinators.group.offset_store import Committed
from ottla.coordinators.group.records import offset_record
from ottla.metadata.mirrors import FAILBACK, MIRROR_SETTING, MIRRORING, STATE_SETTING, STOPPING
from ottla.partitions.topic_settings import refusal_of
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.records import BatchProducer, encode_batch
from ottla.records.batch import TRANSACTIONAL

from .harness import BrokerHarness

PRODUCER = 7


def marker(*, epoch: int = 3, coordinator_epoch: int = 0, version: int = 0, **topics: list[int]) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=PRODUCER,
        producer_epoch=epoch,
        transaction_result=True,
        topics=[WritableTxnMarkerTopic(name, indexes) for name, indexes in topics.items()],
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )


def write(harness: BrokerHarness, *markers: WritableTxnMarker) -> dict[tuple[str, int], ErrorCode]:
    response = harness.ask(WriteTxnMarkersRequest(markers=list(markers)))
    return {
        (topic.name, row.partition_index): ErrorCode(row.error_code)
        for result in response.markers
        for topic in result.topics
        for row in topic.partitions
    }


def begin(harness: BrokerHarness, topic: str, epoch: int = 3, sequence: int = 0) -> None:
    harness.append(topic, b"v", producer=BatchProducer(PRODUCER, epoch, sequence), attributes=TRANSACTIONAL)


def test_marker_ends_the_transaction_in_each_partition(harness: BrokerHarness) -> None:
    for topic in ("a", "b"):
        harness.create(topic)
        begin(harness, topic)
        assert harness.partition(topic).last_stable_offset == 0
    written = write(harness, marker(a=[0, 0, 1], b=[0], missing=[0]))
    assert written == {
        ("a", 0): ErrorCode.NONE,
        ("a", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("b", 0): ErrorCode.NONE,
        ("missing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    for topic in ("a", "b"):
        assert harness.partition(topic).last_stable_offset == 2


@pytest.mark.parametrize("state", [FAILBACK, MIRRORING, STOPPING])
def test_marker_is_written_until_the_topic_is_a_copy(harness: BrokerHarness, state: str) -> None:
    """A failback can be taken back; its transactions would stay open."""
    harness.create("t")
    begin(harness, "t")
    partition = harness.partition("t")
    partition.refusal = refusal_of("t", {MIRROR_SETTING: "dr", STATE_SETTING: state})
    assert write(harness, marker(t=[0])) == {("t", 0): ErrorCode.NONE}
    assert partition.last_stable_offset == (2 if state == FAILBACK else 0)


def test_marker_of_a_fenced_producer_or_coordinator_is_rejected(harness: BrokerHarness) -> None:
    harness.create("t")
    begin(harness, "t")
    assert write(harness, marker(t=[0], coordinator_epoch=5)) == {("t", 0): ErrorCode.NONE}
    begin(harness, "t", sequence=1)
    assert write(harness, marker(t=[0], epoch=2)) == {("t", 0): ErrorCode.INVALID_PRODUCER_EPOCH}
    fenced = write(harness, marker(t=[0], coordinator_epoch=4))
    assert fenced == {("t", 0): ErrorCode.TRANSACTION_COORDINATOR_FENCED}
    assert harness.partition("t").last_stable_offset == 2


def test_late_marker_does_not_end_the_next_transaction_of_version_2(harness: BrokerHarness) -> None:
    harness.create("t")
    begin(harness, "t", epoch=3)
    assert write(harness, marker(t=[0], epoch=4, version=2)) == {("t", 0): ErrorCode.NONE}
    assert write(harness, marker(t=[0], epoch=4, version=2)) == {("t", 0): ErrorCode.NONE}, "repeated"
    begin(harness, "t", epoch=4)
    late = write(harness, marker(t=[0], epoch=4, version=2))
    assert late == {("t", 0): ErrorCode.INVALID_PRODUCER_EPOCH}
    assert harness.partition("t").last_stable_offset == 3
    assert write(harness, marker(t=[0], epoch=5, version=2)) == {("t", 0): ErrorCode.NONE}


def test_response_waits_until_the_marker_is_on_disk(harness: BrokerHarness) -> None:
    harness.create("t", flush_messages="1")
    begin(harness, "t")
    harness.threads.held = True
    answer = harness.start(WriteTxnMarkersRequest(markers=[marker(t=[0])]))
    harness.loop.run()
    assert not answer.done
    harness.threads.held = False
    harness.threads.finish()
    harness.loop.run()
    assert answer.done


@pytest.mark.parametrize("is_loaded", [True, False])
def test_marker_commits_offsets_of_the_transaction(harness: BrokerHarness, is_loaded: bool) -> None:
    assert not harness.ask(FindCoordinatorRequest(key="g", key_type=0), 3).error_code
    index = partition_of("g", harness.broker.groups.shards.topic.partition_count())
    record = offset_record("g", "t", 0, Committed(5, -1, "", 0))
    pending = encode_batch([(0, *record, [])], producer=BatchProducer(PRODUCER, 3), attributes=TRANSACTIONAL)
    harness.partition(OFFSETS_TOPIC, index).append(memoryview(pending), origin="coordinator")
    if is_loaded:
        _committed(harness)
        harness.loop.advance(100)
        assert _committed(harness) == -1
    else:
        write_error = write(harness, marker(**{OFFSETS_TOPIC: [index]}))
        assert write_error == {(OFFSETS_TOPIC, index): ErrorCode.NOT_LEADER_OR_FOLLOWER}
        harness.loop.advance(100)
    assert write(harness, marker(**{OFFSETS_TOPIC: [index]})) == {(OFFSETS_TOPIC, index): ErrorCode.NONE}
    assert _committed(harness) == 5


def _committed(harness: BrokerHarness) -> int:
    wanted = OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])])
    group = harness.ask(OffsetFetchRequest(groups=[wanted]), 8).groups[0]
    return int(group.topics[0].partitions[0].committed_offset) if group.topics else -1
