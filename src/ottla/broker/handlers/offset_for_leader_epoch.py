"""OffsetForLeaderEpoch (23), versions 2-4: the end offset of a leader epoch, which shows a client whether its
offset was truncated. KIP-101, KIP-279, KIP-320.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorization import FILTERED, allowed, allowed_on_cluster
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import PartitionPorts


def handle(
    broker: PartitionPorts, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> Slices[OffsetForLeaderEpochResponse]:
    """Return epoch and end offset for each partition, -1 and -1 if the epoch is unknown."""
    # Followers may read all topics, consumers (KIP-320) the topics that they may describe.
    sees_all = allowed_on_cluster(broker, context, Operation.CLUSTER_ACTION, FILTERED)
    topics = []
    for topic in request.topics:
        partitions = []
        is_visible = sees_all or allowed(broker, context, Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
        for wanted in topic.partitions:
            partitions.append(_end(broker, topic.topic, wanted) if is_visible else _refused(wanted))
            yield
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
        yield
    return OffsetForLeaderEpochResponse(topics=topics)


def _refused(wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    return EpochEndOffset(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, partition=wanted.partition)


def _end(broker: PartitionPorts, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = broker.partitions.get(topic, wanted.partition)
        partition.check_leader_epoch(wanted.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(error_code=error.code, partition=wanted.partition)
    epoch, end_offset = partition.end_of_epoch(wanted.leader_epoch)
    return EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)
