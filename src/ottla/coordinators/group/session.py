"""Heartbeat, LeaveGroup and session timeouts."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.coordinators.events import Call, Effects, LogLine, Moment, Reply, log_line
from ottla.coordinators.group.core import Core
from ottla.coordinators.group.group import Group
from ottla.coordinators.group.rebalance import complete_if_all_joined, drop, prepare_or_complete
from ottla.coordinators.group.states import State
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

BATCHED_LEAVE_SINCE = 3


def heartbeat(core: Core, call: Call[HeartbeatRequest], request: HeartbeatRequest, now: Moment) -> Effects:
    """Extend the member's session; the response says whether the member must join again."""
    return [Reply(call, HeartbeatResponse(error_code=_heartbeat(core, request, now)))]


def _heartbeat(core: Core, request: HeartbeatRequest, now: Moment) -> ErrorCode:
    if not request.group_id:  # A group with an empty id may have offsets, but no members.
        return ErrorCode.INVALID_GROUP_ID
    group = core.groups.get(request.group_id)
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    core.expect_heartbeat(group, group.members[request.member_id], now)
    # In the sync phase members must not rejoin: they wait for the leader's assignment.
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING else ErrorCode.NONE


def session_elapsed(core: Core, group: Group, member_id: str, now: Moment) -> Effects:
    """Remove a member whose session timed out, or a member id that was not used in time."""
    member = group.members.get(member_id)
    if member is not None and member.is_kept_alive:
        return []
    if member is None and member_id not in group.pending_joins:
        return []
    if member is None:
        message = "Pending member %s in group %s has been removed after session timeout expiration."
    else:
        message = "Member %s in group %s has failed, removing it from the group."
    effects = [log_line(message, member_id, group.group_id), *drop(core, group, member_id)]
    reason = f"removing member {member_id} on heartbeat expiration."
    return effects + _after_departure(core, group, now, reason, was_member=member is not None)


def leave(core: Core, call: Call[LeaveGroupRequest], request: LeaveGroupRequest, now: Moment) -> Effects:
    """Remove members that leave, or that an administrator removes by instance id (KIP-345, KIP-800)."""
    if not request.group_id:
        return [Reply(call, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))]
    batched = call.api_version >= BATCHED_LEAVE_SINCE
    leavers = request.members if batched else [MemberIdentity(member_id=request.member_id)]
    group = core.groups.get(request.group_id)
    effects: Effects = []
    left: list[str] = []
    rows = []
    for leaver in leavers:
        error, member_id = ErrorCode.UNKNOWN_MEMBER_ID, None
        if group is not None:
            error, member_id = _leaver(group, leaver)
            if member_id is not None:
                effects.append(_has_left(group, member_id, leaver))
                if member_id in group.members:
                    left.append(member_id)
                effects += drop(core, group, member_id)
        rows.append(
            MemberResponse(member_id=leaver.member_id, group_instance_id=leaver.group_instance_id, error_code=error)
        )
    if group is not None and any(row.error_code == ErrorCode.NONE for row in rows):
        reason = f"explicit `LeaveGroup` request for ({', '.join(left)}) members."
        effects += _after_departure(core, group, now, reason, was_member=bool(left))
    response = LeaveGroupResponse(members=rows) if batched else LeaveGroupResponse(error_code=rows[0].error_code)
    return [*effects, Reply(call, response)]


def _has_left(group: Group, member_id: str, leaver: MemberIdentity) -> LogLine:
    kind = "Member" if member_id in group.members else "Pending member"
    return log_line(
        f"[Group %s] {kind} %s has left group through explicit `LeaveGroup` request; client reason: %s",
        group.group_id, member_id, leaver.reason or "not provided",
    )  # fmt: skip


def _leaver(group: Group, leaver: MemberIdentity) -> tuple[ErrorCode, str | None]:
    """Return the error, and the id of the leaving member if there is no error."""
    if not leaver.member_id:
        static_id = group.static_ids.get(leaver.group_instance_id) if leaver.group_instance_id is not None else None
        return (ErrorCode.UNKNOWN_MEMBER_ID, None) if static_id is None else (ErrorCode.NONE, static_id)
    if leaver.member_id in group.pending_joins:
        return ErrorCode.NONE, leaver.member_id
    error = group.check_member(leaver.member_id, leaver.group_instance_id)
    return error, leaver.member_id if error is ErrorCode.NONE else None


def _after_departure(core: Core, group: Group, now: Moment, reason: str, *, was_member: bool) -> Effects:
    """Start a rebalance, or complete one that waited for the member. An unused member id requires no rebalance."""
    if was_member and group.can_rebalance:
        return prepare_or_complete(core, group, now, reason)
    return complete_if_all_joined(core, group, now)
