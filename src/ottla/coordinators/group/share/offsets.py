"""Where a share group starts to read: administrators list the partitions with share state, and alter or delete it.

Only a group without members may be altered. The shard records what it is about to do, lets the share coordinator do it
(`events.ResetShares`, `events.ForgetShares`), records the outcome, and answers. Meanwhile no other request changes the
share state of the group. A crash in between leaves partitions initializing or deleting: the request can be repeated.

Every alteration has an epoch of its own. Kafka uses the group's epoch, so that a leader that read the outcome of one
alteration may overwrite the next one.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import Uuid
from ottla.coordinators.events import Call, Effects, Moment, Reply
from ottla.coordinators.group.core import Core
from ottla.coordinators.group.follow_ups import ChangeShareState
from ottla.coordinators.group.share import records as encode
from ottla.coordinators.group.share.events import (
    AlteredShareOffsets,
    AlterShareOffsets,
    DeletedShareOffsets,
    DeleteShareOffsets,
    ForgetShares,
    ListedShares,
    ListShares,
    ResetShares,
)
from ottla.coordinators.group.share.group import ShareGroup
from ottla.coordinators.group.share.heartbeat import existing_group, group_to_join
from ottla.coordinators.group.share.initialization import is_busy
from ottla.coordinators.group.share.states import NO_PARTITIONS, ShareStates, difference


def list_shares(core: Core, call: Call[ListShares], question: ListShares, _now: Moment) -> Effects:
    """List the partitions whose share state was created."""
    group = core.share_groups.get(question.group_id)
    return [Reply(call, ListedShares(NO_PARTITIONS if group is None else group.shares.initialized))]


def _check_alterable(core: Core, group: ShareGroup) -> None:
    if not group.is_empty:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
    if is_busy(core, group):
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The share state of the group is being changed.")


def alter(core: Core, call: Call[AlterShareOffsets], request: AlterShareOffsets, _now: Moment) -> Effects:
    """Set where an empty group starts; creates the group if necessary."""
    try:
        group = group_to_join(core, request.group_id)
        _check_alterable(core, group)
    except KafkaError as error:
        return [Reply(call, AlteredShareOffsets(error.code, error.message))]
    if not request.offsets:
        return [Reply(call, AlteredShareOffsets())]
    topics = core.topics.by_id
    known = {topic: frozenset(rows) for topic, rows in request.offsets.items() if topic in topics}
    missing = difference(known, group.shares.initialized)
    states = group.shares.begin(missing, {topic: topics[topic].name for topic in missing})
    epoch = group.epoch + 1
    records = [
        encode.epoch_record(group.group_id, epoch, group.state.metadata_hash),
        encode.states_record(group.group_id, states),
    ]
    core.changing_shares[group.group_id] = call
    effect = ResetShares(group.group_id, epoch, request.offsets)
    return [core.append(records, ChangeShareState(call, effect))]


def reset(core: Core, effect: ResetShares, failed: Mapping[tuple[Uuid, int], ErrorCode]) -> Effects:
    """Record which partitions have their new state, and answer."""
    call = core.changing_shares.pop(effect.group_id, None)
    group = core.share_groups.get(effect.group_id)
    if call is None or group is None:
        return []
    partitions = {topic: frozenset(rows) for topic, rows in effect.offsets.items()}
    done = {
        topic: frozenset(index for index in indexes if (topic, index) not in failed)
        for topic, indexes in partitions.items()
    }
    states = group.shares.finish(done, partitions)
    return core.reply_after_append(call, _if_changed(group, states), AlteredShareOffsets(failed=failed))


def delete(core: Core, call: Call[DeleteShareOffsets], request: DeleteShareOffsets, _now: Moment) -> Effects:
    """Delete the share state of topics of an empty group."""
    try:
        group = existing_group(core, request.group_id, "Group")
        _check_alterable(core, group)
    except KafkaError as error:
        return [Reply(call, DeletedShareOffsets(error.code, error.message))]
    present = core.topics.by_id
    topics = (group.shares.topics & request.topics) & present.keys()
    if not topics:
        return [Reply(call, _deleted(request, {}))]
    core.changing_shares[group.group_id] = call
    # As in Kafka, all partitions: which of them have share state is not known after a failure.
    effect = ForgetShares(group.group_id, {topic: frozenset(present[topic].partitions) for topic in topics})
    record = encode.states_record(group.group_id, group.shares.delete_topics(topics))
    return [core.append([record], ChangeShareState(call, effect))]


def forgotten(core: Core, effect: ForgetShares, failed: Mapping[Uuid, ErrorCode]) -> Effects:
    """Record which topics have no share state any more, and answer. The others remain as deleting."""
    call = core.changing_shares.pop(effect.group_id, None)
    group = core.share_groups.get(effect.group_id)
    if call is None or group is None:
        return []
    states = group.shares.without(effect.partitions.keys() - failed.keys())
    outcomes = {topic: failed.get(topic, ErrorCode.NONE) for topic in effect.partitions}
    return core.reply_after_append(call, _if_changed(group, states), _deleted(call.request, outcomes))


def _deleted(request: object, outcomes: Mapping[Uuid, ErrorCode]) -> DeletedShareOffsets:
    assert isinstance(request, DeleteShareOffsets), request
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DeletedShareOffsets(topics={topic: outcomes.get(topic, unknown) for topic in request.topics})


def _if_changed(group: ShareGroup, states: ShareStates) -> list[tuple[bytes, bytes | None]]:
    return [] if states == group.shares else [encode.states_record(group.group_id, states)]
