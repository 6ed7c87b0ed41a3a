"""ListOffsets (2), versions 1-11: offsets of the log's ends, or by timestamp.

KIP-79, KIP-207 (new leaders), KIP-320 (leader epochs), KIP-734 (max timestamp), KIP-405 and KIP-1005 (local and tiered
ends: without tiered storage the local start is the log's start, and the tiered end is unknown), KIP-1023 (earliest
pending upload: unknown). A request for debugging (replica id -2) is answered by any replica.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.broker.authorization import allowed
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices
from ottla.partitions.partition import Partition
from ottla.partitions.reading import READ_ALL, READ_COMMITTED
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import PartitionPorts
    from ottla.partitions.replication.followed import FollowedPartition

CONSUMER, DEBUGGING = -1, -2
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
SINCE_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
UNKNOWN = (-1, -1, -1)
OFFSET_NOT_AVAILABLE_SINCE_VERSION = 5

# Segments whose timestamps are looked up in one slice: on a slow disk each look-up may take almost a millisecond.
SLICE = 4


def handle(broker: PartitionPorts, context: RequestContext, request: ListOffsetsRequest) -> Slices[ListOffsetsResponse]:
    """Return an offset or an error for each partition; timestamps are looked up in slices of segments."""
    asked: Counter[tuple[str, int]] = Counter()
    for topic in request.topics:
        for partition in topic.partitions:
            asked[topic.name, partition.partition_index] += 1
            yield
    topics = []
    for topic in request.topics:
        partitions = []
        if not allowed(broker, context, Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            topics.append((yield from _refuse(topic)))
            continue
        for wanted in topic.partitions:
            times = asked.pop((topic.name, wanted.partition_index), 0)
            if times:
                partitions.append((yield from _answer(broker, context, request, topic.name, wanted, times)))
            yield
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        yield
    return ListOffsetsResponse(topics=topics)


def _refuse(topic: ListOffsetsTopic) -> Slices[ListOffsetsTopicResponse]:
    partitions = []
    for wanted in topic.partitions:
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partitions.append(ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=error))
        yield
    return ListOffsetsTopicResponse(name=topic.name, partitions=partitions)


def _answer(
    broker: PartitionPorts,
    context: RequestContext,
    request: ListOffsetsRequest,
    topic: str,
    wanted: ListOffsetsPartition,
    times: int,
) -> Slices[ListOffsetsPartitionResponse]:
    index = wanted.partition_index
    find = broker.partitions.readable if request.replica_id == DEBUGGING else broker.partitions.get
    try:
        if times > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        _check_served(wanted.timestamp, context.api_version)
        if wanted.timestamp >= 0 or wanted.timestamp == MAX_TIMESTAMP:
            log = find(topic, index).log
            while not log.learn_timestamps(SLICE):
                yield
        partition = find(topic, index)
        is_client = request.replica_id == CONSUMER
        isolation_level = min(request.isolation_level, READ_COMMITTED) if is_client else READ_ALL
        found = _find(partition, wanted, isolation_level)
        if is_client and isinstance(partition, Partition):
            _check_settled(partition, wanted.timestamp, found, context.api_version)
        timestamp, offset, epoch = found
    except KafkaError as error:
        return ListOffsetsPartitionResponse(partition_index=index, error_code=error.code)
    return ListOffsetsPartitionResponse(partition_index=index, timestamp=timestamp, offset=offset, leader_epoch=epoch)


def _check_served(timestamp: int, version: int) -> None:
    """Raise UNSUPPORTED_VERSION for a special timestamp that the version does not know."""
    if timestamp < EARLIEST_PENDING_UPLOAD or version < SINCE_VERSION.get(timestamp, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _find(
    partition: Partition | FollowedPartition, wanted: ListOffsetsPartition, isolation_level: int
) -> tuple[int, int, int]:
    """Return (timestamp, offset, leader epoch); an unknown value is -1."""
    timestamp = wanted.timestamp
    partition.check_leader_epoch(wanted.current_leader_epoch)
    end = partition.visible_end(isolation_level)
    log = partition.log
    if timestamp == LATEST:
        return -1, end, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.log_start_offset, _earliest_epoch(partition)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return UNKNOWN
    found = log.max_timestamp_offset() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp, end)
    if found is None or found[1] >= end:
        return UNKNOWN
    return found


def _check_settled(partition: Partition, timestamp: int, found: tuple[int, int, int], version: int) -> None:
    """Raise OFFSET_NOT_AVAILABLE if a new leader does not know yet whether there are later offsets. KIP-207."""
    replication = partition.replication
    if replication is None or partition.high_watermark >= replication.epoch_start_offset:
        return
    if timestamp == LATEST or (timestamp >= 0 and found == UNKNOWN):
        known = version >= OFFSET_NOT_AVAILABLE_SINCE_VERSION
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE if known else ErrorCode.LEADER_NOT_AVAILABLE)


def _earliest_epoch(partition: Partition | FollowedPartition) -> int:
    """The leader epoch of the record at the log start, or of the next record if the log is empty; -1 if unknown."""
    log = partition.log
    epoch = log.epochs.at(log.log_start_offset)
    # An empty log begins with the current leader epoch.
    return partition.leader_epoch if epoch < 0 and log.log_start_offset == log.log_end_offset else epoch
