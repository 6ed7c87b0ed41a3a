"""Fetch (1) reads record batches, for consumers and followers alike.

Sessions are KIP-227, preferred replicas KIP-392, epochs KIP-320 and KIP-595, topic ids KIP-516, KRaft voters KIP-853.
"""

from __future__ import annotations

from ottla.protocol.message import Int8, Int16, Int32, Int64, Message, Records, Struct, Uuid, field, since, tagged


class FetchRequest(Message, key=1, versions="4-18", flexible="12+"):
    """Reads from partitions, waiting up to `max_wait_ms` for `min_bytes`."""

    cluster_id: str | None = tagged(0, 12, default=None)
    replica_id: Int32 = field("0-14", default=-1)
    replica_state: ReplicaState = tagged(1, 15)
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 2**31 - 1
    isolation_level: Int8 = 0
    session_id: Int32 = since(7)
    session_epoch: Int32 = since(7, default=-1)
    topics: list[FetchTopic] = []
    forgotten_topics_data: list[ForgottenTopic] = since(7)
    rack_id: str = since(11)


class ReplicaState(Struct):
    """The value of `FetchRequest.replica_state`."""

    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchTopic(Struct):
    """An element of `FetchRequest.topics`."""

    topic: str = field("0-12")
    topic_id: Uuid = since(13)
    partitions: list[FetchPartition] = []


class FetchPartition(Struct):
    """An element of `FetchTopic.partitions`."""

    partition: Int32 = 0
    current_leader_epoch: Int32 = since(9, default=-1)
    fetch_offset: Int64 = 0
    last_fetched_epoch: Int32 = since(12, default=-1)
    log_start_offset: Int64 = since(5, default=-1)
    partition_max_bytes: Int32 = 0
    replica_directory_id: Uuid = tagged(0, 17)
    high_watermark: Int64 = tagged(1, 18, default=2**63 - 1)


class ForgottenTopic(Struct):
    """An element of `FetchRequest.forgotten_topics_data`."""

    topic: str = field("7-12")
    topic_id: Uuid = since(13)
    partitions: list[Int32] = []


class FetchResponse(Message, key=1, versions="4-18", flexible="12+"):
    """Batches of each partition, whole except perhaps the last."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(7)
    session_id: Int32 = since(7)
    responses: list[FetchableTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = tagged(0, 16)


class FetchableTopicResponse(Struct):
    """An element of `FetchResponse.responses`."""

    topic: str = field("0-12")
    topic_id: Uuid = since(13)
    partitions: list[PartitionData] = []


class PartitionData(Struct):
    """An element of `FetchableTopicResponse.partitions`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = -1
    log_start_offset: Int64 = since(5, default=-1)
    diverging_epoch: EpochEndOffset = tagged(0, 12)
    current_leader: LeaderIdAndEpoch = tagged(1, 12)
    snapshot_id: SnapshotId = tagged(2, 12)
    aborted_transactions: list[AbortedTransaction] | None = []
    preferred_read_replica: Int32 = since(11, default=-1)
    records: Records | None = None


class EpochEndOffset(Struct):
    """The value of `PartitionData.diverging_epoch`."""

    epoch: Int32 = -1
    end_offset: Int64 = -1


class LeaderIdAndEpoch(Struct):
    """The value of `PartitionData.current_leader`."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class SnapshotId(Struct):
    """The value of `PartitionData.snapshot_id`."""

    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Struct):
    """An element of `PartitionData.aborted_transactions`."""

    producer_id: Int64 = 0
    first_offset: Int64 = 0


class NodeEndpoint(Struct):
    """An element of `FetchResponse.node_endpoints`."""

    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
