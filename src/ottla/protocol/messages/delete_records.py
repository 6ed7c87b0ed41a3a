"""DeleteRecords (21) moves the log start offset forward. KIP-107."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Int64, Message, Struct


class DeleteRecordsRequest(Message, key=21, versions="0-2", flexible="2+"):
    """Deletes the records before an offset; -1 means up to the high watermark."""

    topics: list[DeleteRecordsTopic] = []
    timeout_ms: Int32 = 0


class DeleteRecordsTopic(Struct):
    """An element of `DeleteRecordsRequest.topics`."""

    name: str = ""
    partitions: list[DeleteRecordsPartition] = []


class DeleteRecordsPartition(Struct):
    """An element of `DeleteRecordsTopic.partitions`."""

    partition_index: Int32 = 0
    offset: Int64 = 0


class DeleteRecordsResponse(Message, key=21, versions="0-2", flexible="2+"):
    """The new log start offsets."""

    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult] = []


class DeleteRecordsTopicResult(Struct):
    """An element of `DeleteRecordsResponse.topics`."""

    name: str = ""
    partitions: list[DeleteRecordsPartitionResult] = []


class DeleteRecordsPartitionResult(Struct):
    """An element of `DeleteRecordsTopicResult.partitions`."""

    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0
