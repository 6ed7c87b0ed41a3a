"""The offsets of a group of any type: committed offsets, or where a share group starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.clients import admin as api
from ottla.clients.errors import GroupNotFound
from ottla.common.ids import TopicPartition


def read_offsets(admin: api.Admin, group: str, *, is_share: bool) -> dict[TopicPartition, int]:
    """Return the offset of each partition that has one."""
    if is_share:
        return {p: at.start_offset for p, at in admin.list_share_group_offsets(group).items()}
    return {p: at.offset for p, at in admin.list_group_offsets(group).items()}


def write_offsets(admin: api.Admin, group: str, plan: Mapping[TopicPartition, int], *, is_share: bool) -> None:
    """Set the offsets of a group without members."""
    if is_share:
        admin.alter_share_group_offsets(group, plan)
    else:
        admin.alter_group_offsets(group, plan)


def delete_offsets(admin: api.Admin, group: str, partitions: Iterable[TopicPartition], *, is_share: bool) -> None:
    """Delete the offsets of partitions, in a share group by topic."""
    if is_share:
        admin.delete_share_group_offsets(group, {partition.topic for partition in partitions})
    else:
        admin.delete_group_offsets(group, partitions)


def is_share_group(admin: api.Admin, group: str) -> bool:
    """Whether the group is a share group; false if it does not exist."""
    try:
        return admin.describe_group(group).type is api.GroupType.SHARE
    except GroupNotFound:
        return False
