"""The deletion of the first records of a partition: what it would delete, and the deletion."""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.clients import admin as api
from ottla.clients.errors import ClientError, PolicyViolation
from ottla.common.failure import Failure
from ottla.common.ids import TopicPartition
from ottla.metadata.mirrors import is_read_only_state
from ottla.tools.admin.outcomes import outcomes
from ottla.tools.admin.topic_facts import mirror_of


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
    """Delete the records, and return the new first offset. Raises Failure with the reason, and clients' errors."""
    found, errors = outcomes(admin.delete_records, {deletion.partition: deletion.before})
    error = errors.get(deletion.partition)
    if error is None:
        return int(found[deletion.partition])
    if isinstance(error, PolicyViolation):
        # The answer of a broker has no text.
        reason = _reason(admin, deletion.partition.topic)
        if reason is not None:
            raise reason from error
    raise error


def _reason(admin: api.Admin, topic: str) -> Failure | None:
    """The reason why brokers do not delete records of a topic; None if its settings do not show it."""
    try:
        configs = admin.describe_config(api.ConfigResource.topic(topic))
    except ClientError:
        return None
    mirror = mirror_of(configs)
    if mirror is not None and is_read_only_state(mirror[1]):
        name = mirror[0]
        return Failure(
            f"Topic {topic} is read-only: mirror {name} copies it from another cluster",
            f"Delete the records at the source, or promote the copy: `ottla mirror promote {name} {topic}`.",
        )
    policy = configs.get("cleanup.policy")
    if policy is None or "delete" in (policy.value or ""):
        return None
    return Failure(
        f"Topic {topic} has cleanup.policy={policy.value}: only compaction deletes its records",
        "Write a record with the key and without a value, or add `delete` to cleanup.policy.",
    )
