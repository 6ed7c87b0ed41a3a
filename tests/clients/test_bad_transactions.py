"""Transactional requests that no sound client sends, over a raw socket. Stock Kafka defines the responses.

After each of them nothing is lost and nothing left open: the producer that behaves commits, and the last stable offset
is the end of the log.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    find_coordinator,
    init_producer_id,
    list_offsets,
    produce,
    txn_offset_commit,
    write_txn_markers,
)
from ottla.records.batch import TRANSACTIONAL
from tests.conftest import KAFKA, RunningBroker

from .conftest import MakeTopic
from .support import unique, wait_until
from .test_answers_in_detail import Asking
from .wire import batch

pytestmark = pytest.mark.both

INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, COORDINATOR_FENCED = 47, 49, 52
PRODUCER_FENCED, TRANSACTION_ABORTABLE = 90, 120
UNKNOWN_PRODUCER = 1 << 41
COMMITTED, LATEST = 1, -1
V1, V2 = 1, 2


class Writer(Asking):
    """Sends the requests of one transactional producer, of protocol 1 or 2, about partition 0 of one topic."""

    def __init__(self, broker: RunningBroker, topic: str, protocol: int = V1, transactional_id: str = "") -> None:
        super().__init__(broker.bootstrap, timeout_s=30.0)
        self.topic, self.protocol = topic, protocol
        self.transactional_id = transactional_id or unique("tx")
        self.group = unique("group")
        self.producer_id = self.epoch = -1
        self.sequence = 0
        for kind, name in ((0, self.group), (1, self.transactional_id)):
            request = find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
            wait_until(lambda: not self.send_message(request, 6).coordinators[0].error_code, f"coordinator: {name}")  # noqa: B023
        wait_until(lambda: self.init() == 0, "a producer id")
        assert self.init() == 0
        assert self.epoch == 1, "there is an earlier one"

    def init(self) -> int:
        request = init_producer_id.InitProducerIdRequest(self.transactional_id, 60_000)
        answer = self.send_message(request, 4)
        if not answer.error_code:
            self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return int(answer.error_code)

    def add(self) -> int:
        module = add_partitions_to_txn
        topics = [module.AddPartitionsToTxnTopic(self.topic, [0])]
        request = module.AddPartitionsToTxnRequest([], self.transactional_id, self.producer_id, self.epoch, topics)
        (topic,) = self.send_message(request, 3).results_by_topic_v3_and_below
        return int(topic.results_by_partition[0].partition_error_code)

    def add_group(self) -> int:
        module = add_offsets_to_txn
        request = module.AddOffsetsToTxnRequest(self.transactional_id, self.producer_id, self.epoch, self.group)
        return int(self.send_message(request, 3).error_code)

    def commit_offset(self) -> int:
        module = txn_offset_commit
        row = module.TxnOffsetCommitRequestPartition(0, 5)
        topics = [module.TxnOffsetCommitRequestTopic(self.topic, [row])]
        request = module.TxnOffsetCommitRequest(
            self.transactional_id, self.group, self.producer_id, self.epoch, topics=topics
        )
        (topic,) = self.send_message(request, 5 if self.protocol == V2 else 4).topics
        return int(topic.partitions[0].error_code)

    def send_record(self, value: bytes) -> int:
        records = batch(
            [value],
            attributes=TRANSACTIONAL,
            producer_id=self.producer_id,
            epoch=self.epoch,
            sequence=self.sequence,
        )
        data = [produce.PartitionProduceData(index=0, records=records)]
        topics = [produce.TopicProduceData(name=self.topic, partition_data=data)]
        request = produce.ProduceRequest(self.transactional_id, -1, 10_000, topics)
        answer = self.send_message(request, 12 if self.protocol == V2 else 11)
        (row,) = answer.responses[0].partition_responses
        self.sequence += not row.error_code
        return int(row.error_code)

    def write(self, value: bytes) -> None:
        """Write one record as a sound client does."""
        if self.protocol == V1:
            wait_until(lambda: self.add() == 0, "the previous transaction is complete")
        wait_until(lambda: self.send_record(value) == 0, "the partition belongs to the transaction")

    def end(self, *, commit: bool = True) -> int:
        request = end_txn.EndTxnRequest(self.transactional_id, self.producer_id, self.epoch, commit)
        answer = self.send_message(request, 5 if self.protocol == V2 else 4)
        if not answer.error_code and self.protocol == V2:
            self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return int(answer.error_code)

    def mark(self, *, epoch: int, coordinator_epoch: int = 0, commit: bool = True, version: int = 0) -> int:
        module = write_txn_markers
        topics = [module.WritableTxnMarkerTopic(self.topic, [0])]
        marker = module.WritableTxnMarker(self.producer_id, epoch, commit, topics, coordinator_epoch, version)
        (answer,) = self.send_message(module.WriteTxnMarkersRequest([marker]), 2).markers
        return int(answer.topics[0].partitions[0].error_code)

    def ends(self) -> tuple[int, int]:
        """The last stable offset and the high watermark."""
        found: list[int] = []
        for level in (COMMITTED, 0):
            topics = [list_offsets.ListOffsetsTopic(self.topic, [list_offsets.ListOffsetsPartition(0, -1, LATEST)])]
            request = list_offsets.ListOffsetsRequest(-1, level, topics)
            found.append(self.send_message(request, 8).topics[0].partitions[0].offset)
        return found[0], found[1]

    def wait_for_end(self, offset: int) -> None:
        """Committed readers reach `offset`, the end of the log: nothing is lost, and nothing is open."""
        wait_until(lambda: self.ends() == (offset, offset), f"committed readers reach the end {offset}")


@pytest.fixture(params=[V1, V2])
def writer(broker: RunningBroker, make_topic: MakeTopic, request: pytest.FixtureRequest) -> Iterator[Writer]:
    with Writer(broker, make_topic(), request.param) as connection:
        yield connection


def all_errors(writer: Writer) -> dict[str, int]:
    """The error of each request that a producer with this identity sends."""
    return {
        "add": writer.add(),
        "add_group": writer.add_group(),
        "produce": writer.send_record(b"bad"),
        "commit_offset": writer.commit_offset(),
        "end": writer.end(),
    }


WRONG_ID = {
    "add": INVALID_PRODUCER_ID_MAPPING,
    "add_group": INVALID_PRODUCER_ID_MAPPING,
    "produce": INVALID_PRODUCER_ID_MAPPING,
    "commit_offset": INVALID_PRODUCER_ID_MAPPING,
    "end": INVALID_PRODUCER_ID_MAPPING,
}
FENCED = {
    "add": PRODUCER_FENCED,
    "add_group": PRODUCER_FENCED,
    "produce": INVALID_PRODUCER_EPOCH,
    "commit_offset": INVALID_PRODUCER_EPOCH,
    "end": PRODUCER_FENCED,
}


def test_forged_producers_unknown_ids_and_wrong_epochs_change_nothing(broker: RunningBroker, writer: Writer) -> None:
    name, producer_id, epoch = writer.transactional_id, writer.producer_id, writer.epoch
    writer.transactional_id = unique("unknown")
    assert all_errors(writer) == WRONG_ID
    writer.transactional_id = name
    writer.write(b"open")
    sequence, writer.sequence = writer.sequence, 0
    writer.producer_id = UNKNOWN_PRODUCER
    assert all_errors(writer) == WRONG_ID
    writer.producer_id = producer_id
    for wrong in (epoch - 1, epoch + 1):
        writer.epoch = wrong
        assert all_errors(writer) == FENCED
    assert writer.ends() == (0, 1), "the transaction is still open"
    writer.epoch, writer.sequence = epoch, sequence
    records = 1
    if broker.kind != KAFKA:  # it remembers sequence 0 of the batch with the wrong epoch, and expects it next
        writer.write(b"also")
        records = 2
    assert writer.end() == 0
    writer.wait_for_end(records + 1)


def test_producer_that_another_one_replaced_is_fenced(writer: Writer) -> None:
    writer.write(b"aborted")
    old = writer.producer_id, writer.epoch, writer.sequence
    wait_until(lambda: writer.init() == 0, "the transaction of the former producer is aborted")
    writer.wait_for_end(2)
    new = writer.producer_id, writer.epoch, writer.sequence
    writer.producer_id, writer.epoch, writer.sequence = old
    assert all_errors(writer) == FENCED
    writer.producer_id, writer.epoch, writer.sequence = new
    writer.write(b"committed")
    assert writer.end() == 0
    writer.wait_for_end(4)


def test_records_and_offsets_of_an_ended_transaction_begin_no_other(writer: Writer) -> None:
    """They may be late; a transaction that begins with them would never end. KIP-890."""
    writer.write(b"in time")
    late = writer.producer_id, writer.epoch, writer.sequence
    assert writer.end() == 0
    writer.wait_for_end(2)
    following = writer.producer_id, writer.epoch, writer.sequence
    writer.producer_id, writer.epoch, writer.sequence = late
    error = TRANSACTION_ABORTABLE if writer.protocol == V1 else INVALID_PRODUCER_EPOCH
    assert (writer.send_record(b"late"), writer.commit_offset()) == (error, error)
    writer.wait_for_end(2)
    if writer.protocol == V2:
        assert (writer.add(), writer.add_group()) == (PRODUCER_FENCED, PRODUCER_FENCED)
        writer.producer_id, writer.epoch, writer.sequence = following
    writer.write(b"next")
    assert writer.end() == 0
    writer.wait_for_end(4)


def test_markers_out_of_order_do_not_end_a_transaction(writer: Writer) -> None:
    writer.write(b"open")
    assert writer.mark(epoch=writer.epoch - 1) == INVALID_PRODUCER_EPOCH
    assert writer.mark(epoch=writer.epoch, version=2) == INVALID_PRODUCER_EPOCH, "a late one of version 2"
    assert writer.ends() == (0, 1)
    assert writer.end() == 0
    writer.wait_for_end(2)
    assert writer.mark(epoch=writer.epoch, coordinator_epoch=-1) == COORDINATOR_FENCED
    writer.write(b"next")
    assert writer.mark(epoch=writer.epoch, coordinator_epoch=-1, commit=False) == COORDINATOR_FENCED
    assert writer.ends() == (2, 3)
    assert writer.end() == 0
    writer.wait_for_end(4)
