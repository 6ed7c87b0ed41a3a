"""JoinGroup: checks of new members, and the effect of a join in each state.

A dynamic member first receives a member id and must join again with it (KIP-394), so that retries do not create members
that no client uses. Before version 4 it is added at once. A static member that returns with a known instance id
replaces its former member without a rebalance, unless it changes the selected protocol (KIP-345) or a partition has no
owner.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ottla.common.errors import ErrorCode
from ottla.coordinators.events import Call, Effects, Moment, Reply, log_line
from ottla.coordinators.group.core import Core, accept_join, refuse_join, refuse_sync
from ottla.coordinators.group.follow_ups import JoinConvertedGroup, ReplaceStaticMember
from ottla.coordinators.group.group import Group
from ottla.coordinators.group.member import Member, Protocols, protocol_names
from ottla.coordinators.group.rebalance import complete_if_all_joined, prepare, prepare_or_complete
from ottla.coordinators.group.records import group_record
from ottla.coordinators.group.states import State
from ottla.coordinators.group.subscription import subscribed_topics
from ottla.coordinators.group.timer_keys import Kind
from ottla.protocol.consumer_protocol import decode_assignment
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.wire import DecodeError

MEMBER_ID_REQUIRED_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9
REBALANCE_TIMEOUT_SINCE = 1


@dataclass(frozen=True, slots=True)
class _Joining:
    """A JoinGroup request with its unique protocols."""

    call: Call[JoinGroupRequest]
    request: JoinGroupRequest
    protocols: Protocols

    @property
    def reason(self) -> str:
        """The client's reason for joining."""
        return self.request.reason or "not provided"

    @property
    def timeouts(self) -> tuple[int, int]:
        """(rebalance, session) timeouts in milliseconds; version 0 has only the session timeout."""
        session_ms = self.request.session_timeout_ms
        if self.call.api_version < REBALANCE_TIMEOUT_SINCE or self.request.rebalance_timeout_ms < 0:
            return session_ms, session_ms
        return self.request.rebalance_timeout_ms, session_ms


def join(core: Core, call: Call[JoinGroupRequest], request: JoinGroupRequest, now: Moment) -> Effects:
    """Answer or park one JoinGroup."""
    if not request.group_id:
        return [refuse_join(call, ErrorCode.INVALID_GROUP_ID, request.member_id)]
    if not core.config.min_session_timeout_ms <= request.session_timeout_ms <= core.config.max_session_timeout_ms:
        return [refuse_join(call, ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)]
    group = core.groups.get(request.group_id)
    if group is None:
        if request.member_id:
            return [refuse_join(call, ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)]
        group = Group(request.group_id, now.wall_ms)
    if not group.has_room_for(request.member_id, core.config.max_size):
        effects: Effects = [refuse_join(call, ErrorCode.GROUP_MAX_SIZE_REACHED)]
        if request.member_id in group.members or request.member_id in group.pending_joins:
            group.remove(request.member_id)
            core.forget_heartbeat(group, request.member_id)
            effects += complete_if_all_joined(core, group, now)
        return effects
    # A duplicate protocol counts once, because the vote counts members by protocol.
    unique: dict[str, bytes] = {}
    for protocol in request.protocols:
        unique.setdefault(protocol.name, protocol.metadata)
    protocols: Protocols = tuple(unique.items())
    if not group.supports(request.protocol_type, protocol_names(protocols)):
        return [refuse_join(call, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)]
    core.groups[request.group_id] = group
    joining = _Joining(call, request, protocols)
    if request.member_id:
        return _join_known(core, group, joining, now)
    return _join_new(core, group, joining, now)


def _join_new(core: Core, group: Group, joining: _Joining, now: Moment) -> Effects:
    """Handle a JoinGroup without a member id."""
    call, request = joining.call, joining.request
    instance_id = request.group_instance_id
    member_id = core.new_member_id(call.client_id if instance_id is None else instance_id)
    if instance_id is not None:
        old_id = group.static_ids.get(instance_id)
        if old_id is not None:
            return _replace_static(core, group, joining, group.members[old_id], member_id, now)
        line = log_line(
            "Static member with groupInstanceId=%s and unknown member id joins group %s in %s state."
            " Created a new member id %s for this member and added to the group.",
            instance_id, group.group_id, group.state.value, member_id,
        )  # fmt: skip
    elif call.api_version >= MEMBER_ID_REQUIRED_SINCE:
        group.pending_joins.add(member_id)
        deadline_ms = now.monotonic_ms + request.session_timeout_ms
        core.timers.set((Kind.SESSION, group.group_id, member_id), deadline_ms)
        line = log_line(
            "Dynamic member with unknown member id joins group %s in %s state."
            " Created a new member id %s and requesting the member to rejoin with this id.",
            group.group_id, group.state.value, member_id,
        )  # fmt: skip
        return [line, refuse_join(call, ErrorCode.MEMBER_ID_REQUIRED, member_id)]
    else:
        line = log_line(
            "Dynamic member with unknown member id joins group %s in state %s."
            " Created a new member id %s and added the member to the group.",
            group.group_id, group.state.value, member_id,
        )  # fmt: skip
    return [line, *_add(core, group, joining, member_id, now)]


