"""Members that leave a consumer group: by request, by the end of their session, or because they give up partitions too
slowly.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinators.events import Append, Call, Effects, Moment, log_line
from ottla.coordinators.group.consumer import records as encode
from ottla.coordinators.group.consumer.change import Change
from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.member import NOTHING_OWNED, ConsumerMember, MemberState
from ottla.coordinators.group.consumer.migration import downgrade_records, members_after_downgrade, protocols_of
from ottla.coordinators.group.core import Core
from ottla.coordinators.group.follow_ups import AnswerCall, RebalanceDowngradedGroup
from ottla.coordinators.group.modern.epochs import STATIC_LEAVE_EPOCH
from ottla.coordinators.group.modern.requests import GroupType, known_member
from ottla.coordinators.group.timer_keys import Kind
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

CONSUMER = GroupType("consumer", "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms")
_REASONS = {
    Kind.SESSION: "the member session expired",
    Kind.JOIN: "the classic member failed to join within the rebalance timeout",
    Kind.SYNC: "the member failed to sync within timeout",
}

# A member may change the protocol under its id; the timers of the former one have no effect then.
_KINDS_OF_OTHER_PROTOCOL = {False: (Kind.JOIN, Kind.SYNC), True: (Kind.REBALANCE,)}
"""By whether the member uses the classic protocol."""


def expect_heartbeat(core: Core, group_id: str, member: ConsumerMember, now: Moment) -> None:
    """Remove the member unless a heartbeat arrives within its session timeout."""
    if member.classic is None:
        CONSUMER.expect_heartbeat(core, group_id, member.member_id, core.config.consumer.session_timeout_ms, now)
        return
    deadline_ms = now.monotonic_ms + member.classic.session_timeout_ms
    core.timers.set((Kind.SESSION, group_id, member.member_id), deadline_ms)


def loaded(core: Core, group: ConsumerGroup, now: Moment) -> Effects:
    """Start the timers of the members of a group that was loaded."""
    for member in group.members.values():
        expect_heartbeat(core, group.group_id, member, now)
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            key = (Kind.REBALANCE, group.group_id, member.member_id)
            core.timers.set(key, now.monotonic_ms + member.rebalance_timeout_ms)
    return [log_line("Loaded consumer group %s with %d members.", group.group_id, len(group.members))]


def check_static(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    """Return the static member; raises UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        message = f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
        raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, message)
    return member


def leave(
    core: Core,
    call: Call[ConsumerGroupHeartbeatRequest],
    request: ConsumerGroupHeartbeatRequest,
    group: ConsumerGroup,
    now: Moment,
) -> Effects:
    """Remove the member, or let a static member leave for the time of its session."""
    member_id, instance_id = request.member_id, request.instance_id
    member = known_member(group, member_id) if instance_id is None else check_static(group, member_id, instance_id)
    response = ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=request.member_epoch)
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        line = log_line(
            "[GroupId %s] Static member %s with instance id %s temporarily left the consumer group.",
            group.group_id, member_id, instance_id,
        )  # fmt: skip
        away = replace(member, epoch=STATIC_LEAVE_EPOCH, revoking=NOTHING_OWNED)
        record = encode.current_record(group.group_id, away)
        return [line, *core.reply_after_append(call, [record], response)]
    line = log_line("[GroupId %s] Member %s left the consumer group.", group.group_id, member_id)
    return [line, removal(core, group, [member], now, AnswerCall(call, response))]


def fence(core: Core, group: ConsumerGroup, members: Collection[ConsumerMember], now: Moment) -> Effects:
    """Remove members without a request of theirs."""
    return [removal(core, group, members, now)] if members else []


def removal(
    core: Core,
    group: ConsumerGroup,
    members: Collection[ConsumerMember],
    now: Moment,
    answer: AnswerCall[Any] | None = None,
) -> Append:
    """Write that members left, then give the `answer` to a leaving member.

    If only classic members are left, the group becomes a classic group.
    """
    leaving = {member.member_id for member in members}
    left = members_after_downgrade(core, group, leaving)
    if left:
        follow_up = RebalanceDowngradedGroup(group.group_id, protocols_of(left), answer)
        return core.append(downgrade_records(core, group, left, now), follow_up)
    change = Change(core, group, now)
    change.remove_members(members)
    return core.append(change.records, answer)


def timer_elapsed(core: Core, kind: Kind, group: ConsumerGroup, member_id: str, now: Moment) -> Effects:
    """Remove a member whose session ended, or that did not give up its partitions in time."""
    member = group.members.get(member_id)
    if member is None:
        return []
    if kind in _KINDS_OF_OTHER_PROTOCOL[member.classic is not None]:
        return []
    if kind is Kind.REBALANCE:
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            return []
        line = log_line(
            "[GroupId %s] Member %s fenced from the group because it failed to transition from epoch %d within %dms.",
            group.group_id, member_id, member.epoch, member.rebalance_timeout_ms,
        )  # fmt: skip
        retry_ms = member.rebalance_timeout_ms
    else:
        reason = _REASONS[kind]
        line = log_line("[GroupId %s] Member %s fenced from the group because %s.", group.group_id, member_id, reason)
        retry_ms = core.config.consumer.session_timeout_ms
    # If the append fails, the timer elapses again; if it succeeds, replay cancels the timer.
    core.timers.set((kind, group.group_id, member_id), now.monotonic_ms + max(retry_ms, 1))
    return [line, *fence(core, group, [member], now)]
