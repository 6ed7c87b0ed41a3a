"""The deletion of the first records of a partition: what it would delete, and the deletion."""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.clients import admin as api
from ottla.common.failure import Failure
from ottla.common.ids import TopicPartition


class RecordDeletion(NamedTuple):
    """The records of a partition before `before` are to be deleted; its log has the offsets from `first` to `end`."""

    partition: TopicPartition
    first: int
    end: int
    before: int

    @property
    def offsets(self) -> int:
        """How many offsets are deleted; a compacted log has fewer records."""
        return max(0, self.before - self.first)

    def data(self, *, is_done: bool) -> dict[str, Any]:
        """Return the deletion as an object of JSON."""
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "first": self.first,
            "end": self.end,
            "before": self.before,
            "offsets": self.offsets,
            "deleted": is_done,
        }


def plan_deletion(admin: api.Admin, partition: TopicPartition, before: int | None) -> RecordDeletion:
    """Return the deletion of the records before an offset, by default of all. Raises Failure, and clients' errors."""
    first = admin.list_offsets({partition: api.OffsetSpec.EARLIEST})[partition].offset
    end = admin.list_offsets({partition: api.OffsetSpec.LATEST})[partition].offset
    wanted = end if before is None else before
    if wanted > end:
        raise Failure(
            f"{partition} ends at offset {end}: the records before {wanted} do not all exist",
            f"Choose an offset from {first} to {end}.",
        )
    return RecordDeletion(partition, first, end, wanted)


def delete_records(admin: api.Admin, deletion: RecordDeletion) -> int:
    """Delete the records, and return the new first offset. Raises clients' errors."""
    return admin.delete_records({deletion.partition: deletion.before})[deletion.partition]
