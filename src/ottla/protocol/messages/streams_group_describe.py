"""StreamsGroupDescribe (89) shows streams groups. KIP-1071."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Int64, Message, Struct, UInt16, field


class StreamsGroupDescribeRequest(Message, key=89, versions="0", flexible="0+"):
    """Asks about groups by id."""

    group_ids: list[str] = []
    include_authorized_operations: bool = False


class StreamsGroupDescribeResponse(Message, key=89, versions="0", flexible="0+"):
    """State, topology and members."""

    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = []


class DescribedGroup(Struct):
    """An element of `StreamsGroupDescribeResponse.groups`."""

    error_code: Int16 = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    topology: Topology | None = None
    members: list[Member] = []
    authorized_operations: Int32 = -(2**31)


class Topology(Struct):
    """The value of `DescribedGroup.topology`."""

    epoch: Int32 = 0
    subtopologies: list[Subtopology] | None = None


class Subtopology(Struct):
    """An element of `Topology.subtopologies`."""

    subtopology_id: str = ""
    source_topics: list[str] = []
    repartition_sink_topics: list[str] = []
    state_changelog_topics: list[TopicInfo] = []
    repartition_source_topics: list[TopicInfo] = []


class TopicInfo(Struct):
    """An element of `Subtopology.repartition_source_topics` and `Subtopology.state_changelog_topics`."""

    name: str = ""
    partitions: Int32 = 0
    replication_factor: Int16 = 0
    topic_configs: list[KeyValue] = []


class KeyValue(Struct):
    """An element of `Member.client_tags` and `TopicInfo.topic_configs`."""

    key: str = ""
    value: str = ""


class Member(Struct):
    """An element of `DescribedGroup.members`."""

    member_id: str = ""
    member_epoch: Int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topology_epoch: Int32 = 0
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] = []
    task_offsets: list[TaskOffset] = []
    task_end_offsets: list[TaskOffset] = []
    assignment: Assignment = field()
    target_assignment: Assignment = field()
    is_classic: bool = False


class Endpoint(Struct):
    """The value of `Member.user_endpoint`."""

    host: str = ""
    port: UInt16 = 0


class TaskOffset(Struct):
    """An element of `Member.task_end_offsets` and `Member.task_offsets`."""

    subtopology_id: str = ""
    partition: Int32 = 0
    offset: Int64 = 0


class Assignment(Struct):
    """The value of `Member.assignment` and `Member.target_assignment`."""

    active_tasks: list[TaskIds] = []
    standby_tasks: list[TaskIds] = []
    warmup_tasks: list[TaskIds] = []


class TaskIds(Struct):
    """An element of `Assignment.active_tasks`, `Assignment.standby_tasks` and `Assignment.warmup_tasks`."""

    subtopology_id: str = ""
    partitions: list[Int32] = []
