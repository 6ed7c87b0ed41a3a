"""DescribeQuorum (55) shows leader, voters and observers of the metadata quorum. KIP-595, KIP-836, KIP-853."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Int64, Message, Struct, UInt16, Uuid, since


class DescribeQuorumRequest(Message, key=55, versions="0-2", flexible="0+"):
    """Asks about the metadata partition."""

    topics: list[RequestTopicData] = []


class RequestTopicData(Struct):
    """An element of `DescribeQuorumRequest.topics`."""

    topic_name: str = ""
    partitions: list[RequestPartitionData] = []


class RequestPartitionData(Struct):
    """An element of `RequestTopicData.partitions`."""

    partition_index: Int32 = 0


class DescribeQuorumResponse(Message, key=55, versions="0-2", flexible="0+"):
    """How far each replica has come."""

    error_code: Int16 = 0
    error_message: str | None = since(2)
    topics: list[ResponseTopicData] = []
    nodes: list[Node] = since(2)


class ResponseTopicData(Struct):
    """An element of `DescribeQuorumResponse.topics`."""

    topic_name: str = ""
    partitions: list[ResponsePartitionData] = []


class ResponsePartitionData(Struct):
    """An element of `ResponseTopicData.partitions`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = since(2)
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: list[ReplicaState] = []
    observers: list[ReplicaState] = []


class ReplicaState(Struct):
    """An element of `ResponsePartitionData.current_voters` and `ResponsePartitionData.observers`."""

    replica_id: Int32 = 0
    replica_directory_id: Uuid = since(2)
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Int64 = since(1, default=-1)
    last_caught_up_timestamp: Int64 = since(1, default=-1)


class Node(Struct):
    """An element of `DescribeQuorumResponse.nodes`."""

    node_id: Int32 = 0
    listeners: list[Listener] = []


class Listener(Struct):
    """An element of `Node.listeners`."""

    name: str = ""
    host: str = ""
    port: UInt16 = 0
