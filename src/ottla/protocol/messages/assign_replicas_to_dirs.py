"""AssignReplicasToDirs (73) tells the controller in which directories replicas are. KIP-858."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Int16, Int32, Int64, Message, Struct, Uuid


class AssignReplicasToDirsRequest(Message, key=73, versions="0", flexible="0+"):
    """From a broker."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    directories: list[RequestDirectoryData] = []


class RequestDirectoryData(Struct):
    """An element of `AssignReplicasToDirsRequest.directories`."""

    id: Uuid = ZERO_UUID
    topics: list[RequestTopicData] = []


class RequestTopicData(Struct):
    """An element of `RequestDirectoryData.topics`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[RequestPartitionData] = []


class RequestPartitionData(Struct):
    """An element of `RequestTopicData.partitions`."""

    partition_index: Int32 = 0


class AssignReplicasToDirsResponse(Message, key=73, versions="0", flexible="0+"):
    """The outcome per partition."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    directories: list[ResponseDirectoryData] = []


class ResponseDirectoryData(Struct):
    """An element of `AssignReplicasToDirsResponse.directories`."""

    id: Uuid = ZERO_UUID
    topics: list[ResponseTopicData] = []


class ResponseTopicData(Struct):
    """An element of `ResponseDirectoryData.topics`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[ResponsePartitionData] = []


class ResponsePartitionData(Struct):
    """An element of `ResponseTopicData.partitions`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
