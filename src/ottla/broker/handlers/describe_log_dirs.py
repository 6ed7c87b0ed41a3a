"""DescribeLogDirs (35), versions 1-5: contents and free space of each log directory. KIP-113, KIP-827, KIP-1066.

A replica that moves to another directory is shown in both; the lag of its copy is how many offsets it is behind.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.common.slices import Slices
from ottla.metadata.features import CORDONED_FROM
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import DescribeLogDirsPorts
    from ottla.log import Log

UNKNOWN_LAG = -1


def handle(
    broker: DescribeLogDirsPorts, context: RequestContext, request: DescribeLogDirsRequest
) -> Slices[DescribeLogDirsResponse]:
    """Describe every directory; its topics are the requested ones, or all."""
    asked: dict[TopicPartition, None] | None = None
    if request.topics is not None:
        asked = {}
        for wanted in request.topics:
            for index in wanted.partitions:
                asked[TopicPartition(wanted.topic, index)] = None
                yield
    cordoned: set[str] = set()
    if broker.metadata.image.metadata_version >= CORDONED_FROM:
        cordoned = {each.path for each in broker.logs.log_directories() if each.is_cordoned}
    sizes: dict[str, dict[str, list[DescribeLogDirsPartition]]] = defaultdict(lambda: defaultdict(list))
    while broker.partitions.open_some():
        yield
    for log in _logs(broker, asked):
        yield
        sizes[log.log_directory.path][log.topic_partition.topic].append(_partition(broker, log))
    results = []
    for directory in broker.logs.directories():
        path = os.path.abspath(directory.path)  # the client has another working directory  # noqa: PTH100 - no pathlib at start
        if not directory.online:
            results.append(DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path))
            continue
        topics = [DescribeLogDirsTopic(name=name, partitions=parts) for name, parts in sizes[directory.path].items()]
        results.append(
            DescribeLogDirsResult(
                log_dir=path,
                topics=topics,
                total_bytes=directory.total_bytes,
                usable_bytes=directory.usable_bytes,
                is_cordoned=directory.path in cordoned,
            )
        )
    return DescribeLogDirsResponse(results=results)


def _logs(broker: DescribeLogDirsPorts, asked: Collection[TopicPartition] | None) -> Sequence[Log]:
    """Return the logs of the requested partitions, or all: each replica, and its copy in another directory."""
    if asked is None:
        return (*broker.logs.all(), *broker.logs.futures.values())
    found = (log for tp in asked for log in (broker.logs.get(tp), broker.logs.futures.get(tp)))
    return [log for log in found if log is not None]


def _partition(broker: DescribeLogDirsPorts, log: Log) -> DescribeLogDirsPartition:
    topic_partition = log.topic_partition
    current = broker.logs.get(topic_partition)
    is_future = log is not current
    lag = UNKNOWN_LAG
    if current is not None:
        lag = current.log_end_offset - log.log_end_offset if is_future else 0
    return DescribeLogDirsPartition(
        partition_index=topic_partition.partition, partition_size=log.size, offset_lag=lag, is_future_key=is_future
    )
