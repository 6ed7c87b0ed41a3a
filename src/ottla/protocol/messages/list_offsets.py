"""ListOffsets (2) finds offsets by timestamp.

Negative timestamps are special: -1 latest, -2 earliest, -3 of the largest timestamp (KIP-734), -4 and -5 for tiered
logs (KIP-405, KIP-1005).
"""

from __future__ import annotations

from ottla.protocol.message import Int8, Int16, Int32, Int64, Message, Struct, since


class ListOffsetsRequest(Message, key=2, versions="1-11", flexible="6+"):
    """Asks for one offset per partition."""

    replica_id: Int32 = 0
    isolation_level: Int8 = since(2)
    topics: list[ListOffsetsTopic] = []
    timeout_ms: Int32 = since(10)


class ListOffsetsTopic(Struct):
    """An element of `ListOffsetsRequest.topics`."""

    name: str = ""
    partitions: list[ListOffsetsPartition] = []


class ListOffsetsPartition(Struct):
    """An element of `ListOffsetsTopic.partitions`."""

    partition_index: Int32 = 0
    current_leader_epoch: Int32 = since(4, default=-1)
    timestamp: Int64 = 0


class ListOffsetsResponse(Message, key=2, versions="1-11", flexible="6+"):
    """The offsets found; -1 if there is none."""

    throttle_time_ms: Int32 = since(2)
    topics: list[ListOffsetsTopicResponse] = []


class ListOffsetsTopicResponse(Struct):
    """An element of `ListOffsetsResponse.topics`."""

    name: str = ""
    partitions: list[ListOffsetsPartitionResponse] = []


class ListOffsetsPartitionResponse(Struct):
    """An element of `ListOffsetsTopicResponse.partitions`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Int32 = since(4, default=-1)
