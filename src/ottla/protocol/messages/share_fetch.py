"""ShareFetch (78) acquires records for a share group's member and acknowledges earlier ones.

KIP-932, KIP-1206, KIP-1222.
"""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Int8, Int16, Int32, Int64, Message, Records, Struct, Uuid, field, since


class ShareFetchRequest(Message, key=78, versions="1-2", flexible="0+"):
    """Acknowledges and acquires."""

    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: Int32 = 0
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 2**31 - 1
    max_records: Int32 = 0
    batch_size: Int32 = 0
    share_acquire_mode: Int8 = since(2)
    is_renew_ack: bool = since(2)
    topics: list[FetchTopic] = []
    forgotten_topics_data: list[ForgottenTopic] = []


class FetchTopic(Struct):
    """An element of `ShareFetchRequest.topics`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[FetchPartition] = []


class FetchPartition(Struct):
    """An element of `FetchTopic.partitions`."""

    partition_index: Int32 = 0
    acknowledgement_batches: list[AcknowledgementBatch] = []


class AcknowledgementBatch(Struct):
    """An element of `FetchPartition.acknowledgement_batches`."""

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    acknowledge_types: list[Int8] = []


class ForgottenTopic(Struct):
    """An element of `ShareFetchRequest.forgotten_topics_data`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = []


class ShareFetchResponse(Message, key=78, versions="1-2", flexible="0+"):
    """Batches, and which of their records were acquired."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: Int32 = 0
    responses: list[ShareFetchableTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []


class ShareFetchableTopicResponse(Struct):
    """An element of `ShareFetchResponse.responses`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


class PartitionData(Struct):
    """An element of `ShareFetchableTopicResponse.partitions`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    acknowledge_error_code: Int16 = 0
    acknowledge_error_message: str | None = None
    current_leader: LeaderIdAndEpoch = field()
    records: Records = b""
    acquired_records: list[AcquiredRecords] = []


class LeaderIdAndEpoch(Struct):
    """The value of `PartitionData.current_leader`."""

    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class AcquiredRecords(Struct):
    """An element of `PartitionData.acquired_records`."""

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_count: Int16 = 0


class NodeEndpoint(Struct):
    """An element of `ShareFetchResponse.node_endpoints`."""

    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
