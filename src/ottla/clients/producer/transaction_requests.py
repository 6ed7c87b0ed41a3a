"""The requests of a transaction, and what the responses to them mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from ottla.clients.network import GROUP, TRANSACTION
from ottla.clients.producer.effects import AskCoordinator
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition, by_topic
from ottla.protocol.message import Message
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

if TYPE_CHECKING:
    from ottla.clients.offsets import OffsetAndMetadata

# The newest version of Produce, and of other requests below, that belongs to protocol 1.
NEWEST_V1_PRODUCE = 11
NEWEST_V1_END = 4
NEWEST_V1_OFFSETS = 4
NEWEST_ADD_PARTITIONS = 3  # later versions are for brokers
OLDEST_V2_END = 5
OLDEST_V2_OFFSETS = 5
# From this version on a producer names its id and epoch, so that it cannot take over from a newer one (KIP-360).
OLDEST_NEW_EPOCH = 3
NEWEST_INITIALIZE = 5
# The previous transaction of this id is still being completed; that takes a few ms.
CONCURRENT_BACKOFF_MS = 20


class Verdict(IntEnum):
    """The meaning of a response. The verdict of several partitions is the greatest one."""

    DONE = 0
    RETRY = 1
    MOVED = 2  # retry after another lookup of the coordinator
    ABORT = 3
    FATAL = 4
    FENCED = 5


class Identity(NamedTuple):
    """The producer as coordinators know it."""

    transactional_id: str
    producer_id: int
    epoch: int


class OffsetsOfGroup:
    __slots__ = ("generation", "group_id", "instance_id", "member_id", "offsets")

    def __init__(
        self, group_id: str, generation: int, member_id: str, instance_id: str | None,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:  # fmt: skip
        self.group_id = group_id
        self.generation = generation
        self.member_id = member_id
        self.instance_id = instance_id
        self.offsets = offsets


class Registered:
    """The parts of a transaction that its coordinator knows."""

    __slots__ = ("groups", "is_started", "partitions", "wanted")

    def __init__(self) -> None:
        self.is_started = False  # the coordinator may know the transaction, so EndTxn is needed
        self.partitions: set[tuple[str, int]] = set()  # that may be written to
        self.wanted: set[tuple[str, int]] = set()  # to be registered, with protocol 1
        self.groups: set[str] = set()  # registered, with protocol 1


class Exchange:
    """The request in flight to the coordinator, at most one, and the pause before the next one."""

    __slots__ = ("_backoff_ms", "_forgets_coordinator", "failures", "not_before_ms", "sent", "unconfirmed")

    def __init__(self, backoff_ms: Callable[[int], int]) -> None:
        self.sent: AskCoordinator | None = None
        self.unconfirmed: AskCoordinator | None = None  # a registration without a response
        self.failures = 0  # in a row
        self.not_before_ms = 0
        self._backoff_ms = backoff_ms
        self._forgets_coordinator = False

    def may_send(self, now_ms: int) -> bool:
        return self.sent is None and now_ms >= self.not_before_ms

    def begin(self, request: AskCoordinator) -> None:
        request.forget, self._forgets_coordinator = self._forgets_coordinator, False
        self.sent = request

    def take(self) -> AskCoordinator:
        """End the exchange with a response or its loss; returns the request."""
        assert self.sent is not None
        request, self.sent = self.sent, None
        return request

    def retry(self, code: int, now_ms: int, *, has_moved: bool) -> None:
        """Pause before the next request, which looks up the coordinator again if it `has_moved`."""
        backoff_ms = self._backoff_ms(self.failures)
        if code == ErrorCode.CONCURRENT_TRANSACTIONS:
            backoff_ms = min(backoff_ms, CONCURRENT_BACKOFF_MS)
        self.failures += 1
        self.not_before_ms = max(self.not_before_ms, now_ms + backoff_ms)
        self._forgets_coordinator = has_moved


# --- requests ---------------------------------------------------------------------------------------------------------


def initialize(identity: Identity, timeout_ms: int) -> AskCoordinator:
    """The first id of the producer, or a new epoch of its id."""
    request = InitProducerIdRequest(
        transactional_id=identity.transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
    )
    is_first = identity.producer_id < 0
    return _ask(identity, request, oldest=0 if is_first else OLDEST_NEW_EPOCH, newest=NEWEST_INITIALIZE)


def add_partitions(identity: Identity, partitions: Iterable[tuple[str, int]]) -> AskCoordinator:
    """Register partitions before they are written to."""
    added = frozenset(partitions)
    topics = by_topic(TopicPartition(*partition) for partition in sorted(added))
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=identity.transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=rows) for name, rows in topics.items()],
    )
    ask = _ask(identity, request, newest=NEWEST_ADD_PARTITIONS)
    ask.is_registration = True
    ask.partitions = added
    return ask


def add_group(identity: Identity, group_id: str) -> AskCoordinator:
    ask = _ask(identity, AddOffsetsToTxnRequest(*identity, group_id))
    ask.is_registration = True
    ask.group_id = group_id
    return ask


def commit_offsets(identity: Identity, offsets: OffsetsOfGroup, *, is_v2: bool) -> AskCoordinator:
    """Commit offsets of a group; the group's coordinator takes this request."""
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for tp, row in offsets.offsets.items():
        part = TxnOffsetCommitRequestPartition(tp.partition, row.offset, row.leader_epoch, row.metadata)
        topics.setdefault(tp.topic, []).append(part)
    request = TxnOffsetCommitRequest(
        transactional_id=identity.transactional_id,
        group_id=offsets.group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id=offsets.generation,
        member_id=offsets.member_id,
        group_instance_id=offsets.instance_id,
        topics=[TxnOffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()],
    )
    # Older brokers would commit with the generation of another member (KIP-447).
    least_v1 = 3 if offsets.generation >= 0 or offsets.member_id else 0
    oldest, newest = (OLDEST_V2_OFFSETS, None) if is_v2 else (least_v1, NEWEST_V1_OFFSETS)
    ask = AskCoordinator(request, offsets.group_id, GROUP, oldest, newest)
    ask.offsets = offsets
    return ask


