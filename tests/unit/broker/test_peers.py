"""Requests of a broker to other brokers: how they are batched, and what each answer or lost connection means."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import finish
from ottla.coordination.peers.batching import MOST_IN_REQUEST, PeerQueue
from ottla.coordination.peers.end_offsets import EndOffsetKind
from ottla.coordination.peers.markers import MarkerKind, Markers, write_everywhere
from ottla.coordination.peers.share_states import ATTEMPTS, REQUEST_TYPES, ShareStateKind, ShareStates
from ottla.coordination.peers.transaction_partitions import AddPartitionsKind
from ottla.coordinators.share.events import (
    DeleteState,
    InitializeState,
    ReadState,
    ReadSummary,
    Result,
    ShareKey,
    WriteState,
)
from ottla.coordinators.share.state_batches import StateBatch
from ottla.coordinators.transaction.events import AddPartitions
from ottla.log.transaction_marker import TransactionEnd
from ottla.metadata.image import NO_LEADER, PartitionImage
from ottla.protocol.message import Message
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.write_txn_markers import WriteTxnMarkersResponse
from ottla.records import BatchProducer
from ottla.records.batch import TRANSACTIONAL

from .harness import BrokerHarness, open_harness

HERE, OTHER, THIRD = 1, 2, 3
PRODUCER = 7
LOST = KafkaError(ErrorCode.NETWORK_EXCEPTION, "connection lost")


class OtherBroker:
    """`Peers` of which each is the broker of `harness`. While `held`, requests wait; `lost` makes them fail."""

    def __init__(self, harness: BrokerHarness) -> None:
        self.harness = harness
        self.requests: list[tuple[int, Any]] = []
        self.held: list[Callable[[], None]] | None = None
        self.lost = False

    def ask(self, node_id: int, request: Message, *, timeout_s: float, least_version: int = 0) -> Completion[Any]:
        assert timeout_s > 0
        assert least_version <= request.MAX_VERSION
        self.requests.append((node_id, request))
        answer: Completion[Any] = Completion()
        if self.lost:
            answer.fail(LOST)
        elif self.held is not None:
            self.held.append(lambda: self._answer(request, answer))
        else:
            self._answer(request, answer)
        return answer

    def _answer(self, request: Message, answer: Completion[Any]) -> None:
        if self.lost:
            answer.fail(LOST)
        else:
            answer.complete(self.harness.ask(request))

    def release(self) -> None:
        held, self.held = self.held or [], None
        for answer in held:
            answer()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[OtherBroker]:
    with open_harness(tmp_path) as harness:
        yield OtherBroker(harness)


# -- markers -----------------------------------------------------------------------------------------------------------


def end(producer_id: int = PRODUCER, coordinator_epoch: int = 0) -> TransactionEnd:
    return TransactionEnd(producer_id, 3, coordinator_epoch, commit=True)


def begin(harness: BrokerHarness, topic: str, index: int = 0, producer_id: int = PRODUCER) -> None:
    producer = BatchProducer(producer_id, 3, 0)
    harness.append(topic, b"v", index=index, producer=producer, attributes=TRANSACTIONAL)


def is_open(harness: BrokerHarness, topic: str, index: int = 0) -> bool:
    partition = harness.partition(topic, index)
    return partition.last_stable_offset < partition.high_watermark


def test_markers_that_wait_for_a_broker_are_sent_in_one_request(other: OtherBroker) -> None:
    other.harness.create("t", partitions=3)
    for producer in range(3):
        begin(other.harness, "t", producer, producer_id=producer)
    queue = PeerQueue(MarkerKind(), other)
    other.held = []
    answers = [queue.ask(OTHER, Markers(end(producer), (("t", producer),))) for producer in range(3)]
    again = queue.ask(OTHER, Markers(end(2), (("t", 2),)))
    assert not any(answer.done for answer in answers)
    other.release()
    assert [answer.result() for answer in answers] == [{("t", index): ErrorCode.NONE} for index in range(3)]
    assert again.result() == {("t", 2): ErrorCode.NONE}
    assert [len(request.markers) for _, request in other.requests] == [1, 2, 1], "one marker of each producer"
    assert not any(is_open(other.harness, "t", index) for index in range(3))


def test_each_question_is_answered_once_after_a_lost_connection(other: OtherBroker) -> None:
    queue = PeerQueue(MarkerKind(), other)
    other.held = []
    answers = [queue.ask(OTHER, Markers(end(producer), (("t", 0),))) for producer in range(2 * MOST_IN_REQUEST)]
    other.lost = True
    other.release()
    assert {answer.result()["t", 0] for answer in answers} == {ErrorCode.NETWORK_EXCEPTION}
    assert len(other.requests) == 3
    other.lost = False
    assert queue.ask(OTHER, Markers(end(), (("missing", 0),))).done


def test_brokers_do_not_wait_for_each_other(other: OtherBroker) -> None:
    other.harness.create("t")
    queue = PeerQueue(MarkerKind(), other)
    other.held = []
    slow = queue.ask(OTHER, Markers(end(), (("t", 0),)))
    held, other.held = other.held, None
    assert queue.ask(THIRD, Markers(end(), (("t", 0),))).done
    assert not slow.done
    held[0]()
    assert slow.done


class Cluster:
    """A broker that leads what `leaders` says, and another one."""

    def __init__(self, other: OtherBroker, **leaders: int) -> None:
        partitions = {
            name: SimpleNamespace(partitions={0: PartitionImage((1, 2), (1, 2), leader, 5, 0)})
            for name, leader in leaders.items()
        }
        self.broker: Any = SimpleNamespace(
            node_id=HERE,
            metadata=SimpleNamespace(image=SimpleNamespace(topics_by_name=partitions)),
            partitions=other.harness.broker.partitions,
            groups=other.harness.broker.groups,
            peers=SimpleNamespace(markers=PeerQueue(MarkerKind(), other)),
        )

    def write(self, *partitions: tuple[str, int]) -> dict[tuple[str, int], ErrorCode]:
        return finish(write_everywhere(self.broker, end(), partitions))


def test_markers_go_to_the_leader_of_each_partition(other: OtherBroker) -> None:
    for topic in ("a", "b", "c"):
        other.harness.create(topic)
        begin(other.harness, topic)
    cluster = Cluster(other, a=HERE, b=OTHER, c=OTHER, d=NO_LEADER)
    outcomes = cluster.write(("a", 0), ("b", 0), ("c", 0), ("d", 0), ("deleted", 0))
    assert outcomes == {
        ("a", 0): ErrorCode.NONE,
        ("b", 0): ErrorCode.NONE,
        ("c", 0): ErrorCode.NONE,
        ("d", 0): ErrorCode.LEADER_NOT_AVAILABLE,
        ("deleted", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    ((node_id, request),) = other.requests
    assert node_id == OTHER
    assert [topic.name for topic in request.markers[0].topics] == ["b", "c"]
    assert not any(is_open(other.harness, topic) for topic in ("a", "b", "c"))


@pytest.mark.parametrize("leader", [HERE, OTHER])
def test_partition_that_its_leader_does_not_know_yet_is_not_taken_for_deleted(other: OtherBroker, leader: int) -> None:
    assert Cluster(other, new=leader).write(("new", 0)) == {("new", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_marker_of_an_earlier_coordinator_is_fenced(other: OtherBroker) -> None:
    other.harness.create("t")
    begin(other.harness, "t")
    queue = PeerQueue(MarkerKind(), other)
    queue.ask(OTHER, Markers(end(coordinator_epoch=4), (("t", 0),)))
    late = queue.ask(OTHER, Markers(end(coordinator_epoch=3), (("t", 0),)))
    assert late.result() == {("t", 0): ErrorCode.TRANSACTION_COORDINATOR_FENCED}


def test_error_code_that_is_not_known_is_an_unknown_server_error() -> None:
    module = pytest.importorskip("ottla.protocol.messages.write_txn_markers")
    row = module.WritableTxnMarkerPartitionResult(0, 9999)
    topic = module.WritableTxnMarkerTopicResult("t", [row])
    response = WriteTxnMarkersResponse([module.WritableTxnMarkerResult(PRODUCER, [topic])])
    answers = MarkerKind().answers([Markers(end(), (("t", 0),))], response)
    assert answers == [{("t", 0): ErrorCode.UNKNOWN_SERVER_ERROR}]


# -- partitions of transactions ----------------------------------------------------------------------------------------


def initialize(harness: BrokerHarness, transactional_id: str) -> AddPartitions:
    harness.ask(FindCoordinatorRequest(key=transactional_id, key_type=1), 3)
    harness.loop.advance(100)
    answer = harness.ask(InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000), 4)
    assert answer.error_code == ErrorCode.NONE
    return AddPartitions(transactional_id, answer.producer_id, answer.producer_epoch, (("t", 0), ("t", 1)))


def test_partitions_are_added_and_verified_at_another_broker(other: OtherBroker) -> None:
    other.harness.create("t", partitions=2)
    add = initialize(other.harness, "app")
    verify = AddPartitions("app", add.producer_id, add.producer_epoch, (("t", 0),), verify_only=True)
    queue = PeerQueue(AddPartitionsKind(), other)
    assert queue.ask(OTHER, verify).result() == {("t", 0): ErrorCode.TRANSACTION_ABORTABLE}
    assert set(queue.ask(OTHER, add).result().values()) == {ErrorCode.NONE}
    assert queue.ask(OTHER, verify).result() == {("t", 0): ErrorCode.NONE}


def test_topic_that_the_coordinator_does_not_know_yet_is_retried(other: OtherBroker) -> None:
    add = initialize(other.harness, "app")
    answer = PeerQueue(AddPartitionsKind(), other).ask(OTHER, add)
    assert set(answer.result().values()) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_lost_connection_to_a_transaction_coordinator_is_retried(other: OtherBroker) -> None:
    other.lost = True
    answer = PeerQueue(AddPartitionsKind(), other).ask(OTHER, AddPartitions("app", 1, 0, (("t", 0),)))
    assert answer.result() == {("t", 0): ErrorCode.NETWORK_EXCEPTION}


# -- share state -------------------------------------------------------------------------------------------------------


class Shares:
    """The share states of a broker that coordinates none of them."""

    def __init__(self, other: OtherBroker) -> None:
        self.other = other
        self.key = ShareKey("g", other.harness.create("t"), 0)
        other.harness.broker.shares.coordinator.shards.topic.ensure()
        other.harness.loop.advance(100)
        self.leader = OTHER
        topic = SimpleNamespace(leader_of=lambda _key: self.leader)
        here: Any = SimpleNamespace(
            submit=lambda _request: Completion.of(Result(ErrorCode.NOT_COORDINATOR)),
            shards=SimpleNamespace(topic=topic),
        )
        queues = {each: PeerQueue(ShareStateKind(each), other) for each in REQUEST_TYPES}
        self.states = ShareStates(here, HERE, lambda: queues, other.harness.loop.call_later)

    def ask(self, request: Any) -> Result:
        return self.states.submit(request).result()


@pytest.fixture
def shares(other: OtherBroker) -> Shares:
    return Shares(other)


def test_share_state_is_stored_at_another_broker(shares: Shares) -> None:
    key = shares.key
    assert shares.ask(InitializeState(key, 1, 10)) == Result()
    batches = (StateBatch(10, 19, 2, 1), StateBatch(20, 29, 0, 1))
    assert shares.ask(WriteState(key, 1, 4, 10, 10, batches)) == Result()
    read = shares.ask(ReadState(key, 5))
    assert (read.error, read.state_epoch, read.start_offset, read.batches) == (ErrorCode.NONE, 1, 10, batches)
    summary = shares.ask(ReadSummary(key))
    assert (summary.leader_epoch, summary.start_offset, summary.state_epoch) == (5, 10, 1)
    assert shares.ask(WriteState(key, 1, 4, 10, 10, ())).error is ErrorCode.FENCED_LEADER_EPOCH
    assert shares.ask(DeleteState(key)) == Result()
    assert shares.ask(ReadState(key, 5)).error is ErrorCode.INVALID_REQUEST


def test_repeated_initialization_does_not_reset_state_at_another_broker(shares: Shares) -> None:
    first = InitializeState(shares.key, 1, -1, keeps_existing=True)
    assert shares.ask(first) == Result()
    assert shares.ask(WriteState(shares.key, 1, 0, 7, 0, ())) == Result()
    assert shares.ask(first) == Result()
    assert shares.ask(ReadSummary(shares.key)).start_offset == 7


@pytest.mark.parametrize("is_lost", [True, False])
def test_request_for_share_state_is_retried_when_its_coordinator_moves(shares: Shares, is_lost: bool) -> None:
    shares.ask(InitializeState(shares.key, 1, 10))
    if is_lost:
        shares.other.lost = True
    else:
        shares.leader = NO_LEADER
    answer = shares.states.submit(ReadSummary(shares.key))
    assert not answer.done
    shares.other.lost, shares.leader = False, OTHER
    shares.other.harness.loop.advance(10_000)
    assert answer.result().start_offset == 10


def test_share_coordinator_that_does_not_come_back_is_not_available(shares: Shares) -> None:
    shares.other.lost = True
    answer = shares.states.submit(ReadSummary(shares.key))
    shares.other.harness.loop.advance(10_000)
    assert answer.result().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(shares.other.requests) == ATTEMPTS


def test_questions_about_one_group_are_one_request(shares: Shares) -> None:
    shares.other.held = []
    keys = [shares.key, ShareKey("h", shares.key.topic_id, 0), ShareKey("h", shares.key.topic_id, 1), shares.key]
    answers = [shares.states.submit(ReadSummary(key)) for key in keys]
    shares.other.release()
    shares.other.harness.loop.advance(1_000)
    assert all(answer.done for answer in answers)
    sizes = [(request.group_id, len(request.topics[0].partitions)) for _, request in shares.other.requests]
    assert sizes == [("g", 1), ("h", 2), ("g", 1)]


def test_end_offsets_are_the_leaders_end_offsets(other: OtherBroker) -> None:
    other.harness.create("t", partitions=2)
    other.harness.append("t", b"a", b"b", index=1)
    queue = PeerQueue(EndOffsetKind(), other)
    assert [queue.ask(OTHER, ("t", index)).result() for index in (0, 1)] == [0, 2]
    missing = queue.ask(OTHER, ("missing", 0)).result()
    assert isinstance(missing, KafkaError)
    assert missing.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    other.lost = True
    assert queue.ask(OTHER, ("t", 0)).result() is LOST
