"""Members of the classic protocol in a consumer group, while an application migrates from one protocol to the other.

The coordinator answers JoinGroup as a leader would: each member is a follower whose generation is its member epoch,
and gets its partitions with SyncGroup. Heartbeats ask it to join again when it must give up or may get partitions.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import Uuid
from ottla.coordinators.events import Call, Effects, Moment, Reply, log_line
from ottla.coordinators.group.consumer.change import Change
from ottla.coordinators.group.consumer.fencing import CONSUMER, check_static, expect_heartbeat, removal
from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.heartbeat import return_static_member
from ottla.coordinators.group.consumer.matching import update_expression
from ottla.coordinators.group.consumer.member import ClassicMember, ConsumerMember, MemberState
from ottla.coordinators.group.consumer.migration import encode_partitions, replace_last_consumer_member
from ottla.coordinators.group.consumer.records import group_tombstones
from ottla.coordinators.group.core import Core, refuse_join, refuse_sync
from ottla.coordinators.group.follow_ups import AnswerCall, JoinConvertedGroup
from ottla.coordinators.group.join import MEMBER_ID_REQUIRED_SINCE
from ottla.coordinators.group.modern.requests import known_member
from ottla.coordinators.group.session import BATCHED_LEAVE_SINCE
from ottla.coordinators.group.timer_keys import Kind
from ottla.protocol.consumer_protocol import PROTOCOL_TYPE, ConsumerProtocolSubscription, decode_subscription
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.wire import DecodeError


def join(
    core: Core, call: Call[JoinGroupRequest], request: JoinGroupRequest, group: ConsumerGroup, now: Moment
) -> Effects:
    """Let a classic member join; an empty consumer group becomes a classic group."""
    config = core.config
    if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
        return [refuse_join(call, ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)]
    if group.is_empty and request.member_id:
        return [refuse_join(call, ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)]
    if group.is_empty and request.protocols and request.protocol_type:
        return [core.append(group_tombstones(group), JoinConvertedGroup(call, request))]
    try:
        return _join(core, call, request, group, now)
    except KafkaError as error:
        return [refuse_join(call, error.code, request.member_id)]


def _join(
    core: Core, call: Call[JoinGroupRequest], request: JoinGroupRequest, group: ConsumerGroup, now: Moment
) -> Effects:
    CONSUMER.check_room(group, request.member_id, core.config.consumer.max_size)
    subscription = _subscription(group, request)
    member_id = request.member_id or core.new_member_id(call.client_id)
    if not request.member_id and request.group_instance_id is None and call.api_version >= MEMBER_ID_REQUIRED_SINCE:
        return [refuse_join(call, ErrorCode.MEMBER_ID_REQUIRED, member_id)]
    change = Change(core, group, now)
    before = _joining(change, request, member_id)
    protocols = tuple((row.name, bytes(row.metadata)) for row in request.protocols)
    timeout_ms = request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms
    after = replace(
        before,
        instance_id=request.group_instance_id or before.instance_id,
        rack_id=subscription.rack_id or before.rack_id,
        rebalance_timeout_ms=timeout_ms,
        topic_names=frozenset(subscription.topics),
        topic_regex="",
        client_id=call.client_id,
        client_host=call.client_host,
        classic=ClassicMember(request.session_timeout_ms, protocols),
    )
    names_changed = change.update_member(before, after)
    regex_changed, _ = update_expression(change, before, after)
    is_changed = names_changed or regex_changed
    if is_changed or group.state.must_compare_topics(now):
        change.next_epoch(group.topics_after(before, after), only_if_topics_changed=not is_changed)
    downgrade = replace_last_consumer_member(core, call, group, after, change.epoch, now)
    if downgrade is not None:
        return [*change.lines, downgrade]
    moved = change.advance(before, after, _owned(core, subscription), has_new_subscription=is_changed)
    expect_heartbeat(core, group.group_id, moved, now)
    core.timers.cancel((Kind.JOIN, group.group_id, member_id))
    core.timers.set((Kind.SYNC, group.group_id, member_id), now.monotonic_ms + timeout_ms)
    response = JoinGroupResponse(
        generation_id=moved.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocols[0][0],
        leader="",
        member_id=member_id,
    )
    return [*change.lines, *core.reply_after_append(call, change.records, response)]


def _subscription(group: ConsumerGroup, request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """The subscription of a member whose protocols all classic members support; raises INCONSISTENT_GROUP_PROTOCOL."""
    count = group.classic_count
    is_common = any(group.classic_protocols[row.name] == count for row in request.protocols)
    if request.protocol_type != PROTOCOL_TYPE or not is_common:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        return decode_subscription(request.protocols[0].metadata)
    except DecodeError as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error


def _joining(change: Change, request: JoinGroupRequest, member_id: str) -> ConsumerMember:
    """The member as it was; a static member that returns without an id has a new one."""
    group, instance_id = change.group, request.group_instance_id
    if instance_id is not None:
        if request.member_id:
            return check_static(group, member_id, instance_id)
        existing = group.static_member(instance_id)
        if existing is not None:
            return return_static_member(change, existing, member_id)
    change.log("Member %s joins the consumer group using the classic protocol.", member_id)
    return group.members.get(member_id) or ConsumerMember(member_id)


def _owned(core: Core, subscription: ConsumerProtocolSubscription) -> dict[Uuid, frozenset[int]]:
    by_name = core.topics.by_name
    return {
        by_name[row.topic].topic_id: frozenset(row.partitions)
        for row in subscription.owned_partitions
        if row.topic in by_name
    }


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicMember]:
    """The member that sends a request; raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION."""
    member = known_member(group, member_id) if instance_id is None else check_static(group, member_id, instance_id)
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    if generation != member.epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return member, member.classic


def sync(
    core: Core, call: Call[SyncGroupRequest], request: SyncGroupRequest, group: ConsumerGroup, now: Moment
) -> Effects:
    """Answer a classic member with its partitions."""
    group_id, member_id = group.group_id, request.member_id
    try:
        member, classic = _classic_member(group, member_id, request.group_instance_id, request.generation_id)
    except KafkaError as error:
        return [refuse_sync(call, error.code)]
    name, metadata = classic.protocols[0]
    if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (None, name):
        return [refuse_sync(call, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)]
    if group.target.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _expect_join(core, group_id, member, now)
        return [refuse_sync(call, ErrorCode.REBALANCE_IN_PROGRESS)]
    core.timers.cancel((Kind.SYNC, group_id, member_id))
    expect_heartbeat(core, group_id, member, now)
    assignment = encode_partitions(core.topics, member.assigned, metadata)
    response = SyncGroupResponse(
        protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment
    )
    return [Reply(call, response)]


def heartbeat(
    core: Core, call: Call[HeartbeatRequest], request: HeartbeatRequest, group: ConsumerGroup, now: Moment
) -> Effects:
    """Extend the session of a classic member; the response says whether it must join again."""
    try:
        member, _ = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    except KafkaError as error:
        return [Reply(call, HeartbeatResponse(error_code=error.code))]
    expect_heartbeat(core, group.group_id, member, now)
    is_waiting = member.state is MemberState.UNRELEASED_PARTITIONS and not _is_released(group, member)
    is_placed = member.state is MemberState.STABLE or is_waiting
    if member.epoch >= group.epoch and is_placed:
        return [Reply(call, HeartbeatResponse())]
    _expect_join(core, group.group_id, member, now)
    return [Reply(call, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))]


def _is_released(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether no other member owns partitions of this member's target any more."""
    return all(
        group.owner(topic, partition) in (None, member.member_id)
        for topic, partitions in group.target.of(member.member_id).items()
        for partition in partitions
    )


