"""FetchSnapshot (59) reads a piece of a KRaft snapshot. KIP-630, KIP-853."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Int64, Message, Records, Struct, UInt16, Uuid, field, tagged


class FetchSnapshotRequest(Message, key=59, versions="0-1", flexible="0+"):
    """Where to read."""

    cluster_id: str | None = tagged(0, 0, default=None)
    replica_id: Int32 = -1
    max_bytes: Int32 = 2**31 - 1
    topics: list[RequestTopicSnapshot] = []


class RequestTopicSnapshot(Struct):
    """An element of `FetchSnapshotRequest.topics`."""

    name: str = ""
    partitions: list[RequestPartitionSnapshot] = []


class RequestPartitionSnapshot(Struct):
    """An element of `RequestTopicSnapshot.partitions`."""

    partition: Int32 = 0
    current_leader_epoch: Int32 = 0
    snapshot_id: RequestSnapshotId = field()
    position: Int64 = 0
    replica_directory_id: Uuid = tagged(0, 1)


class RequestSnapshotId(Struct):
    """The value of `RequestPartitionSnapshot.snapshot_id`."""

    end_offset: Int64 = 0
    epoch: Int32 = 0


class FetchSnapshotResponse(Message, key=59, versions="0-1", flexible="0+"):
    """A piece of the snapshot."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[ResponseTopicSnapshot] = []
    node_endpoints: list[NodeEndpoint] = tagged(0, 1)


class ResponseTopicSnapshot(Struct):
    """An element of `FetchSnapshotResponse.topics`."""

    name: str = ""
    partitions: list[ResponsePartitionSnapshot] = []


class ResponsePartitionSnapshot(Struct):
    """An element of `ResponseTopicSnapshot.partitions`."""

    index: Int32 = 0
    error_code: Int16 = 0
    snapshot_id: ResponseSnapshotId = field()
    current_leader: LeaderIdAndEpoch = tagged(0, 0)
    size: Int64 = 0
    position: Int64 = 0
    unaligned_records: Records = b""


class ResponseSnapshotId(Struct):
    """The value of `ResponsePartitionSnapshot.snapshot_id`."""

    end_offset: Int64 = 0
    epoch: Int32 = 0


class LeaderIdAndEpoch(Struct):
    """The value of `ResponsePartitionSnapshot.current_leader`."""

    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class NodeEndpoint(Struct):
    """An element of `FetchSnapshotResponse.node_endpoints`."""

    node_id: Int32 = 0
    host: str = ""
    port: UInt16 = 0
