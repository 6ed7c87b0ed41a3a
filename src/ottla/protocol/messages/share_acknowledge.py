"""ShareAcknowledge (79) acknowledges records of a share group. KIP-932, KIP-1222."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Int8, Int16, Int32, Int64, Message, Struct, Uuid, field, since


class ShareAcknowledgeRequest(Message, key=79, versions="1-2", flexible="0+"):
    """The acknowledgements."""

    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: Int32 = 0
    is_renew_ack: bool = since(2)
    topics: list[AcknowledgeTopic] = []


class AcknowledgeTopic(Struct):
    """An element of `ShareAcknowledgeRequest.topics`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[AcknowledgePartition] = []


class AcknowledgePartition(Struct):
    """An element of `AcknowledgeTopic.partitions`."""

    partition_index: Int32 = 0
    acknowledgement_batches: list[AcknowledgementBatch] = []


class AcknowledgementBatch(Struct):
    """An element of `AcknowledgePartition.acknowledgement_batches`."""

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    acknowledge_types: list[Int8] = []


class ShareAcknowledgeResponse(Message, key=79, versions="1-2", flexible="0+"):
    """The outcome per partition."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: Int32 = since(2)
    responses: list[ShareAcknowledgeTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []


class ShareAcknowledgeTopicResponse(Struct):
    """An element of `ShareAcknowledgeResponse.responses`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


class PartitionData(Struct):
    """An element of `ShareAcknowledgeTopicResponse.partitions`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch = field()


class LeaderIdAndEpoch(Struct):
    """The value of `PartitionData.current_leader`."""

    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class NodeEndpoint(Struct):
    """An element of `ShareAcknowledgeResponse.node_endpoints`."""

    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
