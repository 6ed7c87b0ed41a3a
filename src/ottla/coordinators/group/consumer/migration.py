"""The conversion of classic groups to consumer groups, and back."""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinators.events import Effects, Moment, RecordBytes
from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.core import Core
from ottla.coordinators.group.records import group_tombstone


def group_to_join(core: Core, group_id: str, _now: Moment) -> tuple[ConsumerGroup, list[RecordBytes], Effects]:
    """Return the group that a consumer member joins, the records that convert it, and effects that precede them.

    Raises GROUP_ID_NOT_FOUND if the group is of another type and cannot be converted.
    """
    group = core.consumer_groups.get(group_id)
    if group is not None:
        return group, [], []
    classic = core.groups.get(group_id)
    if classic is None and group_id not in core.unserved:
        return ConsumerGroup(group_id), [], []
    if classic is not None and classic.is_empty and not classic.pending_joins:
        return ConsumerGroup(group_id), [group_tombstone(group_id)], []
    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
