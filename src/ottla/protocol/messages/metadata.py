"""Metadata (3) describes brokers, topics and leaders. Topic ids are KIP-516, rebootstrap KIP-1102."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Message, Struct, Uuid, field, since


class MetadataRequest(Message, key=3, versions="0-13", flexible="9+"):
    """Asks about the given topics; null means all (in version 0: an empty list)."""

    topics: list[MetadataRequestTopic] | None = field(nullable="1+")
    allow_auto_topic_creation: bool = since(4, default=True)
    include_cluster_authorized_operations: bool = field("8-10")
    include_topic_authorized_operations: bool = since(8)


class MetadataRequestTopic(Struct):
    """An element of `MetadataRequest.topics`."""

    topic_id: Uuid = since(10)
    name: str | None = field(nullable="10+")


class MetadataResponse(Message, key=3, versions="0-13", flexible="9+"):
    """Brokers, and the partitions of each topic."""

    throttle_time_ms: Int32 = since(3)
    brokers: list[MetadataResponseBroker] = []
    cluster_id: str | None = since(2, default=None)
    controller_id: Int32 = since(1, default=-1)
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: Int32 = field("8-10", default=-(2**31))
    error_code: Int16 = since(13)


class MetadataResponseBroker(Struct):
    """An element of `MetadataResponse.brokers`."""

    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = since(1, default=None)


class MetadataResponseTopic(Struct):
    """An element of `MetadataResponse.topics`."""

    error_code: Int16 = 0
    name: str | None = field(nullable="12+")
    topic_id: Uuid = since(10)
    is_internal: bool = since(1)
    partitions: list[MetadataResponsePartition] = []
    topic_authorized_operations: Int32 = since(8, default=-(2**31))


class MetadataResponsePartition(Struct):
    """An element of `MetadataResponseTopic.partitions`."""

    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = since(7, default=-1)
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    offline_replicas: list[Int32] = since(5)