def _expect_join(core: Core, group_id: str, member: ConsumerMember, now: Moment) -> None:
    """Remove the member unless it joins again in time, counted from the first request to do so."""
    key = (Kind.JOIN, group_id, member.member_id)
    if core.timers.deadline(key) is None:
        core.timers.set(key, now.monotonic_ms + member.rebalance_timeout_ms)


def leave(
    core: Core, call: Call[LeaveGroupRequest], request: LeaveGroupRequest, group: ConsumerGroup, now: Moment
) -> Effects:
    """Remove members that leave, or that an administrator removes by instance id."""
    batched = call.api_version >= BATCHED_LEAVE_SINCE
    leavers = request.members if batched else [MemberIdentity(member_id=request.member_id)]
    rows, effects = [], []
    left: dict[str, ConsumerMember] = {}
    for leaver in leavers:
        row = MemberResponse(member_id=leaver.member_id, group_instance_id=leaver.group_instance_id)
        try:
            member = _leaver(group, leaver)
        except KafkaError as error:
            row.error_code = error.code
        else:
            left[member.member_id] = member
            effects.append(
                log_line(
                    "[GroupId %s] Member %s has left group through explicit `LeaveGroup` request; client reason: %s",
                    group.group_id, member.member_id, leaver.reason or "not provided",
                )
            )  # fmt: skip
        rows.append(row)
    response = LeaveGroupResponse(members=rows) if batched else LeaveGroupResponse(error_code=rows[0].error_code)
    if not left:
        return [Reply(call, response)]
    return [*effects, removal(core, group, list(left.values()), now, AnswerCall(call, response))]


def _leaver(group: ConsumerGroup, leaver: MemberIdentity) -> ConsumerMember:
    if leaver.group_instance_id is None:
        return known_member(group, leaver.member_id)
    if leaver.member_id:
        return check_static(group, leaver.member_id, leaver.group_instance_id)
    existing = group.static_member(leaver.group_instance_id)
    if existing is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {leaver.group_instance_id} is unknown.")
    return existing
