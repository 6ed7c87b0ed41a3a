"""Records of `__consumer_offsets`: classic groups, their offsets, groups of KIP-848, share groups (KIP-932).
The records of streams groups are in `streams_group_records`.

`API_KEY` of a class is the record's type, which stands before the key as a 16-bit number; before the value stands its
version. A null value deletes. Type 0 is what type 1 once was: an offset, with the same key.
"""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.keyed import decode_keyed, encode_key, encode_value
from ottla.protocol.message import Int8, Int32, Int64, Message, Struct, Uuid, field, since, tagged
from ottla.protocol.streams_group_records import STREAMS_RECORD_TYPES
from ottla.protocol.wire import Buffer

__all__ = [
    "RECORD_TYPES",
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupMemberMetadataValue",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupMetadataValue",
    "ConsumerGroupPartitionMetadataKey",
    "ConsumerGroupPartitionMetadataValue",
    "ConsumerGroupRegularExpressionKey",
    "ConsumerGroupRegularExpressionValue",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataValue",
    "GroupMetadataKey",
    "GroupMetadataValue",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "ShareGroupCurrentMemberAssignmentKey",
    "ShareGroupCurrentMemberAssignmentValue",
    "ShareGroupMemberMetadataKey",
    "ShareGroupMemberMetadataValue",
    "ShareGroupMetadataKey",
    "ShareGroupMetadataValue",
    "ShareGroupStatePartitionMetadataKey",
    "ShareGroupStatePartitionMetadataValue",
    "ShareGroupTargetAssignmentMemberKey",
    "ShareGroupTargetAssignmentMemberValue",
    "ShareGroupTargetAssignmentMetadataKey",
    "ShareGroupTargetAssignmentMetadataValue",
    "decode_record",
    "encode_key",
    "encode_value",
]


class OffsetCommitKey(Message, key=1, versions="0"):
    """Key (1) of a committed offset."""

    group: str = ""
    topic: str = ""
    partition: Int32 = 0


class OffsetCommitValue(Message, key=1, versions="0-4", flexible="4+"):
    """A committed offset."""

    offset: Int64 = 0
    leader_epoch: Int32 = since(3, default=-1)
    metadata: str = ""
    commit_timestamp: Int64 = 0
    expire_timestamp: Int64 = field("1", default=-1)
    topic_id: Uuid = tagged(0, 4)


class GroupMetadataKey(Message, key=2, versions="0"):
    """Key (2) of a classic group."""

    group: str = ""


class GroupMetadataValue(Message, key=2, versions="0-4", flexible="4+"):
    """A classic group: its generation, leader and members."""

    protocol_type: str = ""
    generation: Int32 = 0
    protocol: str | None = ""
    leader: str | None = ""
    current_state_timestamp: Int64 = since(2, default=-1)
    members: list[MemberMetadata] = []


class MemberMetadata(Struct):
    """An element of `GroupMetadataValue.members`."""

    member_id: str = ""
    group_instance_id: str | None = since(3, default=None)
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: Int32 = since(1, default=-1)
    session_timeout: Int32 = 0
    subscription: bytes = b""
    assignment: bytes = b""


class ConsumerGroupMetadataKey(Message, key=3, versions="0"):
    """Key (3) of a KIP-848 group."""

    group_id: str = ""


class ConsumerGroupMetadataValue(Message, key=3, versions="0", flexible="0+"):
    """The epoch of a KIP-848 group."""

    epoch: Int32 = 0
    metadata_hash: Int64 = tagged(0, 0)


class ConsumerGroupPartitionMetadataKey(Message, key=4, versions="0"):
    """Key (4) of the partition counts of a KIP-848 group's topics; no longer written."""

    group_id: str = ""


class ConsumerGroupPartitionMetadataValue(Message, key=4, versions="0", flexible="0+"):
    """The topics that a KIP-848 group knew; no longer written."""

    topics: list[TopicMetadata] = []


class TopicMetadata(Struct):
    """An element of `ConsumerGroupPartitionMetadataValue.topics`."""

    topic_id: Uuid = ZERO_UUID
    topic_name: str = ""
    num_partitions: Int32 = 0
    partition_metadata: list[PartitionMetadata] = []


class PartitionMetadata(Struct):
    """An element of `TopicMetadata.partition_metadata`."""

    partition: Int32 = 0
    racks: list[str] = []


class ConsumerGroupMemberMetadataKey(Message, key=5, versions="0"):
    """Key (5) of a member of a KIP-848 group."""

    group_id: str = ""
    member_id: str = ""


class ConsumerGroupMemberMetadataValue(Message, key=5, versions="0", flexible="0+"):
    """A member of a KIP-848 group, as it described itself."""

    instance_id: str | None = ""
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []
    subscribed_topic_regex: str | None = ""
    rebalance_timeout_ms: Int32 = -1
    server_assignor: str | None = ""
    classic_member_metadata: ClassicMemberMetadata | None = tagged(0, 0)


class ClassicMemberMetadata(Struct):
    """The value of `ConsumerGroupMemberMetadataValue.classic_member_metadata`."""

    session_timeout_ms: Int32 = 0
    supported_protocols: list[ClassicProtocol] = []


class ClassicProtocol(Struct):
    """An element of `ClassicMemberMetadata.supported_protocols`."""

    name: str = ""
    metadata: bytes = b""


