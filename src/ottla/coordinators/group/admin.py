"""Administrators' requests: ListGroups, DescribeGroups, DeleteGroups and forced rebalances."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.coordinators.events import Call, Effects, Moment, Reply
from ottla.coordinators.group import unserved
from ottla.coordinators.group.consumer import admin as consumer_admin
from ottla.coordinators.group.core import Core
from ottla.coordinators.group.events import DeleteGroup, DescribeGroup, ForceRebalance, ListGroups
from ottla.coordinators.group.group import Group
from ottla.coordinators.group.kinds import KINDS
from ottla.coordinators.group.offsets import delete_group
from ottla.coordinators.group.rebalance import prepare_or_complete
from ottla.coordinators.group.records import group_tombstone
from ottla.coordinators.group.states import State
from ottla.coordinators.group.streams import admin as streams_admin
from ottla.protocol.messages.delete_groups import DeletableGroupResult
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from ottla.protocol.messages.list_groups import ListedGroup

GROUP_TYPE = "classic"
# All states and types by which groups can be filtered, in lower case.
_ALL_STATES = (*(state.value for state in State), *consumer_admin.STATES, *streams_admin.STATES, unserved.UNKNOWN_STATE)
STATES = frozenset(name.lower() for name in _ALL_STATES)
_MODERN_TYPES = tuple(kind.name for kind in KINDS)
TYPES = frozenset((GROUP_TYPE, *_MODERN_TYPES, unserved.UNKNOWN))
NOT_FOUND_IS_AN_ERROR_SINCE = 6


def list_groups(core: Core, call: Call[ListGroups], question: ListGroups, _now: Moment) -> Effects:
    """List the groups that match the filters, which ignore case. An empty filter matches every group."""
    states = {name.strip().lower() for name in question.states}
    types = {name.strip().lower() for name in question.types}
    rows = [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.value,
            group_type=GROUP_TYPE,
        )
        for group in core.groups.values()
    ]
    rows += [
        ListedGroup(group_id=group_id, protocol_type=kind.name, group_state=group.state_name, group_type=kind.name)
        for kind in KINDS
        for group_id, group in kind.groups(core).items()
    ]
    rows += unserved.list_groups(core)
    chosen = [
        row
        for row in rows
        if (not states or row.group_state.lower() in states) and (not types or row.group_type in types)
    ]
    return [Reply(call, chosen)]


def describe(core: Core, call: Call[DescribeGroup], question: DescribeGroup, _now: Moment) -> Effects:
    """Describe a group and its members. Their subscriptions are only reported while the group is Stable."""
    group = core.groups.get(question.group_id)
    if group is None:
        group_id = question.group_id
        return [Reply(call, _not_found(call, group_id, is_other=core.has_group(group_id)))]
    protocol = group.protocol_name if group.state is State.STABLE else None
    members = [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(protocol) if protocol is not None else b"",
            member_assignment=member.assignment,
        )
        for member in group.members.values()
    ]
    row = DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=members,
    )
    return [Reply(call, row)]


def _not_found(call: Call[DescribeGroup], group_id: str, *, is_other: bool) -> DescribedGroup:
    if call.api_version < NOT_FOUND_IS_AN_ERROR_SINCE:
        return DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
    return DescribedGroup(
        group_id=group_id,
        group_state=State.DEAD.value,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} is not a classic group." if is_other else f"Group {group_id} not found.",
    )


def delete(core: Core, call: Call[DeleteGroup], question: DeleteGroup, _now: Moment) -> Effects:
    """Delete a classic group that has no members, with its offsets."""
    group = core.groups.get(question.group_id)
    error = _check_delete(group)
    if error is not ErrorCode.NONE:
        return [Reply(call, DeletableGroupResult(group_id=question.group_id, error_code=error))]
    return delete_group(core, call, [group_tombstone(question.group_id)])


def force_rebalance(core: Core, call: Call[ForceRebalance], order: ForceRebalance, now: Moment) -> Effects:
    """Start a rebalance of a group with members, unless one is in progress."""
    group = core.groups.get(order.group_id)
    if group is None or not group.members:
        return [Reply(call, ErrorCode.GROUP_ID_NOT_FOUND)]
    return [*prepare_or_complete(core, group, now, "rebalance requested"), Reply(call, ErrorCode.NONE)]


def _check_delete(group: Group | None) -> ErrorCode:
    if group is None or group.state is State.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if group.is_empty else ErrorCode.NON_EMPTY_GROUP
