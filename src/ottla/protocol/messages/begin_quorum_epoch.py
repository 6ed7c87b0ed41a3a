"""BeginQuorumEpoch (53) tells voters who leads a new KRaft epoch. KIP-595, KIP-853."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Message, Struct, UInt16, Uuid, since, tagged


class BeginQuorumEpochRequest(Message, key=53, versions="0-1", flexible="1+"):
    """From the new leader."""

    cluster_id: str | None = None
    voter_id: Int32 = since(1, default=-1)
    topics: list[RequestTopicData] = []
    leader_endpoints: list[LeaderEndpoint] = since(1)


class RequestTopicData(Struct):
    """An element of `BeginQuorumEpochRequest.topics`."""

    topic_name: str = ""
    partitions: list[RequestPartitionData] = []


class RequestPartitionData(Struct):
    """An element of `RequestTopicData.partitions`."""

    partition_index: Int32 = 0
    voter_directory_id: Uuid = since(1)
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class LeaderEndpoint(Struct):
    """An element of `BeginQuorumEpochRequest.leader_endpoints`."""

    name: str = ""
    host: str = ""
    port: UInt16 = 0


class BeginQuorumEpochResponse(Message, key=53, versions="0-1", flexible="1+"):
    """The receiver's view of the epoch."""

    error_code: Int16 = 0
    topics: list[ResponseTopicData] = []
    node_endpoints: list[NodeEndpoint] = tagged(0, 1)


class ResponseTopicData(Struct):
    """An element of `BeginQuorumEpochResponse.topics`."""

    topic_name: str = ""
    partitions: list[ResponsePartitionData] = []


class ResponsePartitionData(Struct):
    """An element of `ResponseTopicData.partitions`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class NodeEndpoint(Struct):
    """An element of `BeginQuorumEpochResponse.node_endpoints`."""

    node_id: Int32 = 0
    host: str = ""
    port: UInt16 = 0
