"""DeleteRecords (21), versions 0-2: move the start of partitions forward. KIP-107.

As in Kafka, rejected for internal topics, and with POLICY_VIOLATION if `cleanup.policy` does not contain `delete`. The
new start is in the log-start checkpoint before the response is sent: the records do not return after a crash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import DeleteRecordsPorts


def handle(
    broker: DeleteRecordsPorts, context: RequestContext, request: DeleteRecordsRequest
) -> Slices[DeleteRecordsResponse]:
    """Return the new low watermark of each partition when it is on disk."""
    topics = []
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            results.append(_delete(broker, topic.name, wanted))
            yield
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
        yield
    yield from result_of(broker.flush_threads.run(broker.logs.checkpoint))
    for answer in topics:
        for result in answer.partitions:
            _confirm(broker, answer.name, result)
            yield
    return DeleteRecordsResponse(topics=topics)


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
        if "delete" not in partition.log.config.cleanup_policy:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        start = partition.delete_records_before(wanted.offset)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=error.code)
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=start)
