"""AlterReplicaLogDirs (34) moves replicas between a broker's log directories. KIP-113."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Message, Struct


class AlterReplicaLogDirsRequest(Message, key=34, versions="1-2", flexible="2+"):
    """The directory that each replica shall have."""

    dirs: list[AlterReplicaLogDir] = []


class AlterReplicaLogDir(Struct):
    """An element of `AlterReplicaLogDirsRequest.dirs`."""

    path: str = ""
    topics: list[AlterReplicaLogDirTopic] = []


class AlterReplicaLogDirTopic(Struct):
    """An element of `AlterReplicaLogDir.topics`."""

    name: str = ""
    partitions: list[Int32] = []


class AlterReplicaLogDirsResponse(Message, key=34, versions="1-2", flexible="2+"):
    """The outcome per partition."""

    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = []


class AlterReplicaLogDirTopicResult(Struct):
    """An element of `AlterReplicaLogDirsResponse.results`."""

    topic_name: str = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = []


class AlterReplicaLogDirPartitionResult(Struct):
    """An element of `AlterReplicaLogDirTopicResult.partitions`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
