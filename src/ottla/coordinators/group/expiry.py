"""Expires offsets that are not needed any more, and groups that have none left (KIP-211).

`offsets.retention.minutes` runs from when the group became empty; for a group without members of its own (a consumer
that assigns itself), and for topics that a live group no longer subscribes to, from the commit. Commits of old
clients that asked for a retention time keep it.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.coordinators.group.core import Core
from ottla.coordinators.group.events import Effects, Moment, RecordBytes, log_line
from ottla.coordinators.group.group import Group
from ottla.coordinators.group.offset_store import Committed
from ottla.coordinators.group.records import group_tombstone, offset_tombstone
from ottla.coordinators.group.states import State

# Partitions that one log line names.
MOST_NAMED = 50


def expire(core: Core, now: Moment) -> Effects:
    """Write tombstones for what has expired."""
    records: list[RecordBytes] = []
    lines: Effects = []
    for group in core.groups.values():
        expired, left = _expired(core, group, now)
        if expired:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in expired[:MOST_NAMED])
            more = f" and {len(expired) - MOST_NAMED} more" if len(expired) > MOST_NAMED else ""
            lines.append(log_line("[GroupId %s] Expiring offsets of partitions: %s%s", group.group_id, names, more))
        records += [offset_tombstone(group.group_id, topic, partition) for topic, partition in expired]
        if not left and group.is_empty and not group.pending_joins:
            records.append(group_tombstone(group.group_id))
    if not records:
        return []
    line = log_line("Generated %d tombstone records while cleaning up group metadata.", len(records))
    return [*lines, line, *core.append_split(records)]


def _expired(core: Core, group: Group, now: Moment) -> tuple[list[tuple[str, int]], bool]:
    """(the partitions whose offsets have expired, whether others are left)."""
    pending = core.offsets.pending_of(group.group_id)
    since = _retention_start(group)
    expired: list[tuple[str, int]] = []
    left = bool(pending)
    for topic, partitions in core.offsets.of_group(group.group_id).items():
        kept = since is None or group.is_subscribed(topic)
        for partition, committed in partitions.items():
            if kept or since is None or (topic, partition) in pending:
                left = True
            elif _is_over(core, committed, since(committed), now):
                expired.append((topic, partition))
            else:
                left = True
    return expired, left


def _is_over(core: Core, committed: Committed, since_ms: int, now: Moment) -> bool:
    if committed.expire_timestamp_ms is not None:
        return now.wall_ms >= committed.expire_timestamp_ms
    return now.wall_ms - since_ms >= core.config.offsets_retention_ms


def _retention_start(group: Group) -> Callable[[Committed], int] | None:
    """From when the retention of an offset counts; None while it does not."""
    if group.protocol_type is None:
        return _commit_time
    if group.is_empty:
        emptied_ms = group.state_timestamp_ms
        return _commit_time if emptied_ms is None else lambda _committed: emptied_ms
    if group.is_consumer_group and group.subscribed_topics is not None and group.state is State.STABLE:
        return _commit_time
    return None


def _commit_time(committed: Committed) -> int:
    return committed.commit_timestamp_ms
