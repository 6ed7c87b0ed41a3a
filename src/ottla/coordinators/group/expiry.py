"""Expires committed offsets, and empty groups that have no offsets left (KIP-211).

`offsets.retention.minutes` counts from the moment the group became empty. It counts from the commit for simple groups
(consumers that assign partitions themselves), for topics to which a live group no longer subscribes, and for groups of
the consumer and streams protocols. A commit of an old client may carry its own retention time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.coordinators.events import Effects, Moment, RecordBytes, log_line
from ottla.coordinators.group.core import Core
from ottla.coordinators.group.group import Group
from ottla.coordinators.group.kinds import KINDS
from ottla.coordinators.group.modern import ModernGroup
from ottla.coordinators.group.offset_store import Committed
from ottla.coordinators.group.records import group_tombstone, offset_tombstone
from ottla.coordinators.group.states import State

# The most partitions that one log line names.
MOST_NAMED = 50


def expire(core: Core, now: Moment) -> Effects:
    """Write tombstones for expired offsets and groups."""
    records: list[RecordBytes] = []
    lines: Effects = []
    groups: list[tuple[Group | ModernGroup[Any], Callable[[Any], list[RecordBytes]]]] = [
        (group, _tombstones) for group in core.groups.values()
    ]
    for kind in KINDS:
        if kind.tombstones is not None:
            groups += [(modern, kind.tombstones) for modern in kind.groups(core).values()]
    for group, tombstones in groups:
        expired, left = _expired(core, group, now)
        if expired:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in expired[:MOST_NAMED])
            more = f" and {len(expired) - MOST_NAMED} more" if len(expired) > MOST_NAMED else ""
            lines.append(log_line("[GroupId %s] Expiring offsets of partitions: %s%s", group.group_id, names, more))
        records += [offset_tombstone(group.group_id, topic, partition) for topic, partition in expired]
        if left or not group.is_empty:
            continue
        records += tombstones(group)
    if not records:
        return []
    line = log_line("Generated %d tombstone records while cleaning up group metadata.", len(records))
    return [*lines, line, *core.append_split(records)]


def _tombstones(group: Group) -> list[RecordBytes]:
    return [] if group.pending_joins else [group_tombstone(group.group_id)]


def _expired(core: Core, group: Group | ModernGroup[Any], now: Moment) -> tuple[list[tuple[str, int]], bool]:
    """Return the partitions whose offsets have expired, and whether the group has other offsets."""
    pending = core.offsets.pending_of(group.group_id)
    expired: list[tuple[str, int]] = []
    left = bool(pending)
    for topic, partitions in core.offsets.of_group(group.group_id).items():
        expires = _can_expire(group) and not group.is_subscribed(topic)
        for partition, committed in partitions.items():
            if expires and (topic, partition) not in pending and _is_over(core, group, committed, now):
                expired.append((topic, partition))
            else:
                left = True
    return expired, left


def _can_expire(group: Group | ModernGroup[Any]) -> bool:
    """Whether offsets of the group expire now: not while it rebalances or its subscription is unknown."""
    if isinstance(group, ModernGroup):
        return True
    if group.protocol_type is None or group.is_empty:
        return True
    return group.is_consumer_group and group.subscribed_topics is not None and group.state is State.STABLE


def _is_over(core: Core, group: Group | ModernGroup[Any], committed: Committed, now: Moment) -> bool:
    if committed.expire_timestamp_ms is not None:
        return now.wall_ms >= committed.expire_timestamp_ms
    start_ms = committed.commit_timestamp_ms
    if isinstance(group, ModernGroup):
        return now.wall_ms - start_ms >= core.config.offsets_retention_ms
    if group.protocol_type is not None and group.is_empty and group.lifecycle.entered_ms is not None:
        start_ms = group.lifecycle.entered_ms
    return now.wall_ms - start_ms >= core.config.offsets_retention_ms
