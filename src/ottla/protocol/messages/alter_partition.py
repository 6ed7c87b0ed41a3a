"""AlterPartition (56) tells the controller a partition's new in-sync replicas. KIP-497, KIP-841, KIP-903."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Int8, Int16, Int32, Int64, Message, Struct, Uuid, field, since


class AlterPartitionRequest(Message, key=56, versions="2-3", flexible="0+"):
    """From a leader."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    topics: list[RequestTopicData] = []


class RequestTopicData(Struct):
    """An element of `AlterPartitionRequest.topics`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[RequestPartitionData] = []


class RequestPartitionData(Struct):
    """An element of `RequestTopicData.partitions`."""

    partition_index: Int32 = 0
    leader_epoch: Int32 = 0
    new_isr: list[Int32] = field("0-2")
    new_isr_with_epochs: list[BrokerState] = since(3)
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32 = 0


class BrokerState(Struct):
    """An element of `RequestPartitionData.new_isr_with_epochs`."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


class AlterPartitionResponse(Message, key=56, versions="2-3", flexible="0+"):
    """The state that the controller decided on."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[ResponseTopicData] = []


class ResponseTopicData(Struct):
    """An element of `AlterPartitionResponse.topics`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[ResponsePartitionData] = []


class ResponsePartitionData(Struct):
    """An element of `ResponseTopicData.partitions`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: list[Int32] = []
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32 = 0
