"""StreamsGroupHeartbeat (88) is what a member of a streams group says to its coordinator. KIP-1071."""

from __future__ import annotations

from ottla.protocol.message import Int8, Int16, Int32, Int64, Message, Struct, UInt16, field


class StreamsGroupHeartbeatRequest(Message, key=88, versions="0", flexible="0+"):
    """A member's state, topology and tasks; null means "as before"."""

    group_id: str = ""
    member_id: str = ""
    member_epoch: Int32 = 0
    endpoint_information_epoch: Int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    topology: Topology | None = None
    active_tasks: list[RequestTaskIds] | None = None
    standby_tasks: list[RequestTaskIds] | None = None
    warmup_tasks: list[RequestTaskIds] | None = None
    process_id: str | None = None
    user_endpoint: RequestEndpoint | None = None
    client_tags: list[KeyValue] | None = None
    task_offsets: list[TaskOffset] | None = None
    task_end_offsets: list[TaskOffset] | None = None
    shutdown_application: bool = False


class Topology(Struct):
    """The value of `StreamsGroupHeartbeatRequest.topology`."""

    epoch: Int32 = 0
    subtopologies: list[Subtopology] = []


class Subtopology(Struct):
    """An element of `Topology.subtopologies`."""

    subtopology_id: str = ""
    source_topics: list[str] = []
    source_topic_regex: list[str] = []
    state_changelog_topics: list[TopicInfo] = []
    repartition_sink_topics: list[str] = []
    repartition_source_topics: list[TopicInfo] = []
    copartition_groups: list[CopartitionGroup] = []


class TopicInfo(Struct):
    """An element of `Subtopology.repartition_source_topics` and `Subtopology.state_changelog_topics`."""

    name: str = ""
    partitions: Int32 = 0
    replication_factor: Int16 = 0
    topic_configs: list[KeyValue] = []


class KeyValue(Struct):
    """An element of `StreamsGroupHeartbeatRequest.client_tags` and `TopicInfo.topic_configs`."""

    key: str = ""
    value: str = ""


class CopartitionGroup(Struct):
    """An element of `Subtopology.copartition_groups`."""

    source_topics: list[Int16] = []
    source_topic_regex: list[Int16] = []
    repartition_source_topics: list[Int16] = []


class RequestTaskIds(Struct):
    """An element of `StreamsGroupHeartbeatRequest.active_tasks` and others."""

    subtopology_id: str = ""
    partitions: list[Int32] = []


class RequestEndpoint(Struct):
    """The value of `StreamsGroupHeartbeatRequest.user_endpoint`."""

    host: str = ""
    port: UInt16 = 0


class TaskOffset(Struct):
    """An element of `StreamsGroupHeartbeatRequest.task_end_offsets` and `StreamsGroupHeartbeatRequest.task_offsets`."""

    subtopology_id: str = ""
    partition: Int32 = 0
    offset: Int64 = 0


class StreamsGroupHeartbeatResponse(Message, key=88, versions="0", flexible="0+"):
    """The member's epoch and tasks."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    member_id: str = ""
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    acceptable_recovery_lag: Int32 = 0
    task_offset_interval_ms: Int32 = 0
    status: list[Status] | None = []
    active_tasks: list[ResponseTaskIds] | None = None
    standby_tasks: list[ResponseTaskIds] | None = None
    warmup_tasks: list[ResponseTaskIds] | None = None
    endpoint_information_epoch: Int32 = 0
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None


class Status(Struct):
    """An element of `StreamsGroupHeartbeatResponse.status`."""

    status_code: Int8 = 0
    status_detail: str = ""


class ResponseTaskIds(Struct):
    """An element of `StreamsGroupHeartbeatResponse.active_tasks` and others."""

    subtopology_id: str = ""
    partitions: list[Int32] = []


class EndpointToPartitions(Struct):
    """An element of `StreamsGroupHeartbeatResponse.partitions_by_user_endpoint`."""

    user_endpoint: ResponseEndpoint = field()
    active_partitions: list[TopicPartition] = []
    standby_partitions: list[TopicPartition] = []


class ResponseEndpoint(Struct):
    """The value of `EndpointToPartitions.user_endpoint`."""

    host: str = ""
    port: UInt16 = 0


class TopicPartition(Struct):
    """An element of `EndpointToPartitions.active_partitions` and `EndpointToPartitions.standby_partitions`."""

    topic: str = ""
    partitions: list[Int32] = []
