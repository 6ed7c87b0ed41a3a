"""CreateTopics (19) creates topics. KIP-464, KIP-525, KIP-516, KIP-599."""

from __future__ import annotations

from ottla.protocol.message import Int8, Int16, Int32, Message, Struct, Uuid, since, tagged


class CreateTopicsRequest(Message, key=19, versions="2-7", flexible="5+"):
    """Creates topics, or only validates them."""

    topics: list[CreatableTopic] = []
    timeout_ms: Int32 = 60000
    validate_only: bool = False


class CreatableTopic(Struct):
    """An element of `CreateTopicsRequest.topics`."""

    name: str = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: list[CreatableReplicaAssignment] = []
    configs: list[CreatableTopicConfig] = []


class CreatableReplicaAssignment(Struct):
    """An element of `CreatableTopic.assignments`."""

    partition_index: Int32 = 0
    broker_ids: list[Int32] = []


class CreatableTopicConfig(Struct):
    """An element of `CreatableTopic.configs`."""

    name: str = ""
    value: str | None = ""


class CreateTopicsResponse(Message, key=19, versions="2-7", flexible="5+"):
    """The outcome and the shape of each topic."""

    throttle_time_ms: Int32 = 0
    topics: list[CreatableTopicResult] = []


class CreatableTopicResult(Struct):
    """An element of `CreateTopicsResponse.topics`."""

    name: str = ""
    topic_id: Uuid = since(7)
    error_code: Int16 = 0
    error_message: str | None = ""
    topic_config_error_code: Int16 = tagged(0, 5)
    num_partitions: Int32 = since(5, default=-1)
    replication_factor: Int16 = since(5, default=-1)
    configs: list[CreatableTopicConfigs] | None = since(5)


class CreatableTopicConfigs(Struct):
    """An element of `CreatableTopicResult.configs`."""

    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: Int8 = -1
    is_sensitive: bool = False
