"""Plans about transactions: list, describe, fence their producers, abort those that hang (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from ottla.clients.admin.core import Call, Outcome, Plan, Route
from ottla.clients.admin.model import ProducerDescription
from ottla.clients.errors import BrokerError, error_for
from ottla.clients.network import TRANSACTION
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition, by_topic
from ottla.protocol.message import Message
from ottla.protocol.messages import describe_transactions, init_producer_id, list_transactions, write_txn_markers

# The timeout of a fenced id until its next producer sets its own. Nothing is written with it.
FENCED_TIMEOUT_MS: Final = 60_000
DURATION_VERSION: Final = 1
PATTERN_VERSION: Final = 2
# Version 6 can leave a transaction prepared (KIP-939).
LAST_FENCING_VERSION: Final = 5


class TransactionState(Enum):
    """The state of a transactional id at its coordinator."""

    UNKNOWN = "Unknown"
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"

    @classmethod
    def _missing_(cls, value: object) -> TransactionState:  # noqa: ARG003 - enum's signature
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id in a list. `coordinator` is the node id of its coordinator."""

    transactional_id: str
    producer_id: int
    state: TransactionState
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id: its producer and the current transaction. `start_ms` is None if none was begun."""

    transactional_id: str
    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class FencedProducer:
    """The producer id and the epoch that a fenced transactional id has now."""

    producer_id: int
    producer_epoch: int


def list_all(
    states: Iterable[TransactionState], producer_ids: Iterable[int], min_duration_ms: int | None, pattern: str | None
) -> Plan[list[TransactionListing]]:
    request = list_transactions.ListTransactionsRequest(
        [state.value for state in states],
        list(producer_ids),
        -1 if min_duration_ms is None else min_duration_ms,
        pattern,
    )

    def read(response: Any, nodes: Sequence[int]) -> Iterator[tuple[int, list[TransactionListing] | BrokerError]]:
        if response.error_code:
            is_invalid = response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
            problem = f"The pattern {pattern!r} is not a regular expression of RE2" if is_invalid else None
            yield nodes[0], error_for(response.error_code, problem)
            return
        yield (
            nodes[0],
            [
                TransactionListing(
                    row.transactional_id, row.producer_id, TransactionState(row.transaction_state), nodes[0]
                )
                for row in response.transaction_states
            ],
        )

    least = 0 if min_duration_ms is None else DURATION_VERSION
    least = least if pattern is None else PATTERN_VERSION
    outcome = yield Call(Route.BROKERS, None, lambda _: request, read, version_least=least)
    for error in outcome.errors.values():
        if isinstance(error, BrokerError) and error.code is ErrorCode.INVALID_REGULAR_EXPRESSION:
            raise error  # about the pattern, not about one of the brokers
    found = {row.transactional_id: row for rows in outcome.all().values() for row in rows}
    return [found[name] for name in sorted(found)]


def describe(transactional_ids: Iterable[str]) -> Call[str, TransactionDescription]:
    def request(keys: Sequence[str]) -> Message:
        return describe_transactions.DescribeTransactionsRequest(list(keys))

    def read(response: Any, _: object) -> Iterator[tuple[str, TransactionDescription | BrokerError]]:
        for row in response.transaction_states:
            name = row.transactional_id
            yield name, error_for(row.error_code) if row.error_code else _described(row)

    return Call(Route.COORDINATORS, list(dict.fromkeys(transactional_ids)), request, read, key_type=TRANSACTION)


def _described(row: describe_transactions.TransactionState) -> TransactionDescription:
    partitions = (TopicPartition(topic.topic, index) for topic in row.topics for index in topic.partitions)
    return TransactionDescription(
        row.transactional_id,
        TransactionState(row.transaction_state),
        row.producer_id,
        row.producer_epoch,
        row.transaction_timeout_ms,
        row.transaction_start_time_ms if row.transaction_start_time_ms >= 0 else None,
        tuple(sorted(partitions)),
    )


def fence(transactional_ids: Iterable[str]) -> Plan[dict[str, FencedProducer]]:
    """Fence the producers of ids, one after the other, as a new producer of each id would."""
    outcome: Outcome[str, FencedProducer] = Outcome({}, {})
    for name in dict.fromkeys(transactional_ids):
        one = yield _fencing(name)
        outcome.results.update(one.results)
        outcome.errors.update(one.errors)
    return outcome.all()


def _fencing(name: str) -> Call[str, FencedProducer]:
    request = init_producer_id.InitProducerIdRequest(name, FENCED_TIMEOUT_MS)
    limit, kind = LAST_FENCING_VERSION, TRANSACTION
    return Call(Route.COORDINATORS, [name], lambda _: request, _fenced, version_limit=limit, key_type=kind)


def _fenced(response: Any, keys: Sequence[str]) -> Iterator[tuple[str, FencedProducer | BrokerError]]:
    if response.error_code:
        yield keys[0], error_for(response.error_code)
    else:
        yield keys[0], FencedProducer(response.producer_id, response.producer_epoch)


def abort(partition: TopicPartition, producer: ProducerDescription) -> Call[TopicPartition, None]:
    def request(keys: Sequence[TopicPartition]) -> Message:
        topics = [write_txn_markers.WritableTxnMarkerTopic(*item) for item in by_topic(keys).items()]
        return write_txn_markers.WriteTxnMarkersRequest(
            [
                write_txn_markers.WritableTxnMarker(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    transaction_result=False,
                    topics=topics,
                    coordinator_epoch=max(0, producer.coordinator_epoch),
                )
            ]
        )

    def read(response: Any, _: object) -> Iterator[tuple[TopicPartition, BrokerError | None]]:
        for marker in response.markers:
            for topic in marker.topics:
                for row in topic.partitions:
                    key = TopicPartition(topic.name, row.partition_index)
                    yield key, error_for(row.error_code) if row.error_code else None

    return Call(Route.LEADERS, [partition], request, read)
