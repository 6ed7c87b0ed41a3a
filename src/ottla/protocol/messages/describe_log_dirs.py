"""DescribeLogDirs (35) lists a broker's log directories and their partitions. KIP-113, KIP-827."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Int64, Message, Struct, since


class DescribeLogDirsRequest(Message, key=35, versions="1-5", flexible="2+"):
    """Asks about partitions; null means all."""

    topics: list[DescribableLogDirTopic] | None = []


class DescribableLogDirTopic(Struct):
    """An element of `DescribeLogDirsRequest.topics`."""

    topic: str = ""
    partitions: list[Int32] = []


class DescribeLogDirsResponse(Message, key=35, versions="1-5", flexible="2+"):
    """Directories with their replicas and space."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(3)
    results: list[DescribeLogDirsResult] = []


class DescribeLogDirsResult(Struct):
    """An element of `DescribeLogDirsResponse.results`."""

    error_code: Int16 = 0
    log_dir: str = ""
    topics: list[DescribeLogDirsTopic] = []
    total_bytes: Int64 = since(4, default=-1)
    usable_bytes: Int64 = since(4, default=-1)
    is_cordoned: bool = since(5)


class DescribeLogDirsTopic(Struct):
    """An element of `DescribeLogDirsResult.topics`."""

    name: str = ""
    partitions: list[DescribeLogDirsPartition] = []


class DescribeLogDirsPartition(Struct):
    """An element of `DescribeLogDirsTopic.partitions`."""

    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: bool = False
