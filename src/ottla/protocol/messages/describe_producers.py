"""DescribeProducers (61) shows the producers that a partition knows. KIP-664."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Int64, Message, Struct


class DescribeProducersRequest(Message, key=61, versions="0", flexible="0+"):
    """Asks about partitions."""

    topics: list[TopicRequest] = []


class TopicRequest(Struct):
    """An element of `DescribeProducersRequest.topics`."""

    name: str = ""
    partition_indexes: list[Int32] = []


class DescribeProducersResponse(Message, key=61, versions="0", flexible="0+"):
    """The active producers."""

    throttle_time_ms: Int32 = 0
    topics: list[TopicResponse] = []


class TopicResponse(Struct):
    """An element of `DescribeProducersResponse.topics`."""

    name: str = ""
    partitions: list[PartitionResponse] = []


class PartitionResponse(Struct):
    """An element of `TopicResponse.partitions`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    active_producers: list[ProducerState] = []


class ProducerState(Struct):
    """An element of `PartitionResponse.active_producers`."""

    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1
