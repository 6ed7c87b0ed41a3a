"""DescribeShareGroupOffsets (90) shows where share groups start. KIP-932, KIP-1226."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Int16, Int32, Int64, Message, Struct, Uuid, since


class DescribeShareGroupOffsetsRequest(Message, key=90, versions="0-1", flexible="0+"):
    """Asks about groups and topics; null topics means all."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = []


class DescribeShareGroupOffsetsRequestGroup(Struct):
    """An element of `DescribeShareGroupOffsetsRequest.groups`."""

    group_id: str = ""
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = []


class DescribeShareGroupOffsetsRequestTopic(Struct):
    """An element of `DescribeShareGroupOffsetsRequestGroup.topics`."""

    topic_name: str = ""
    partitions: list[Int32] = []


class DescribeShareGroupOffsetsResponse(Message, key=90, versions="0-1", flexible="0+"):
    """Start offsets per partition."""

    throttle_time_ms: Int32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup] = []


class DescribeShareGroupOffsetsResponseGroup(Struct):
    """An element of `DescribeShareGroupOffsetsResponse.groups`."""

    group_id: str = ""
    topics: list[DescribeShareGroupOffsetsResponseTopic] = []
    error_code: Int16 = 0
    error_message: str | None = None


class DescribeShareGroupOffsetsResponseTopic(Struct):
    """An element of `DescribeShareGroupOffsetsResponseGroup.topics`."""

    topic_name: str = ""
    topic_id: Uuid = ZERO_UUID
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = []


class DescribeShareGroupOffsetsResponsePartition(Struct):
    """An element of `DescribeShareGroupOffsetsResponseTopic.partitions`."""

    partition_index: Int32 = 0
    start_offset: Int64 = 0
    leader_epoch: Int32 = 0
    lag: Int64 = since(1, default=-1)
    error_code: Int16 = 0
    error_message: str | None = None
