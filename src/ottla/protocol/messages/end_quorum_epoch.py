"""EndQuorumEpoch (54) tells voters that a KRaft leader resigns. KIP-595, KIP-853."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Int16, Int32, Message, Struct, UInt16, Uuid, field, since, tagged


class EndQuorumEpochRequest(Message, key=54, versions="0-1", flexible="1+"):
    """From the resigning leader, with its preferred successors."""

    cluster_id: str | None = None
    topics: list[RequestTopicData] = []
    leader_endpoints: list[LeaderEndpoint] = since(1)


class RequestTopicData(Struct):
    """An element of `EndQuorumEpochRequest.topics`."""

    topic_name: str = ""
    partitions: list[RequestPartitionData] = []


class RequestPartitionData(Struct):
    """An element of `RequestTopicData.partitions`."""

    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    preferred_successors: list[Int32] = field("0")
    preferred_candidates: list[ReplicaInfo] = since(1)


class ReplicaInfo(Struct):
    """An element of `RequestPartitionData.preferred_candidates`."""

    candidate_id: Int32 = 0
    candidate_directory_id: Uuid = ZERO_UUID


class LeaderEndpoint(Struct):
    """An element of `EndQuorumEpochRequest.leader_endpoints`."""

    name: str = ""
    host: str = ""
    port: UInt16 = 0


class EndQuorumEpochResponse(Message, key=54, versions="0-1", flexible="1+"):
    """The receiver's view of the epoch."""

    error_code: Int16 = 0
    topics: list[ResponseTopicData] = []
    node_endpoints: list[NodeEndpoint] = tagged(0, 1)


class ResponseTopicData(Struct):
    """An element of `EndQuorumEpochResponse.topics`."""

    topic_name: str = ""
    partitions: list[ResponsePartitionData] = []


class ResponsePartitionData(Struct):
    """An element of `ResponseTopicData.partitions`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class NodeEndpoint(Struct):
    """An element of `EndQuorumEpochResponse.node_endpoints`."""

    node_id: Int32 = 0
    host: str = ""
    port: UInt16 = 0
