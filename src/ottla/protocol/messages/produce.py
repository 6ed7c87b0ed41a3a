"""Produce (0) appends record batches to partitions.

Version 8 reports single bad records (KIP-467), 10 hints at the new leader (KIP-951), 13 names topics by id (KIP-516).
"""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Int64, Message, Records, Struct, Uuid, field, since, tagged


class ProduceRequest(Message, key=0, versions="3-13", flexible="9+"):
    """Appends one batch per partition; no response if `acks` is 0."""

    transactional_id: str | None = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: list[TopicProduceData] = []


class TopicProduceData(Struct):
    """An element of `ProduceRequest.topic_data`."""

    name: str = field("0-12")
    topic_id: Uuid = since(13)
    partition_data: list[PartitionProduceData] = []


class PartitionProduceData(Struct):
    """An element of `TopicProduceData.partition_data`."""

    index: Int32 = 0
    records: Records | None = None


class ProduceResponse(Message, key=0, versions="3-13", flexible="9+"):
    """Where each batch went, or why it did not."""

    responses: list[TopicProduceResponse] = []
    throttle_time_ms: Int32 = 0
    node_endpoints: list[NodeEndpoint] = tagged(0, 10)


class TopicProduceResponse(Struct):
    """An element of `ProduceResponse.responses`."""

    name: str = field("0-12")
    topic_id: Uuid = since(13)
    partition_responses: list[PartitionProduceResponse] = []


class PartitionProduceResponse(Struct):
    """An element of `TopicProduceResponse.partition_responses`."""

    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Int64 = -1
    log_start_offset: Int64 = since(5, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = since(8)
    error_message: str | None = since(8, default=None)
    current_leader: LeaderIdAndEpoch = tagged(0, 10)


class BatchIndexAndErrorMessage(Struct):
    """An element of `PartitionProduceResponse.record_errors`."""

    batch_index: Int32 = 0
    batch_index_error_message: str | None = None


class LeaderIdAndEpoch(Struct):
    """The value of `PartitionProduceResponse.current_leader`."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class NodeEndpoint(Struct):
    """An element of `ProduceResponse.node_endpoints`."""

    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
