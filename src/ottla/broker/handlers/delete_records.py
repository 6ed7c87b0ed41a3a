"""DeleteRecords (21), versions 0-2: move the start of partitions forward. KIP-107.

As in Kafka, rejected for internal topics, and with POLICY_VIOLATION if `cleanup.policy` does not contain `delete`. The
new start is in the log-start checkpoint before the response is sent: the records do not return after a crash. The
response waits, up to `timeout_ms`, until all live replicas have the new start.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.broker.authorization import allowed
from ottla.common.completion import Completion, gather
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import INTERNAL_TOPICS
from ottla.common.slices import Slices, result_of
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.security.acl import Operation, ResourceType

LONGEST_TIMEOUT_MS = 300_000

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import DeleteRecordsPorts


def handle(
    broker: DeleteRecordsPorts, context: RequestContext, request: DeleteRecordsRequest
) -> Slices[DeleteRecordsResponse]:
    """Return the new low watermark of each partition when it is on disk, and all live replicas have it."""
    topics = []
    has_deleted = False
    for topic in request.topics:
        results = []
        may_delete = allowed(broker, context, Operation.DELETE, ResourceType.TOPIC, topic.name)
        for wanted in topic.partitions:
            if may_delete:
                results.append(_delete(broker, topic.name, wanted))
            else:
                results.append(_refused(wanted.partition_index, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            has_deleted |= not results[-1].error_code
            yield
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
        yield
    if not has_deleted:
        return DeleteRecordsResponse(topics=topics)
    yield from result_of(broker.schedulers.flush_threads.run(broker.logs.checkpoint))
    for answer in topics:
        for result in answer.partitions:
            _confirm(broker, answer.name, result)
            yield
    yield from _wait_for_followers(broker, topics, request.timeout_ms)
    return DeleteRecordsResponse(topics=topics)


def _wait_for_followers(
    broker: DeleteRecordsPorts, topics: list[DeleteRecordsTopicResult], timeout_ms: int
) -> Slices[None]:
    waiting: list[tuple[Completion[None], DeleteRecordsPartitionResult]] = []
    for answer in topics:
        for result in answer.partitions:
            yield
            if result.error_code:
                continue
            try:
                deleted = broker.partitions.get(answer.name, result.partition_index).when_deleted(result.low_watermark)
            except KafkaError as error:
                result.error_code, result.low_watermark = error.code, -1
                continue
            if deleted is not None:
                waiting.append((deleted, result))
    if not waiting:
        return
    ended: Completion[None] = Completion()
    seconds = min(max(timeout_ms, 0), LONGEST_TIMEOUT_MS) / 1000
    timer = asyncio.get_running_loop().call_later(seconds, lambda: ended.complete(None))
    gather([deleted.otherwise(lambda _: None) for deleted, _ in waiting], lambda _: ended.complete(None))
    yield from result_of(ended)
    timer.cancel()
    for deleted, result in waiting:
        if not deleted.done:
            result.error_code, result.low_watermark = ErrorCode.REQUEST_TIMED_OUT, -1
        elif isinstance(deleted.error, KafkaError):
            result.error_code, result.low_watermark = deleted.error.code, -1


def _confirm(broker: DeleteRecordsPorts, topic: str, result: DeleteRecordsPartitionResult) -> None:
    """Change the result to an error if the log directory failed while the new start was written."""
    try:
        directory = broker.partitions.get(topic, result.partition_index).log.log_directory
        if not directory.online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log directory {directory.path} is offline")
    except KafkaError as error:
        if not result.error_code:
            result.error_code, result.low_watermark = error.code, -1


def _delete(broker: DeleteRecordsPorts, topic: str, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    index = wanted.partition_index
    try:
        partition = broker.partitions.get(topic, index)
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}")
        if partition.refusal is not None:
            raise KafkaError(partition.refusal.code, partition.refusal.text)
        if "delete" not in partition.log.config.cleanup_policy:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        start = partition.delete_records_before(wanted.offset)
    except KafkaError as error:
        return _refused(index, error.code)
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=start)


def _refused(index: int, error: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=error)
