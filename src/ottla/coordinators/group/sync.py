"""SyncGroup: the leader sends the assignment, and the followers' requests are parked until it is written.

The group becomes Stable when the record with the assignment is replayed. The responses follow.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.coordinators.events import Append, Call, Effects, Moment, log_line
from ottla.coordinators.group.core import Core, accept_sync, refuse_sync
from ottla.coordinators.group.follow_ups import AnswerSyncs
from ottla.coordinators.group.group import Group
from ottla.coordinators.group.rebalance import fail_syncs, prepare_or_complete, synced
from ottla.coordinators.group.records import group_record
from ottla.coordinators.group.states import State
from ottla.protocol.messages.sync_group import SyncGroupRequest


def sync(core: Core, call: Call[SyncGroupRequest], request: SyncGroupRequest, _now: Moment) -> Effects:
    """Answer or park one SyncGroup."""
    if not request.group_id:
        return [refuse_sync(call, ErrorCode.INVALID_GROUP_ID)]
    group = core.groups.get(request.group_id)
    if group is None or group.is_empty:
        return [refuse_sync(call, ErrorCode.UNKNOWN_MEMBER_ID)]
    error = _check(group, request)
    if error is not ErrorCode.NONE:
        return [refuse_sync(call, error)]
    member = group.members[request.member_id]
    synced(core, group, member)
    if group.state is State.STABLE:
        return [accept_sync(call, group, member.assignment)]
    effects: Effects = []
    if member.syncing is not None:
        # The client retries, so it has abandoned the previous request.
        effects.append(refuse_sync(member.syncing, ErrorCode.REBALANCE_IN_PROGRESS))
    member.syncing = call
    if group.leader == member.member_id:
        effects.append(
            log_line(
                "Assignment received from leader %s for group %s for generation %d."
                " The group has %d members, %d of which are static.",
                member.member_id, group.group_id, group.generation, len(group.members), len(group.static_ids),
            )
        )  # fmt: skip
        effects.append(_assign(core, group, request))
    return effects


def _check(group: Group, request: SyncGroupRequest) -> ErrorCode:
    if group.state is State.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING else ErrorCode.NONE


def _differs(theirs: str | None, ours: str | None) -> bool:
    return theirs is not None and ours is not None and theirs != ours


def _assign(core: Core, group: Group, request: SyncGroupRequest) -> Append:
    """Write the leader's assignment. A member that it does not mention gets an empty assignment."""
    assignments = {row.member_id: row.assignment for row in request.assignments}
    record = group_record(group, group.members.values(), group.leader, assignments)
    return core.append((record,), AnswerSyncs(group, request.member_id))


def assignment_appended(core: Core, follow_up: AnswerSyncs, error: ErrorCode, now: Moment) -> Effects:
    """Answer the parked SyncGroups: the replayed record gave each member its assignment."""
    group, leader_id = follow_up
    if error is not ErrorCode.NONE:
        reason = f"Error {error.name} when storing group assignment during SyncGroup (member: {leader_id})."
        return [*fail_syncs(core, group, error, now), *prepare_or_complete(core, group, now, reason)]
    effects: Effects = []
    for member in group.members.values():
        call, member.syncing = member.syncing, None
        if call is not None:
            effects.append(accept_sync(call, group, member.assignment))
            core.expect_heartbeat(group, member, now)
    return effects
