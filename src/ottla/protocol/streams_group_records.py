"""Records of streams groups (KIP-1071) in `__consumer_offsets`; see `group_records`.

Early releases of Kafka also wrote the type 18, partition counts of topics. Kafka 4.3 ignores it.
"""

from __future__ import annotations

from ottla.protocol.message import Int8, Int16, Int32, Int64, Message, Struct, UInt16, tagged

__all__ = [
    "STREAMS_RECORD_TYPES",
    "CopartitionGroup",
    "CurrentTaskIds",
    "Endpoint",
    "InternalTopicInfo",
    "KeyValue",
    "LastAssignmentConfig",
    "StreamsGroupCurrentMemberAssignmentKey",
    "StreamsGroupCurrentMemberAssignmentValue",
    "StreamsGroupMemberMetadataKey",
    "StreamsGroupMemberMetadataValue",
    "StreamsGroupMetadataKey",
    "StreamsGroupMetadataValue",
    "StreamsGroupTargetAssignmentMemberKey",
    "StreamsGroupTargetAssignmentMemberValue",
    "StreamsGroupTargetAssignmentMetadataKey",
    "StreamsGroupTargetAssignmentMetadataValue",
    "StreamsGroupTopologyKey",
    "StreamsGroupTopologyValue",
    "Subtopology",
    "TargetTaskIds",
    "TopicConfig",
]


class StreamsGroupMetadataKey(Message, key=17, versions="0"):
    """Key (17) of a streams group."""

    group_id: str = ""


class StreamsGroupMetadataValue(Message, key=17, versions="0", flexible="0+"):
    """The epoch of a streams group, and the topology and settings that it was assigned with."""

    epoch: Int32 = 0
    metadata_hash: Int64 = 0
    validated_topology_epoch: Int32 = tagged(0, 0, default=-1)
    last_assignment_configs: list[LastAssignmentConfig] | None = tagged(1, 0)


class LastAssignmentConfig(Struct):
    """An element of `StreamsGroupMetadataValue.last_assignment_configs`."""

    key: str = ""
    value: str = ""


class StreamsGroupMemberMetadataKey(Message, key=19, versions="0"):
    """Key (19) of a member of a streams group."""

    group_id: str = ""
    member_id: str = ""


class StreamsGroupMemberMetadataValue(Message, key=19, versions="0", flexible="0+"):
    """The properties of a member of a streams group."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: Int32 = -1
    topology_epoch: Int32 = 0
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] = []


class Endpoint(Struct):
    """The value of `StreamsGroupMemberMetadataValue.user_endpoint`."""

    host: str = ""
    port: UInt16 = 0


class KeyValue(Struct):
    """An element of `StreamsGroupMemberMetadataValue.client_tags`."""

    key: str = ""
    value: str = ""


class StreamsGroupTargetAssignmentMetadataKey(Message, key=20, versions="0"):
    """Key (20) of the epoch of a streams group's target assignment."""

    group_id: str = ""


class StreamsGroupTargetAssignmentMetadataValue(Message, key=20, versions="0", flexible="0+"):
    """The epoch of a streams group's target assignment."""

    assignment_epoch: Int32 = 0
    assignment_timestamp: Int64 = tagged(0, 0)


class StreamsGroupTargetAssignmentMemberKey(Message, key=21, versions="0"):
    """Key (21) of a member's part of a streams group's target assignment."""

    group_id: str = ""
    member_id: str = ""


class StreamsGroupTargetAssignmentMemberValue(Message, key=21, versions="0", flexible="0+"):
    """The tasks that a member of a streams group shall have."""

    active_tasks: list[TargetTaskIds] = []
    standby_tasks: list[TargetTaskIds] = []
    warmup_tasks: list[TargetTaskIds] = []


class TargetTaskIds(Struct):
    """An element of `StreamsGroupTargetAssignmentMemberValue.active_tasks` and others."""

    subtopology_id: str = ""
    partitions: list[Int32] = []


class StreamsGroupCurrentMemberAssignmentKey(Message, key=22, versions="0"):
    """Key (22) of the tasks that a member of a streams group has."""

    group_id: str = ""
    member_id: str = ""


class StreamsGroupCurrentMemberAssignmentValue(Message, key=22, versions="0", flexible="0+"):
    """The epoch of a member of a streams group, its tasks, and the tasks that it must revoke."""

    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    active_tasks: list[CurrentTaskIds] = []
    standby_tasks: list[CurrentTaskIds] = []
    warmup_tasks: list[CurrentTaskIds] = []
    active_tasks_pending_revocation: list[CurrentTaskIds] = []
    standby_tasks_pending_revocation: list[CurrentTaskIds] = []
    warmup_tasks_pending_revocation: list[CurrentTaskIds] = []


class CurrentTaskIds(Struct):
    """An element of `StreamsGroupCurrentMemberAssignmentValue.active_tasks` and others."""

    subtopology_id: str = ""
    partitions: list[Int32] = []
    assignment_epochs: list[Int32] | None = tagged(0, 0)


class StreamsGroupTopologyKey(Message, key=23, versions="0"):
    """Key (23) of the topology of a streams group."""

    group_id: str = ""


class StreamsGroupTopologyValue(Message, key=23, versions="0", flexible="0+"):
    """The topology of a streams group."""

    epoch: Int32 = 0
    subtopologies: list[Subtopology] = []


class Subtopology(Struct):
    """An element of `StreamsGroupTopologyValue.subtopologies`."""

    subtopology_id: str = ""
    source_topics: list[str] = []
    source_topic_regex: list[str] = []
    state_changelog_topics: list[InternalTopicInfo] = []
    repartition_sink_topics: list[str] = []
    repartition_source_topics: list[InternalTopicInfo] = []
    copartition_groups: list[CopartitionGroup] = []


class InternalTopicInfo(Struct):
    """An element of `Subtopology.repartition_source_topics` and `Subtopology.state_changelog_topics`."""

    name: str = ""
    partitions: Int32 = 0
    replication_factor: Int16 = 0
    topic_configs: list[TopicConfig] = []


class TopicConfig(Struct):
    """An element of `InternalTopicInfo.topic_configs`."""

    key: str = ""
    value: str = ""


class CopartitionGroup(Struct):
    """An element of `Subtopology.copartition_groups`."""

    source_topics: list[Int16] = []
    source_topic_regex: list[Int16] = []
    repartition_source_topics: list[Int16] = []


STREAMS_RECORD_TYPES: dict[int, tuple[type[Message], type[Message]]] = {
    17: (StreamsGroupMetadataKey, StreamsGroupMetadataValue),
    19: (StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
    20: (StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue),
    21: (StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
    22: (StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue),
    23: (StreamsGroupTopologyKey, StreamsGroupTopologyValue),
}
