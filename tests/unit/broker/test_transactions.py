"""Transactions through the requests of producers: both protocols, what is refused, and what readers see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.common.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.coordination.peers.batching import PeerQueue
from ottla.coordinators.transaction.events import AddPartitions
from ottla.metadata.image import TOPIC
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.records import BatchProducer
from ottla.records.batch import TRANSACTIONAL

from .harness import BrokerHarness, batch, open_harness, produce_request

ID = "app-1"
V1, V2 = 1, 2
# The versions of Produce, TxnOffsetCommit and EndTxn that a producer of each protocol uses.
VERSIONS = {V1: (11, 4, 4), V2: (12, 5, 5)}


class TransactionalProducer:
    """Sends the requests of a producer; `protocol` is its transaction version."""

    def __init__(self, harness: BrokerHarness, protocol: int, transactional_id: str = ID) -> None:
        self.harness = harness
        self.protocol = protocol
        self.transactional_id = transactional_id
        self.produce_version, self.commit_version, self.end_version = VERSIONS[protocol]
        self.sequences: dict[str, int] = {}
        self.producer_id = self.epoch = -1

    def init(self, timeout_ms: int = 60_000) -> ErrorCode:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms)
        answer = self.harness.ask(request, 4)
        self.producer_id, self.epoch, self.sequences = answer.producer_id, answer.producer_epoch, {}
        return ErrorCode(answer.error_code)

    def add(self, topic: str) -> ErrorCode:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(topic, [0])],
        )
        topics = self.harness.ask(request, 3).results_by_topic_v3_and_below
        return ErrorCode(topics[0].results_by_partition[0].partition_error_code)

    def start(self, topic: str, value: bytes) -> Any:
        data = batch(
            value,
            producer=BatchProducer(self.producer_id, self.epoch, self.sequences.get(topic, 0)),
            attributes=TRANSACTIONAL,
        )
        request = produce_request((topic, {0: data}))
        request.transactional_id = self.transactional_id
        return self.harness.start(request, self.produce_version)

    def produce(self, topic: str, value: bytes = b"v") -> ErrorCode:
        answer = self.start(topic, value)
        self.harness.loop.advance(1_000)
        if isinstance(answer, Completion):
            answer = answer.result()
        error = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if error is ErrorCode.NONE:
            self.sequences[topic] = self.sequences.get(topic, 0) + 1
        return error

    def send(self, topic: str, value: bytes = b"v") -> None:
        if self.protocol == V1:
            assert self.add(topic) is ErrorCode.NONE
        assert self.produce(topic, value) is ErrorCode.NONE

    def commit_offset(self, offset: int, group: str = "g") -> ErrorCode:
        if self.protocol == V1:
            request = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group,
            )
            error = ErrorCode(self.harness.ask(request, 3).error_code)
            assert error is ErrorCode.NONE
        row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        commit = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[row])],
        )
        answer = self.harness.ask(commit, self.commit_version)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def end(self, *, commit: bool = True) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        answer = self.harness.ask(request, self.end_version)
        if not answer.error_code and self.protocol == V2:
            self.producer_id, self.epoch, self.sequences = answer.producer_id, answer.producer_epoch, {}
        return ErrorCode(answer.error_code)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BrokerHarness]:
    names = ("transaction.state.log.num.partitions", "offsets.topic.num.partitions")
    with open_harness(tmp_path, {**dict.fromkeys(names, "3"), "transaction.state.log.min.isr": "2"}) as harness:
        for kind in (0, 1):
            found = harness.ask(FindCoordinatorRequest(key=ID, key_type=kind), 3)
            assert (found.error_code, found.node_id) == (0, 1)
        harness.create("t")
        yield harness


@pytest.fixture(params=[V1, V2])
def producer(cluster: BrokerHarness, request: pytest.FixtureRequest) -> TransactionalProducer:
    producer = TransactionalProducer(cluster, request.param)
    assert producer.init() is ErrorCode.NONE
    return producer


def stable(harness: BrokerHarness, topic: str = "t") -> int:
    return harness.partition(topic).last_stable_offset


def state(harness: BrokerHarness) -> str:
    described = harness.ask(DescribeTransactionsRequest(transactional_ids=[ID])).transaction_states[0]
    assert not described.error_code
    return str(described.transaction_state)


def committed(harness: BrokerHarness) -> int:
    wanted = OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])])
    row = harness.ask(OffsetFetchRequest(groups=[wanted], require_stable=True), 8).groups[0].topics[0].partitions[0]
    return -100 - row.error_code if row.error_code else int(row.committed_offset)


def test_first_coordinator_lookup_creates_the_topic(cluster: BrokerHarness) -> None:
    topic = cluster.broker.metadata.image.topics_by_name[TRANSACTIONS_TOPIC]
    assert len(topic.partitions) == 3
    assert cluster.broker.metadata.image.config(TOPIC, TRANSACTIONS_TOPIC) == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }


@pytest.mark.parametrize("commit", [True, False])
def test_transaction_ends_in_all_partitions_and_in_the_group(producer: TransactionalProducer, commit: bool) -> None:
    harness = producer.harness
    harness.create("u")
    for number in range(3):
        producer.send("t")
        producer.send("u")
        assert producer.commit_offset(number + 5) is ErrorCode.NONE
        assert committed(harness) == -100 - ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert state(harness) == "Ongoing"
        assert stable(harness) == 2 * number
        assert producer.end(commit=commit) is ErrorCode.NONE
        assert state(harness) == ("CompleteCommit" if commit else "CompleteAbort")
        assert stable(harness) == stable(harness, "u") == 2 * number + 2
        assert committed(harness) == (number + 5 if commit else -1)


def test_second_instance_fences_the_first_and_aborts_its_transaction(producer: TransactionalProducer) -> None:
    producer.send("t")
    second = TransactionalProducer(producer.harness, producer.protocol)
    assert second.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert second.init() is ErrorCode.NONE
    assert stable(producer.harness) == 2
    assert producer.produce("t") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.end() is ErrorCode.PRODUCER_FENCED
    second.send("t")
    assert second.end() is ErrorCode.NONE


def test_partition_that_was_not_added_is_rejected(cluster: BrokerHarness) -> None:
    producer = TransactionalProducer(cluster, V1)
    producer.init()
    assert producer.produce("t") is ErrorCode.TRANSACTION_ABORTABLE
    producer.produce_version = 10
    assert producer.produce("t") is ErrorCode.INVALID_TXN_STATE
    assert not cluster.partition("t").log.log_end_offset


def test_partition_of_another_producer_is_rejected(cluster: BrokerHarness) -> None:
    cluster.create("u")
    old = TransactionalProducer(cluster, V1)
    old.init()
    producer = TransactionalProducer(cluster, V1)
    producer.init()
    producer.send("t")
    assert old.produce("t") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.add("u") is ErrorCode.NONE
    assert old.produce("u") is ErrorCode.INVALID_PRODUCER_EPOCH
    old.producer_id += 1
    assert old.produce("u") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert not cluster.partition("u").log.log_end_offset


def test_batch_that_arrives_after_its_transaction_begins_no_other(producer: TransactionalProducer) -> None:
    producer.send("t")
    late = TransactionalProducer(producer.harness, producer.protocol)
    late.producer_id, late.epoch, late.sequences = producer.producer_id, producer.epoch, {"t": 1}
    assert producer.end() is ErrorCode.NONE
    expected = {V1: ErrorCode.TRANSACTION_ABORTABLE, V2: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert late.produce("t") is expected[producer.protocol]
    assert stable(producer.harness) == producer.harness.partition("t").high_watermark


def test_transactional_batch_without_a_transactional_id_is_rejected(producer: TransactionalProducer) -> None:
    data = batch(b"v", producer=BatchProducer(producer.producer_id, 0, 0), attributes=TRANSACTIONAL)
    answer = producer.harness.produce(("t", {0: data}))
    error = answer.responses[0].partition_responses[0].error_code
    assert error == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_transactions_of_two_producers_in_one_request_are_rejected(producer: TransactionalProducer) -> None:
    harness = producer.harness
    harness.create("u")
    other = TransactionalProducer(harness, producer.protocol, "other")
    assert other.init() is ErrorCode.NONE
    producer.send("t")
    other.send("u")
    batches = [
        batch(b"v", producer=BatchProducer(each.producer_id, 0, 1), attributes=TRANSACTIONAL)
        for each in (producer, other)
    ]
    request = produce_request(("t", {0: batches[0]}), ("u", {0: batches[1]}))
    request.transactional_id = ID
    answer = harness.ask(request, producer.produce_version)
    errors = [topic.partition_responses[0].error_code for topic in answer.responses]
    assert errors == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2


def test_first_batch_of_a_transaction_of_version_2_has_sequence_0(cluster: BrokerHarness) -> None:
    producer = TransactionalProducer(cluster, V2)
    producer.init()
    producer.sequences["t"] = 4
    assert producer.produce("t") is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state(cluster) == "Empty"


def test_overdue_transaction_is_aborted(producer: TransactionalProducer) -> None:
    producer.init(timeout_ms=5_000)
    producer.send("t")
    producer.harness.loop.advance(30_000)
    assert state(producer.harness) == "CompleteAbort"
    assert stable(producer.harness) == 2


def hold_decisions(harness: BrokerHarness) -> None:
    """From now on, records of the transaction coordinator are committed when `harness.threads.finish` is called."""
    for partition in harness.broker.partitions:
        if partition.topic_partition.topic == TRANSACTIONS_TOPIC:
            partition.log.reconfigure(replace(partition.log.config, flush_messages=1))
    harness.threads.held = True


def test_batch_waits_until_its_partition_is_added_on_disk(cluster: BrokerHarness) -> None:
    producer = TransactionalProducer(cluster, V1)
    producer.init()
    hold_decisions(cluster)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic("t", [0])],
    )
    added = cluster.start(request, 3)
    answer = producer.start("t", b"v")
    cluster.loop.run()
    assert not added.done
    assert cluster.partition("t").log.log_end_offset == 0
    cluster.threads.finish()
    cluster.loop.run()
    assert answer.result().responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert cluster.partition("t").log.log_end_offset == 1


def test_markers_wait_until_the_decision_is_on_disk(producer: TransactionalProducer) -> None:
    harness = producer.harness
    producer.send("t")
    hold_decisions(harness)
    request = EndTxnRequest(
        transactional_id=ID, producer_id=producer.producer_id, producer_epoch=producer.epoch, committed=True
    )
    answer = harness.start(request, producer.end_version)
    harness.loop.run()
    assert not answer.done
    assert stable(harness) == 0
    harness.threads.finish()
    harness.loop.run()
    assert answer.result().error_code == ErrorCode.NONE
    assert stable(harness) == 2


def test_answer_of_the_coordinator_is_void_after_a_marker(cluster: BrokerHarness) -> None:
    producer = TransactionalProducer(cluster, V1)
    producer.init()
    assert producer.add("t") is ErrorCode.NONE
    transactions = cluster.broker.transactions
    late: Completion[Any] = Completion()
    answers, add = [late], transactions.add
    transactions.add = lambda *question: answers.pop() if answers else add(*question)  # type: ignore[method-assign]
    transactions.has_open = lambda *_: False  # type: ignore[method-assign]
    answer = producer.start("t", b"late")
    cluster.loop.run()
    assert not answer.done
    assert producer.end(commit=False) is ErrorCode.NONE
    late.complete({("t", 0): ErrorCode.NONE})
    cluster.loop.advance(1_000)
    row = answer.result().responses[0].partition_responses[0]
    assert row.error_code == ErrorCode.TRANSACTION_ABORTABLE
    assert stable(cluster) == cluster.partition("t").high_watermark


def test_topic_that_is_deleted_does_not_hold_up_its_transactions(producer: TransactionalProducer) -> None:
    producer.send("t")
    producer.harness.delete("t")
    assert producer.end(commit=True) is ErrorCode.NONE
    assert state(producer.harness) == "CompleteCommit"


def test_transactions_are_listed(producer: TransactionalProducer) -> None:
    producer.send("t")
    harness = producer.harness
    answer = harness.ask(ListTransactionsRequest(state_filters=["Ongoing", "Open"]), 1)
    assert [row.transactional_id for row in answer.transaction_states] == [ID]
    assert answer.unknown_state_filters == ["Open"]
    assert not harness.ask(ListTransactionsRequest(state_filters=["Empty"]), 1).transaction_states
    unknown = harness.ask(DescribeTransactionsRequest(transactional_ids=["x"])).transaction_states[0]
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_missing_partition_prevents_that_others_are_added(cluster: BrokerHarness) -> None:
    producer = TransactionalProducer(cluster, V1)
    producer.init()
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=ID,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[AddPartitionsToTxnTopic("t", [0, 1])],
    )
    answer = cluster.ask(AddPartitionsToTxnRequest(transactions=[transaction]), 5)
    rows = answer.results_by_transaction[0].topic_results[0].results_by_partition
    errors = {row.partition_index: row.partition_error_code for row in rows}
    assert errors == {0: ErrorCode.OPERATION_NOT_ATTEMPTED, 1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert state(cluster) == "Empty"


def test_offsets_of_an_unknown_topic_or_transaction_are_rejected(producer: TransactionalProducer) -> None:
    harness = producer.harness
    harness.delete("t")
    assert producer.commit_offset(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    harness.create("t")
    producer.producer_id += 1
    producer.protocol = V2  # without AddOffsetsToTxn
    assert producer.commit_offset(3) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert OFFSETS_TOPIC in harness.broker.metadata.image.topics_by_name


@pytest.mark.parametrize(
    ("answer", "produced", "committed_offset"),
    [
        (ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_transaction_of_a_coordinator_on_another_broker_is_verified_there(
    cluster: BrokerHarness,
    monkeypatch: pytest.MonkeyPatch,
    answer: ErrorCode,
    produced: ErrorCode,
    committed_offset: ErrorCode,
) -> None:
    producer = TransactionalProducer(cluster, V2)
    producer.init()
    asked: list[AddPartitions] = []

    def ask(_queue: Any, node_id: int, question: AddPartitions) -> Completion[Any]:
        assert node_id == 2
        asked.append(question)
        return Completion.of(dict.fromkeys(question.partitions, answer))

    monkeypatch.setattr(PeerQueue, "ask", ask)
    monkeypatch.setattr(cluster.broker.transactions.shards.topic, "leader_of", lambda _id: 2)
    assert producer.produce("t") is produced
    assert producer.commit_offset(5) is committed_offset
    assert [(question.transactional_id, question.verify_only) for question in asked] == [(ID, False)] * 2
