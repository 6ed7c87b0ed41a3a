"""Names of partition directories: `<topic>-<partition>`, and with a suffix for directories that are not in use."""

import os
import re

from ottla.common.ids import TopicPartition

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"
_MAX_NAME = 255
_PARTITION_NAME = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)")
_MARKED_NAME = re.compile(r".+-\d+\.[0-9a-f]{32}(?P<suffix>-delete|-stray|-future)")


def marked_name(topic_partition: TopicPartition, suffix: str) -> str:
    """The name of a directory that is not in use: `<topic>-<partition>.<unique><suffix>`, at most 255 bytes."""
    tail = f"-{topic_partition.partition}.{os.urandom(16).hex()}{suffix}"
    return topic_partition.topic[: _MAX_NAME - len(tail)] + tail


def suffix_of(name: str) -> str | None:
    """The suffix of a marked name, None for other names."""
    match = _MARKED_NAME.fullmatch(name)
    return match["suffix"] if match else None


def parse_name(name: str) -> TopicPartition | None:
    """The partition of an unmarked directory name, None for other names."""
    match = _PARTITION_NAME.fullmatch(name)
    return TopicPartition(match["topic"], int(match["partition"])) if match else None