class ConsumerGroupTargetAssignmentMetadataKey(Message, key=6, versions="0"):
    """Key (6) of the epoch of a KIP-848 group's target assignment."""

    group_id: str = ""


class ConsumerGroupTargetAssignmentMetadataValue(Message, key=6, versions="0", flexible="0+"):
    """The epoch of a KIP-848 group's target assignment."""

    assignment_epoch: Int32 = 0
    assignment_timestamp: Int64 = tagged(0, 0)


class ConsumerGroupTargetAssignmentMemberKey(Message, key=7, versions="0"):
    """Key (7) of a member's part of the target assignment."""

    group_id: str = ""
    member_id: str = ""


class ConsumerGroupTargetAssignmentMemberValue(Message, key=7, versions="0", flexible="0+"):
    """The target assignment of a member."""

    topic_partitions: list[TopicPartition] = []


class TopicPartition(Struct):
    """An element of `ConsumerGroupTargetAssignmentMemberValue.topic_partitions`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = []


class ConsumerGroupCurrentMemberAssignmentKey(Message, key=8, versions="0"):
    """Key (8) of a member's current assignment."""

    group_id: str = ""
    member_id: str = ""


class ConsumerGroupCurrentMemberAssignmentValue(Message, key=8, versions="0", flexible="0+"):
    """The partitions that a member owns and still has to give up."""

    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: list[TopicPartitions] = []
    partitions_pending_revocation: list[TopicPartitions] = []


class TopicPartitions(Struct):
    """An element of `ConsumerGroupCurrentMemberAssignmentValue.assigned_partitions` and others."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = []
    assignment_epochs: list[Int32] | None = tagged(0, 0)


class ShareGroupMemberMetadataKey(Message, key=10, versions="0"):
    """Key (10) of a member of a share group."""

    group_id: str = ""
    member_id: str = ""


class ShareGroupMemberMetadataValue(Message, key=10, versions="0", flexible="0+"):
    """A member of a share group, as it described itself."""

    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []


class ShareGroupMetadataKey(Message, key=11, versions="0"):
    """Key (11) of a share group."""

    group_id: str = ""


class ShareGroupMetadataValue(Message, key=11, versions="0", flexible="0+"):
    """The epoch of a share group."""

    epoch: Int32 = 0
    metadata_hash: Int64 = 0


class ShareGroupTargetAssignmentMetadataKey(Message, key=12, versions="0"):
    """Key (12) of the epoch of a share group's target assignment."""

    group_id: str = ""


class ShareGroupTargetAssignmentMetadataValue(Message, key=12, versions="0", flexible="0+"):
    """The epoch of a share group's target assignment."""

    assignment_epoch: Int32 = 0
    assignment_timestamp: Int64 = tagged(0, 0)


class ShareGroupTargetAssignmentMemberKey(Message, key=13, versions="0"):
    """Key (13) of a member's part of a share group's target assignment."""

    group_id: str = ""
    member_id: str = ""


class ShareGroupTargetAssignmentMemberValue(Message, key=13, versions="0", flexible="0+"):
    """The target assignment of a member of a share group."""

    topic_partitions: list[TopicPartition] = []


class ShareGroupCurrentMemberAssignmentKey(Message, key=14, versions="0"):
    """Key (14) of the current assignment of a member of a share group."""

    group_id: str = ""
    member_id: str = ""


class ShareGroupCurrentMemberAssignmentValue(Message, key=14, versions="0", flexible="0+"):
    """The current assignment of a member of a share group."""

    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: list[TopicPartition] = []


class ShareGroupStatePartitionMetadataKey(Message, key=15, versions="0"):
    """Key (15) of the partitions whose share state a share group created."""

    group_id: str = ""


class ShareGroupStatePartitionMetadataValue(Message, key=15, versions="0", flexible="0+"):
    """The partitions whose share state is being created, exists, or is being deleted."""

    initializing_topics: list[TopicPartitionsInfo] = []
    initialized_topics: list[TopicPartitionsInfo] = []
    deleting_topics: list[TopicInfo] = []


class TopicPartitionsInfo(Struct):
    """An element of `ShareGroupStatePartitionMetadataValue.initializing_topics` and others."""

    topic_id: Uuid = ZERO_UUID
    topic_name: str = ""
    partitions: list[Int32] = []


class TopicInfo(Struct):
    """An element of `ShareGroupStatePartitionMetadataValue.deleting_topics`."""

    topic_id: Uuid = ZERO_UUID
    topic_name: str = ""


class ConsumerGroupRegularExpressionKey(Message, key=16, versions="0"):
    """Key (16) of a resolved regular expression."""

    group_id: str = ""
    regular_expression: str = ""


class ConsumerGroupRegularExpressionValue(Message, key=16, versions="0", flexible="0+"):
    """The topics that a regular expression matched."""

    topics: list[str] = []
    version: Int64 = 0
    timestamp: Int64 = 0


RECORD_TYPES: dict[int, tuple[type[Message], type[Message]]] = {
    0: (OffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    10: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    11: (ShareGroupMetadataKey, ShareGroupMetadataValue),
    12: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    13: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    14: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    15: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
    **STREAMS_RECORD_TYPES,
}


def decode_record(key: Buffer, value: Buffer | None) -> tuple[Message, Message | None] | None:
    """Key and value of a record, None for a tombstone; None if the type is unknown. Raises DecodeError."""
    return decode_keyed(RECORD_TYPES, key, value)