def _join_known(core: Core, group: Group, joining: _Joining, now: Moment) -> Effects:
    """Handle a JoinGroup with a member id."""
    call, request = joining.call, joining.request
    member_id = request.member_id
    if member_id in group.pending_joins:
        if request.group_instance_id is not None:
            return [refuse_join(call, ErrorCode.UNKNOWN_MEMBER_ID, member_id)]
        line = log_line(
            "Pending dynamic member with id %s joins group %s in %s state. Adding to the group now.",
            member_id, group.group_id, group.state.value,
        )  # fmt: skip
        return [line, *_add(core, group, joining, member_id, now)]
    error = group.check_member(member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return [refuse_join(call, error, member_id)]
    member = group.members[member_id]
    unchanged = member.protocols == joining.protocols
    if group.state is State.COMPLETING and unchanged:
        # The response to its first JoinGroup was lost.
        return [accept_join(call, group, member)]
    if group.state is State.STABLE and unchanged and group.leader != member_id:
        return [accept_join(call, group, member)]
    # A leader that joins again requests a rebalance, e.g. because it found new partitions.
    effects = _park(group, member, joining)
    if group.state is State.STABLE and group.leader == member_id:
        reason = f"Leader {member_id} re-joining group during {group.state.value}"
    else:
        reason = f"Updating metadata for member {member_id} during {group.state.value}"
    return effects + prepare_or_complete(core, group, now, f"{reason}; client reason: {joining.reason}")


def _add(core: Core, group: Group, joining: _Joining, member_id: str, now: Moment) -> Effects:
    call, request = joining.call, joining.request
    rebalance_ms, session_ms = joining.timeouts
    member = Member(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=call.client_id,
        client_host=call.client_host,
        rebalance_timeout_ms=rebalance_ms,
        session_timeout_ms=session_ms,
        protocols=joining.protocols,
        is_new=True,
    )
    if group.initial_delay is not None:
        group.initial_delay.has_new_member = True
    group.add(member, request.protocol_type, call)
    core.expect_heartbeat(group, member, now, core.config.new_member_join_timeout_ms)
    reason = (
        f"Adding new member {member_id} with group instance id {_or_null(request.group_instance_id)};"
        f" client reason: {joining.reason}"
    )
    return prepare_or_complete(core, group, now, reason)


def _or_null(text: str | None) -> str:
    return "null" if text is None else text


def _replace_static(core: Core, group: Group, joining: _Joining, member: Member, new_id: str, now: Moment) -> Effects:
    """Replace a static member that returned without its member id; its former requests are fenced."""
    instance_id = member.instance_id
    line = log_line(
        "Static member with groupInstanceId=%s and unknown member id joins group %s in %s state."
        " Replacing previously mapped member %s with this groupInstanceId.",
        instance_id, group.group_id, group.state.value, member.member_id,
    )  # fmt: skip
    effects = [line, *_fence(group, member)]
    stable = group.state is State.STABLE
    is_same_vote = stable and _same_vote(group, member, joining.protocols)
    if is_same_vote and not _has_partition_without_owner(core, group, member, joining.protocols):
        return effects + _replace_in_stable(core, group, joining, member, new_id)
    core.forget_heartbeat(group, member.member_id)
    group.rename(member.member_id, new_id)
    # This parked join replaces heartbeats, even if the member's first join was still parked.
    member.is_new = False
    effects += _park(group, member, joining)
    core.expect_heartbeat(group, member, now)
    if is_same_vote:
        reason = (
            f"Static member {new_id} with instance id {instance_id} joined while partitions had no owner;"
            f" client reason: {joining.reason}"
        )
    elif stable:
        reason = (
            f"Group's selectedProtocol will change because static member {new_id} with instance id {instance_id}"
            f" joined with change of protocol; client reason: {joining.reason}"
        )
    else:
        reason = (
            f"Updating metadata for static member {new_id} with instance id {instance_id};"
            f" client reason: {joining.reason}"
        )
    if group.state is State.COMPLETING:
        # The leader may be assigning partitions to the old id.
        return effects + prepare(core, group, now, reason)
    return effects + prepare_or_complete(core, group, now, reason)


def _replace_in_stable(core: Core, group: Group, joining: _Joining, member: Member, new_id: str) -> Effects:
    """Write the group with the new member id, without a rebalance. The id takes effect when the record is replayed."""
    old_id, leader_before = member.member_id, group.leader
    rebalance_ms, session_ms = joining.timeouts
    successor = replace(
        member,
        member_id=new_id,
        protocols=joining.protocols,
        rebalance_timeout_ms=rebalance_ms,
        session_timeout_ms=session_ms,
    )
    members = [successor if m is member else m for m in group.members.values()]
    leader = new_id if leader_before == old_id else leader_before
    record = group_record(group, members, leader, {m.member_id: m.assignment for m in members})

    line = log_line(
        "Static member which joins during Stable stage and doesn't affect the selected protocol will not trigger a"
        " rebalance."
    )
    follow_up = ReplaceStaticMember(joining.call, group, member, successor, old_id, leader_before)
    return [line, core.append((record,), follow_up)]


def static_member_appended(core: Core, follow_up: ReplaceStaticMember, error: ErrorCode, now: Moment) -> Effects:
    """Answer a static member that returned; the replayed record renamed it to the new member id."""
    call, group, member, successor, old_id, leader_before = follow_up
    if error is not ErrorCode.NONE:
        return [refuse_join(call, error)]
    core.forget_heartbeat(group, old_id)
    group.update(member, successor.protocols, successor.rebalance_timeout_ms, successor.session_timeout_ms)
    group.refresh_subscription()
    core.expect_heartbeat(group, member, now)
    return [accept_returned(call, group, member, leader_before)]


def accept_returned(
    call: Call[JoinGroupRequest], group: Group, member: Member, leader_before: str | None
) -> Reply[JoinGroupResponse]:
    """Answer the JoinGroup of a static member that returned to a Stable group, and must not assign partitions."""
    if call.api_version >= SKIP_ASSIGNMENT_SINCE:
        return accept_join(call, group, member, skip=group.leader == member.member_id)
    # Older versions cannot skip the assignment. The former leader id keeps the member from assigning partitions.
    return accept_join(call, group, member, leader=leader_before)


def _same_vote(group: Group, member: Member, protocols: Protocols) -> bool:
    """Whether the group would still select its protocol if `member` had `protocols`."""
    before = member.protocols
    rebalance_ms, session_ms = member.rebalance_timeout_ms, member.session_timeout_ms
    group.update(member, protocols, rebalance_ms, session_ms)
    same = group.select_protocol() == group.protocol_name
    group.update(member, before, rebalance_ms, session_ms)
    return same


def _has_partition_without_owner(core: Core, group: Group, returned: Member, protocols: Protocols) -> bool:
    """Whether a partition is in no assignment, of the topics of all members, `returned` with `protocols` included.

    No member would read it until the next rebalance. `returned` may be the leader that had to notice the new partitions
    of a topic, or a cooperative member that gave up partitions and had to join again for their new owner. Kafka's
    coordinator does not look. False if a subscription or an assignment cannot be read.
    """
    if not group.is_consumer_group:
        return False
    members = [replace(each, protocols=protocols) if each is returned else each for each in group.members.values()]
    topics = subscribed_topics(each.metadata(group.protocol_name) for each in members)
    by_name = core.topics.by_name
    counts = {topic: len(by_name[topic].partitions) for topic in topics or () if topic in by_name}
    owned: dict[str, set[int]] = {topic: set() for topic in counts}
    try:
        for member in members:
            rows = decode_assignment(member.assignment).assigned_partitions if member.assignment else ()
            for row in rows:
                owned.setdefault(row.topic, set()).update(row.partitions)
    except DecodeError:
        return False
    return any(not owned[topic].issuperset(range(count)) for topic, count in counts.items())


def _fence(group: Group, member: Member) -> Effects:
    """Answer the parked requests of the replaced static member with FENCED_INSTANCE_ID."""
    effects: Effects = []
    joining = group.park_join(member, None)
    if joining is not None:
        effects.append(refuse_join(joining, ErrorCode.FENCED_INSTANCE_ID, member.member_id))
    syncing, member.syncing = member.syncing, None
    if syncing is not None:
        effects.append(refuse_sync(syncing, ErrorCode.FENCED_INSTANCE_ID))
    return effects


def _park(group: Group, member: Member, joining: _Joining) -> Effects:
    """Apply the member's new protocols and timeouts, park its request, and answer its previous parked request."""
    group.update(member, joining.protocols, *joining.timeouts)
    previous = group.park_join(member, joining.call)
    # The client retries, so it has abandoned the previous request.
    return [] if previous is None else [refuse_join(previous, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)]


def conversion_appended(core: Core, follow_up: JoinConvertedGroup, error: ErrorCode, now: Moment) -> Effects:
    """Handle the JoinGroup again, now that the replayed tombstones deleted the group that it named."""
    call, request = follow_up
    if error is not ErrorCode.NONE:
        return [refuse_join(call, error, request.member_id)]
    return join(core, call, request, now)
