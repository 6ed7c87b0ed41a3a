"""The row of a mirrored partition in the report of its leader, which the commands read. KIP-1279."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.partitions.promotion import own_start
from ottla.partitions.replication.mirrored import UNKNOWN

if TYPE_CHECKING:
    from ottla.partitions.partition import Partition
    from ottla.partitions.replication.mirrored import MirroredPartition

LOG_TRUNCATION: Final = "LOG_TRUNCATION"


def partition_row(partition: Partition, state: str, copy: MirroredPartition | None, age_ms: int) -> dict[str, object]:
    """How far a led partition is. `copy` is None if it is not fetched now; its last answer is as of `age_ms` ago."""
    key = partition.topic_partition
    row: dict[str, object] = {
        "topic": key.topic,
        "partition": key.partition,
        "state": state,
        "leader_epoch": partition.leader_epoch,
        "end": partition.log.log_end_offset,
        "committed": partition.high_watermark,
        "copy_end": own_start(partition),
        "producers": len(partition.log.producers.entries),
        "lag": UNKNOWN,
        "problem": "",
    }
    if copy is not None:
        progress = copy.progress
        if not copy.is_truncation_synced:
            row["state"] = LOG_TRUNCATION
        row |= {"lag": copy.lag, "source_end": progress.source_end, "age_ms": age_ms}
        row |= {"truncated": progress.truncated, "skipped": progress.skipped}
        row["problem"] = progress.problem
    return row
