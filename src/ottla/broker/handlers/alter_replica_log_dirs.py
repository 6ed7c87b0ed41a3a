"""AlterReplicaLogDirs (34), versions 1-2: move replicas of this broker to other log directories. KIP-113."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.ids import TopicPartition
from ottla.common.slices import Slices
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import AlterReplicaLogDirsPorts


def handle(
    broker: AlterReplicaLogDirsPorts, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> Slices[AlterReplicaLogDirsResponse]:
    """Begin the moves; the response does not wait for them. Of several directories for a replica, the last counts."""
    wanted: dict[TopicPartition, str] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                wanted[TopicPartition(topic.name, index)] = directory.path
                yield
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for topic_partition, path in wanted.items():
        error = broker.directory_moves.alter(topic_partition, path)
        results.setdefault(topic_partition.topic, []).append(
            AlterReplicaLogDirPartitionResult(topic_partition.partition, error)
        )
        yield
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(name, partitions) for name, partitions in results.items()]
    )