def end_transaction(identity: Identity, *, is_commit: bool, is_v2: bool) -> AskCoordinator:
    oldest, newest = (OLDEST_V2_END, None) if is_v2 else (0, NEWEST_V1_END)
    return _ask(identity, EndTxnRequest(*identity, is_commit), oldest=oldest, newest=newest)


def _ask(identity: Identity, request: Message, *, oldest: int = 0, newest: int | None = None) -> AskCoordinator:
    return AskCoordinator(request, identity.transactional_id, TRANSACTION, oldest, newest)


# --- responses --------------------------------------------------------------------------------------------------------

_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
# Errors that make a transaction impossible to commit, for requests whose other errors are fatal.
_ABORT = frozenset(
    {
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }
)
# Errors that stop the producer, for requests whose other errors make the transaction impossible to commit.
_FATAL = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
_HINTS = {
    ErrorCode.INVALID_TXN_STATE: (
        "the coordinator has ended the transaction, for example because it took longer than transaction.timeout.ms"
    ),
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "transaction.timeout.ms exceeds transaction.max.timeout.ms of the broker",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "no permission: it needs WRITE on the transactional id",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "no permission: it needs READ on the group",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "no permission: it needs WRITE on the topic",
    ErrorCode.ILLEGAL_GENERATION: "the group has rebalanced: the partitions may belong to another member",
    ErrorCode.UNKNOWN_MEMBER_ID: "the consumer is not a member of its group any more",
}


def judge(response: Message) -> tuple[Verdict, int, str]:
    """The verdict on a response, its error code, and what the code is about."""
    rows = list(_codes(response))
    return max(((_verdict(response, code), code, what) for code, what in rows), default=(Verdict.DONE, 0, ""))


def unwelcome(code: int, what: str) -> str:
    try:
        text = _HINTS.get(ErrorCode(code)) or ErrorCode(code).text
    except ValueError:
        text = f"error {code}"
    return f"{what}: {text}" if what else text


def _codes(response: Message) -> Iterable[tuple[int, str]]:
    if isinstance(response, AddPartitionsToTxnResponse):
        for added in response.results_by_topic_v3_and_below:
            for partition in added.results_by_partition:
                yield partition.partition_error_code, f"{added.name}-{partition.partition_index}"
    elif isinstance(response, TxnOffsetCommitResponse):
        for topic in response.topics:
            for row in topic.partitions:
                yield row.error_code, f"The offset of {topic.name}-{row.partition_index}"
    elif isinstance(response, (InitProducerIdResponse, AddOffsetsToTxnResponse, EndTxnResponse)):
        yield response.error_code, ""


def _verdict(response: Message, code: int) -> Verdict:
    if not code:
        return Verdict.DONE
    if code in _FENCED:
        return Verdict.FENCED
    is_offsets = isinstance(response, TxnOffsetCommitResponse)
    if code in _MOVED or (is_offsets and code == ErrorCode.REQUEST_TIMED_OUT):
        return Verdict.MOVED
    if _is_retriable(code):
        return Verdict.RETRY
    if is_offsets or isinstance(response, AddPartitionsToTxnResponse):
        return Verdict.FATAL if code in _FATAL else Verdict.ABORT
    return Verdict.ABORT if code in _ABORT else Verdict.FATAL


def _is_retriable(code: int) -> bool:
    try:
        return ErrorCode(code).retriable
    except ValueError:
        return False
