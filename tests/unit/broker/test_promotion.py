"""A leader whose topic was promoted accepts no records of clients while its log has producers of the source."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.mirrors.mirror import reason_to_wait
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.work import Worker
from ottla.controller import Outcome
from ottla.controller.mirrors import SourceTopic
from ottla.log.transaction_marker import TransactionEnd
from ottla.metadata.image import TOPIC
from ottla.metadata.mirrors import STATE_SETTING, STOPPED
from ottla.partitions.partition import Partition
from ottla.partitions.promotion import admit_clients
from ottla.protocol.messages.metadata import MetadataResponsePartition
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.protocol.metadata_records import ConfigRecord
from ottla.records import BatchProducer
from ottla.records.batch import TRANSACTIONAL
from tests.unit.broker.test_opening import Later

from .harness import START_MS, BrokerHarness, batch, open_harness

TOPIC_ID = bytes(range(16))
SOURCE_EPOCH = 4
PRODUCERS = 3


class Promoted:
    """A topic of a mirror with idempotent and transactional producers of the source."""

    def __init__(self, harness: BrokerHarness) -> None:
        self.harness = harness

    def copy(self) -> None:
        source = SourceTopic("t", TOPIC_ID, (SOURCE_EPOCH,), {})
        self.harness.broker.metadata.submit(lambda c: c.follow_source("dr", 1, [source])).result()
        for producer_id in range(PRODUCERS):
            data = batch(
                b"theirs",
                producer=BatchProducer(producer_id, 0, 0),
                attributes=TRANSACTIONAL if producer_id == 1 else 0,
                base_offset=producer_id,
                leader_epoch=SOURCE_EPOCH,
            )
            self.partition.append_copied(data, SOURCE_EPOCH, START_MS)

    @property
    def partition(self) -> Partition:
        return self.harness.partition("t")

    @property
    def end(self) -> int:
        return self.partition.log.log_end_offset

    def move(self, state: str) -> None:
        record = ConfigRecord(resource_type=TOPIC, resource_name="t", name=STATE_SETTING, value=state)
        self.harness.broker.metadata.submit(lambda _: Outcome([record], None)).result()
        self.harness.loop.run()

    def write(self, producer_id: int = 0) -> bool:
        """Write the first batch of a producer of this cluster; whether it is taken for a duplicate."""
        data = batch(b"ours", producer=BatchProducer(producer_id, 0, 0))
        return self.partition.append_produced(memoryview(data), -1, START_MS).duplicate


@pytest.fixture
def promoted(harness: BrokerHarness) -> Promoted:
    topic = Promoted(harness)
    topic.copy()
    return topic


def busy(harness: BrokerHarness, later: Later) -> Worker:
    """A worker that has no time left in this event loop iteration."""
    worker = Worker(harness.loop, later.work.append)
    worker.charge(harness.loop.now_ms - 60_000)
    return worker


def test_topic_that_is_opened_without_a_promotion_has_no_producers_of_the_source(promoted: Promoted) -> None:
    promoted.move(STOPPED)
    assert not promoted.partition.log.producers.entries
    assert promoted.partition.last_stable_offset == promoted.end == 2 * PRODUCERS
    assert not promoted.write()


def test_clients_retry_until_the_producers_of_the_source_are_removed(promoted: Promoted) -> None:
    partition, later = promoted.partition, Later(promoted.harness)
    admit_clients(partition, None, busy(promoted.harness, later))
    with pytest.raises(KafkaError, match="removes the producers") as raised:
        promoted.write()
    assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    while later.work:
        later.step()
    assert not promoted.write()


def test_new_leader_removes_producers_whose_markers_were_lost(tmp_path: Path) -> None:
    with open_harness(tmp_path) as harness:
        promoted = Promoted(harness)
        promoted.copy()
        promoted.move(STOPPED)
        promoted.partition.cut(PRODUCERS + 1)
        assert set(promoted.partition.log.producers.entries) == {1, 2}
    with open_harness(tmp_path) as harness:
        promoted = Promoted(harness)
        assert promoted.end == 2 * PRODUCERS
        assert [promoted.write(each) for each in range(PRODUCERS)] == [False] * PRODUCERS


def test_new_leader_leaves_producers_of_this_cluster(tmp_path: Path) -> None:
    """A producer has no batches in the state of the log after its transaction has ended."""
    with open_harness(tmp_path) as harness:
        promoted = Promoted(harness)
        promoted.copy()
        promoted.move(STOPPED)
        ours = batch(b"ours", producer=BatchProducer(1, 0, 0), attributes=TRANSACTIONAL)
        promoted.partition.append_produced(memoryview(ours), -1, START_MS, is_verified=True)
        promoted.partition.append_marker(TransactionEnd(1, 1, 0, commit=True, transaction_version=2))
        end = promoted.end
    with open_harness(tmp_path) as harness:
        promoted = Promoted(harness)
        assert promoted.end == end
        assert [each.epoch for each in promoted.partition.log.producers.entries.values()] == [1]
        promoted.write(2)
        admit_clients(promoted.partition, None, Worker(harness.loop))
        assert promoted.end == end + 1


def test_partition_without_a_mirror_keeps_its_producers(harness: BrokerHarness) -> None:
    harness.create("t")
    harness.append("t", b"ours", producer=BatchProducer(0, 0, 0))
    admit_clients(harness.partition("t"), None, Worker(harness.loop))
    assert harness.partition("t").log.log_end_offset == 1


def test_promoted_topic_is_copied_again_only_when_its_markers_are_written(promoted: Promoted) -> None:
    partition, later = promoted.partition, Later(promoted.harness)
    refusal, row = partition.refusal, MetadataResponsePartition(leader_id=9, leader_epoch=SOURCE_EPOCH)
    assert reason_to_wait(partition, row) is None
    admit_clients(partition, None, busy(promoted.harness, later))
    assert reason_to_wait(partition, row)
    admit_clients(partition, refusal, busy(promoted.harness, later))
    assert reason_to_wait(partition, row) is None


def test_transaction_of_this_cluster_does_not_end_one_of_the_source(promoted: Promoted) -> None:
    """A producer of this cluster was refused, and aborts its transaction before the markers are written."""
    later = Later(promoted.harness)
    admit_clients(promoted.partition, None, busy(promoted.harness, later))
    topic = WritableTxnMarkerTopic("t", [0])
    marker = WritableTxnMarker(producer_id=1, producer_epoch=0, transaction_result=True, topics=[topic])
    [answer] = promoted.harness.ask(WriteTxnMarkersRequest(markers=[marker])).markers
    assert answer.topics[0].partitions[0].error_code == 0
    assert promoted.partition.last_stable_offset == 1


def test_topic_that_is_closed_meanwhile_stays_closed(promoted: Promoted) -> None:
    partition, later = promoted.partition, Later(promoted.harness)
    worker = busy(promoted.harness, later)
    refusal = partition.refusal
    admit_clients(partition, None, worker)
    admit_clients(partition, refusal, worker)
    while later.work:
        later.step()
    assert partition.refusal is refusal
    assert len(partition.log.producers.entries) == PRODUCERS
