"""Creates the share state of a group's partitions, before they are assigned, and deletes it with the group.

The shard first records the partitions as initializing, then asks the share coordinator, then records the outcome. A
crash in between leaves them initializing: the next heartbeat retries it, with the same result.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.coordinators.events import Call, Effects, Moment, Reply, log_line
from ottla.coordinators.group.assignors import Partitions
from ottla.coordinators.group.core import Core
from ottla.coordinators.group.errors import refuse
from ottla.coordinators.group.events import DeleteGroup
from ottla.coordinators.group.follow_ups import ChangeShareState
from ottla.coordinators.group.modern import TopicCounts
from ottla.coordinators.group.share import records as encode
from ottla.coordinators.group.share.change import Change
from ottla.coordinators.group.share.events import DeleteShares, InitializeShares
from ottla.coordinators.group.share.group import ShareGroup
from ottla.protocol.messages.delete_groups import DeletableGroupResult


def begin_initialization(change: Change, subscribed: TopicCounts) -> InitializeShares | None:
    """Record the subscribed partitions without share state as initializing; returns the effect that creates it.

    Also forgets topics that were deleted.
    """
    core, group = change.core, change.group
    if group.group_id in core.changing_shares:
        return None
    states = group.shares
    deleted = states.names.keys() - core.topics.by_id.keys()
    if deleted:
        states = states.without(deleted)
    missing = _missing(change, subscribed)
    if missing:
        states = states.begin(missing, {topic: core.topics.by_id[topic].name for topic in missing})
    if states != group.shares:
        change.records.append(encode.states_record(group.group_id, states))
    return InitializeShares(group.group_id, change.epoch, missing) if missing else None


def _missing(change: Change, subscribed: TopicCounts) -> Partitions:
    core, group, now_ms = change.core, change.group, change.now.monotonic_ms
    nothing: frozenset[int] = frozenset()
    missing: dict[bytes, frozenset[int]] = {}
    for name in subscribed:
        topic = core.topics.by_name.get(name)
        if topic is None:
            continue
        known = group.shares.initialized.get(topic.topic_id, nothing)
        since_ms = group.initializing_since_ms.get(topic.topic_id)
        if since_ms is not None and now_ms - since_ms < change.core.config.share.initialize_retry_interval_ms:
            known |= group.shares.initializing.get(topic.topic_id, nothing)
        if len(known) < len(topic.partitions):
            missing[topic.topic_id] = frozenset(topic.partitions) - known
    return missing


def initialize(core: Core, effect: InitializeShares | None, now: Moment) -> Effects:
    """Start to wait for the share state of the partitions that were recorded."""
    group = None if effect is None else core.share_groups.get(effect.group_id)
    if effect is None or group is None:
        return []
    group.initializing_since_ms.update(dict.fromkeys(effect.partitions, now.monotonic_ms))
    return [effect]


def initialized(core: Core, request: InitializeShares, done: Partitions) -> Effects:
    """Record which partitions of `request` have share state now; the next heartbeat retries the others."""
    group = core.share_groups.get(request.group_id)
    if group is None:
        return []
    for topic in request.partitions:
        group.initializing_since_ms.pop(topic, None)
    after = group.shares.finish(done, request.partitions)
    if after == group.shares:
        return []
    return [core.append([encode.states_record(group.group_id, after)])]


def delete(core: Core, call: Call[DeleteGroup], _request: DeleteGroup, group: ShareGroup, _now: Moment) -> Effects:
    """Delete an empty share group, after its share state was deleted."""
    if not group.is_empty:
        return [_result(call, group.group_id, ErrorCode.NON_EMPTY_GROUP)]
    # State that is created after it was deleted would outlive the group, and fence a later group of this id.
    if is_busy(core, group):
        return [_result(call, group.group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    shares = group.shares
    topics = shares.initializing.keys() | shares.initialized.keys() | shares.deleting
    present = core.topics.by_id
    partitions = {topic: frozenset(present[topic].partitions) for topic in topics if topic in present}
    if not partitions:
        return _delete_group(core, call, group)
    core.changing_shares[group.group_id] = call
    record = encode.states_record(group.group_id, shares.delete())
    return [core.append([record], ChangeShareState(call, DeleteShares(group.group_id, partitions)))]


def is_busy(core: Core, group: ShareGroup) -> bool:
    """Whether share state of the group is being created, altered or deleted."""
    return group.group_id in core.changing_shares or bool(group.initializing_since_ms)


def change_appended(core: Core, follow_up: ChangeShareState, error: ErrorCode, _now: Moment) -> Effects:
    """Alter or delete share state after the group recorded it."""
    call, effect = follow_up
    if error is ErrorCode.NONE:
        return [effect]
    del core.changing_shares[effect.group_id]
    return [refuse(call, error)]


def deleted(core: Core, group_id: str, error: ErrorCode) -> Effects:
    """Delete the group if its share state was deleted and no member joined meanwhile."""
    call = core.changing_shares.pop(group_id, None)
    if call is None:
        return []
    group = core.share_groups.get(group_id)
    if error is ErrorCode.NONE and group is None:
        error = ErrorCode.GROUP_ID_NOT_FOUND
    elif error is ErrorCode.NONE and group is not None and not group.is_empty:
        error = ErrorCode.NON_EMPTY_GROUP
    if group is None or error is not ErrorCode.NONE:
        return [_result(call, group_id, error)]
    return _delete_group(core, call, group)


def unload(core: Core, error: ErrorCode) -> Effects:
    """Answer the requests that wait for a change of share state."""
    waiting, core.changing_shares = core.changing_shares, {}
    return [refuse(call, error) for call in waiting.values()]


def _delete_group(core: Core, call: Call[DeleteGroup], group: ShareGroup) -> Effects:
    line = log_line("The following groups were deleted: %s.", group.group_id)
    result = DeletableGroupResult(group_id=group.group_id)
    return [line, *core.reply_after_append(call, encode.group_tombstones(group), result)]


def _result(call: Call[DeleteGroup], group_id: str, error: ErrorCode) -> Reply[DeletableGroupResult | None]:
    return Reply(call, DeletableGroupResult(group_id=group_id, error_code=error))
