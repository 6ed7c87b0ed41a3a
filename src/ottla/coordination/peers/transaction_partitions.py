"""Asks transaction coordinators on other brokers whether partitions belong to a transaction, or adds them. KIP-890."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ottla.common.errors import ErrorCode, KafkaError, error_code
from ottla.common.ids import by_topic
from ottla.coordinators.transaction.events import AddPartitions
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from ottla.protocol.message import Message

Errors: TypeAlias = dict[tuple[str, int], ErrorCode]

_BATCHED_SINCE = 4
# The coordinator does not know the topic yet, which exists: this broker leads its partition.
_BEHIND = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED})


class AddPartitionsKind:
    """AddPartitionsToTxn, with one transaction of each transactional id in a request."""

    least_version = _BATCHED_SINCE

    def group(self, _question: AddPartitions) -> object:
        """All transactions may be in one request."""
        return None

    def key(self, question: AddPartitions) -> object:
        """The transactional id."""
        return question.transactional_id

    def request(self, batch: list[AddPartitions]) -> AddPartitionsToTxnRequest:
        """One transaction for each question."""
        return AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=question.transactional_id,
                    producer_id=question.producer_id,
                    producer_epoch=question.producer_epoch,
                    verify_only=question.verify_only,
                    topics=[
                        AddPartitionsToTxnTopic(name=name, partitions=indexes)
                        for name, indexes in by_topic(question.partitions).items()
                    ],
                )
                for question in batch
            ]
        )

    def answers(self, batch: list[AddPartitions], response: Message) -> list[Errors]:
        """The error of each partition, or NONE."""
        assert isinstance(response, AddPartitionsToTxnResponse)
        if response.error_code:
            error = KafkaError(error_code(response.error_code))
            return [self.failure(question, error) for question in batch]
        found: dict[str, Errors] = {}
        for result in response.results_by_transaction:
            found[result.transactional_id] = {
                (topic.name, row.partition_index): _retried_if_behind(error_code(row.partition_error_code))
                for topic in result.topic_results
                for row in topic.results_by_partition
            }
        missing = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        return [{**self.failure(each, missing), **found.get(each.transactional_id, {})} for each in batch]

    def failure(self, question: AddPartitions, error: KafkaError) -> Errors:
        """The same error for all partitions; a broker that is not available is retried like a lost connection."""
        is_lost = error.code is ErrorCode.BROKER_NOT_AVAILABLE
        return dict.fromkeys(question.partitions, ErrorCode.NETWORK_EXCEPTION if is_lost else error.code)


def _retried_if_behind(error: ErrorCode) -> ErrorCode:
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if error in _BEHIND else error
