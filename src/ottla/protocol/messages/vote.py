"""Vote (52) asks for a vote in a KRaft election. KIP-595, KIP-853; a pre-vote changes nothing (KIP-996)."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Int64, Message, Struct, UInt16, Uuid, since, tagged


class VoteRequest(Message, key=52, versions="0-2", flexible="0+"):
    """A candidate's request."""

    cluster_id: str | None = None
    voter_id: Int32 = since(1, default=-1)
    topics: list[RequestTopicData] = []


class RequestTopicData(Struct):
    """An element of `VoteRequest.topics`."""

    topic_name: str = ""
    partitions: list[RequestPartitionData] = []


class RequestPartitionData(Struct):
    """An element of `RequestTopicData.partitions`."""

    partition_index: Int32 = 0
    replica_epoch: Int32 = 0
    replica_id: Int32 = 0
    replica_directory_id: Uuid = since(1)
    voter_directory_id: Uuid = since(1)
    last_offset_epoch: Int32 = 0
    last_offset: Int64 = 0
    pre_vote: bool = since(2)


class VoteResponse(Message, key=52, versions="0-2", flexible="0+"):
    """Whether the vote was given, and who leads."""

    error_code: Int16 = 0
    topics: list[ResponseTopicData] = []
    node_endpoints: list[NodeEndpoint] = tagged(0, 1)


class ResponseTopicData(Struct):
    """An element of `VoteResponse.topics`."""

    topic_name: str = ""
    partitions: list[ResponsePartitionData] = []


class ResponsePartitionData(Struct):
    """An element of `ResponseTopicData.partitions`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    vote_granted: bool = False


class NodeEndpoint(Struct):
    """An element of `VoteResponse.node_endpoints`."""

    node_id: Int32 = 0
    host: str = ""
    port: UInt16 = 0
