"""One Produce request while its batches are appended: the state that its partitions share, and their responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from ottla.broker.authorization import NO_TOPICS
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceData,
)
from ottla.records import NotOneBatchError, RecordError

if TYPE_CHECKING:
    from ottla.broker.authorization import Topics
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasPartitions
    from ottla.coordination.transactions.verification import Verification
    from ottla.partitions.partition import Partition

ALL = -1
ZSTD_SINCE_VERSION = 7
TOPIC_IDS_SINCE_VERSION = 13
# A client may wait for weeks; the answer then comes no later than this.
LONGEST_TIMEOUT_MS = 300_000
MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_WITHOUT_LOG_START = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.INVALID_REQUIRED_ACKS,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.INVALID_TXN_STATE,
}

Contracted: TypeAlias = tuple[TopicProduceData, PartitionProduceData, PartitionProduceResponse]


class ProduceOrder:
    """The state that all partitions of a request share."""

    __slots__ = ("acks", "contracted", "has_moved", "hidden", "is_open", "verification", "waiting")

    def __init__(self, acks: int, hidden: Topics = NO_TOPICS, verification: Verification | None = None) -> None:
        self.acks = acks
        self.hidden = hidden
        """The topics, by name or id, that the client may not write."""
        self.verification = verification
        self.is_open = False
        """Whether all transactional batches belong to an open transaction, so that there is no verification."""
        self.waiting: list[tuple[Completion[None], PartitionProduceResponse]] = []
        """Responses that are not committed yet."""
        self.contracted: list[Contracted] | None = None
        """Batches for topics with schema validation, and their responses, which are filled in later; None: none."""
        self.has_moved = False
        """Whether this node does not lead one of the partitions."""


def partition_of(
    broker: HasPartitions, context: RequestContext, topic: TopicProduceData, data: PartitionProduceData
) -> Partition:
    """The partition of a batch. Raises KafkaError."""
    if context.api_version >= TOPIC_IDS_SINCE_VERSION:
        return broker.partitions.get_by_id(topic.topic_id, data.index)
    return broker.partitions.get(topic.name, data.index)


def failure(index: int, error: KafkaError, partition: Partition | None) -> PartitionProduceResponse:
    """The response of a partition whose batch was not appended."""
    response = PartitionProduceResponse(index)
    fail(response, error, partition)
    return response


def fail(response: PartitionProduceResponse, error: KafkaError, partition: Partition | None) -> None:
    """Turn a response into the response of a batch that was not appended."""
    if partition is not None:
        partition.traffic.failed_batches += 1
    errors = error.record_errors if isinstance(error, RecordError) else ()
    response.error_code = error.code
    response.base_offset = -1
    response.log_start_offset = _log_start(partition, error)
    response.record_errors = [
        BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=message)
        for batch_index, message in errors
    ]
    response.error_message = error.message


def _log_start(partition: Partition | None, error: KafkaError) -> int:
    """The log start offset; as in Kafka, returned with errors inside a batch, and -1 with any other error."""
    if partition is None or error.code in _WITHOUT_LOG_START or isinstance(error, NotOneBatchError):
        return -1
    return partition.log.log_start_offset


def when_all_durable(
    order: ProduceOrder, timeout_ms: int, finished: Callable[[], ProduceResponse]
) -> Completion[ProduceResponse]:
    """Complete when all partitions are committed or failed; after the timeout, the rest get REQUEST_TIMED_OUT."""
    result: Completion[ProduceResponse] = Completion()
    missing = {id(response): response for _, response in order.waiting}

    def not_committed(response: PartitionProduceResponse, error: KafkaError) -> None:
        order.has_moved |= error.code in MOVED
        response.error_code = error.code
        response.error_message = error.message
        response.base_offset = response.log_append_time_ms = response.log_start_offset = -1

    def one_done(done: Completion[None], response: PartitionProduceResponse) -> None:
        if missing.pop(id(response), None) is None:
            return
        try:
            done.result()
        except KafkaError as error:
            not_committed(response, error)
        if not missing:
            timer.cancel()
            result.complete(finished())

    def expire() -> None:
        for response in missing.values():
            not_committed(response, KafkaError(ErrorCode.REQUEST_TIMED_OUT))
        missing.clear()
        result.complete(finished())

    seconds = min(max(timeout_ms, 0), LONGEST_TIMEOUT_MS) / 1000
    timer = asyncio.get_running_loop().call_later(seconds, expire)
    for completion, response in order.waiting:
        completion.on_done(lambda done, response=response: one_done(done, response))  # type: ignore[misc]
    return result
