"""ListOffsets (2), versions 1-11: offsets of the log's ends, or by timestamp.

KIP-79, KIP-320 (leader epochs), KIP-734 (max timestamp), KIP-405 and KIP-1005 (local and tiered ends: without tiered
storage the local start is the log's start, and the tiered end is unknown), KIP-1023 (earliest pending upload: unknown).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.context import RequestContext
    from ottla.broker.partition import Partition
    from ottla.log.log import Log

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
SINCE_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
UNKNOWN = (-1, -1, -1)

# How long one turn of the loop looks up timestamps of segments, so that nobody else waits; and how many between two
# looks at the clock: on a slow disk each may take most of a millisecond.
TURN_MS = 2
SLICE = 4


def handle(
    broker: Broker, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Completion[ListOffsetsResponse]:
    """Answer each partition by itself; later, if timestamps of many segments have to be looked up first."""
    unknown = list(_logs_to_search(broker, request))
    later = broker.later
    if later is None or _learn_for_a_turn(broker, unknown):
        return _answer(broker, context, request)
    result: Completion[ListOffsetsResponse] = Completion()

    def go_on() -> None:
        if _learn_for_a_turn(broker, unknown):
            result.complete(_answer(broker, context, request))
        else:
            later(go_on)

    later(go_on)
    return result


def _logs_to_search(broker: Broker, request: ListOffsetsRequest) -> Iterator[Log]:
    for topic in request.topics:
        for wanted in topic.partitions:
            if wanted.timestamp >= 0 or wanted.timestamp == MAX_TIMESTAMP:
                try:
                    yield broker.partitions.get(topic.name, wanted.partition_index).log
                except KafkaError:
                    continue  # the answer says so


def _learn_for_a_turn(broker: Broker, unknown: list[Log]) -> bool:
    """Whether the timestamps of all logs are known now, or cannot be, which the answer says; those are taken out."""
    began_ms = broker.clock.monotonic_ms()
    while unknown:
        try:
            known = unknown[-1].learn_timestamps(SLICE)
        except KafkaError:
            known = True
        if known:
            unknown.pop()
        if unknown and broker.clock.monotonic_ms() - began_ms >= TURN_MS:
            return False
    return True


def _answer(broker: Broker, context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    topics = []
    asked = Counter(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )
    for topic in request.topics:
        partitions = []
        for wanted in topic.partitions:
            index = wanted.partition_index
            times = asked.pop((topic.name, index), 0)
            if not times:
                continue  # it has its one answer
            try:
                if times > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                _check_served(wanted.timestamp, context.api_version)
                partition = broker.partitions.get(topic.name, index)
                timestamp, offset, epoch = _find(partition, wanted, request.isolation_level)
                answer = ListOffsetsPartitionResponse(
                    partition_index=index, timestamp=timestamp, offset=offset, leader_epoch=epoch
                )
            except KafkaError as error:
                answer = ListOffsetsPartitionResponse(partition_index=index, error_code=error.code)
            partitions.append(answer)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


def _check_served(timestamp: int, version: int) -> None:
    """Raise UNSUPPORTED_VERSION for a special timestamp that the version does not know."""
    if timestamp < EARLIEST_PENDING_UPLOAD or version < SINCE_VERSION.get(timestamp, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _find(partition: Partition, wanted: ListOffsetsPartition, isolation_level: int) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch), each -1 where it is unknown."""
    timestamp = wanted.timestamp
    partition.check_open()
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


def _earliest_epoch(partition: Partition) -> int:
    """The leader epoch that the log start was or will be written in; -1 if nothing is known of it."""
    log = partition.log
    epoch = log.epochs.at(log.log_start_offset)
    # Where nothing was written, the present leader's epoch begins.
    return partition.leader_epoch if epoch < 0 and log.log_start_offset == log.log_end_offset else epoch
