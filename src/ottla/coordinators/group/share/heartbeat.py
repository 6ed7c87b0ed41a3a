"""ShareGroupHeartbeat (KIP-932): join, stay in the group, leave.

One heartbeat adds or updates the member, starts a new group epoch if the subscription or the topics changed or a
partition got its share state, computes the target assignment of that epoch, and takes the member to it.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinators.events import Call, Effects, Moment, RecordBytes, Reply, log_line
from ottla.coordinators.group.core import Core
from ottla.coordinators.group.follow_ups import AnswerCall, AnswerShareHeartbeat, ReleaseShareRecords
from ottla.coordinators.group.modern.epochs import JOIN_EPOCH, LEAVE_EPOCH
from ottla.coordinators.group.modern.requests import GroupType, known_member, problem_of_ids
from ottla.coordinators.group.share import records as encode
from ottla.coordinators.group.share.change import Change
from ottla.coordinators.group.share.events import ReleaseRecords
from ottla.coordinators.group.share.group import NO_MEMBER, ShareGroup, ShareMember
from ottla.coordinators.group.share.initialization import begin_initialization, initialize
from ottla.coordinators.group.timer_keys import Kind
from ottla.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

SHARE = GroupType("share", "share.heartbeat.interval.ms", "share.session.timeout.ms")


def heartbeat(
    core: Core, call: Call[ShareGroupHeartbeatRequest], request: ShareGroupHeartbeatRequest, now: Moment
) -> Effects:
    """Answer one ShareGroupHeartbeat."""
    try:
        _validate(request)
        if request.member_epoch == LEAVE_EPOCH:
            return _leave(core, call, request, now)
        return _stay(core, call, request, now)
    except KafkaError as error:
        return [Reply(call, ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message))]


def _validate(request: ShareGroupHeartbeatRequest) -> None:
    problem = problem_of_ids(request)
    if problem is None and request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        problem = "SubscribedTopicNames must be set in first request."
    elif problem is None and request.member_epoch < LEAVE_EPOCH:
        problem = "MemberEpoch is invalid."
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)


def existing_group(core: Core, group_id: str, noun: str | None = None) -> ShareGroup:
    """Return the share group; raises GROUP_ID_NOT_FOUND. `noun` begins Kafka's message, which differs by request."""
    return SHARE.existing(core, core.share_groups, group_id, noun)


def group_to_join(core: Core, group_id: str) -> ShareGroup:
    """Return the group, which may be new; raises GROUP_ID_NOT_FOUND if a group of another type has this id."""
    return existing_group(core, group_id) if core.has_group(group_id) else ShareGroup(group_id)


def _member(group: ShareGroup, request: ShareGroupHeartbeatRequest) -> ShareMember:
    """Return the member as it was, or a new one; raises UNKNOWN_MEMBER_ID or FENCED_MEMBER_EPOCH."""
    if request.member_epoch == JOIN_EPOCH:
        return group.members.get(request.member_id) or ShareMember(request.member_id)
    member = known_member(group, request.member_id)
    SHARE.check_epoch(member, request.member_epoch, is_consistent=True)
    return member


def _stay(
    core: Core, call: Call[ShareGroupHeartbeatRequest], request: ShareGroupHeartbeatRequest, now: Moment
) -> Effects:
    """Handle the heartbeat of a member that joins or stays."""
    joins = request.member_epoch == JOIN_EPOCH
    group = (group_to_join if joins else existing_group)(core, request.group_id)
    SHARE.check_room(group, request.member_id, core.config.share.max_size)
    before = _member(group, request)
    names = request.subscribed_topic_names
    after = replace(
        before,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        topic_names=before.topic_names if names is None else frozenset(names),
        client_id=call.client_id,
        client_host=call.client_host,
    )
    change = Change(core, group, now)
    names_changed = change.update_member(before, after)
    topics = group.topics_after(before, after)
    moved = change.advance(after, topics, has_new_subscription=names_changed)
    effect = begin_initialization(change, topics)
    _expect_heartbeat(core, group.group_id, request.member_id, now)
    response = _response(core, request, before, moved)
    if not change.records:
        return [*change.lines, *initialize(core, effect, now), Reply(call, response)]
    return [*change.lines, core.append(change.records, AnswerShareHeartbeat(call, response, effect))]


def heartbeat_appended(core: Core, follow_up: AnswerShareHeartbeat, error: ErrorCode, now: Moment) -> Effects:
    """Answer the member, and create the share state of the partitions that were recorded as initializing."""
    call, response, effect = follow_up
    if error is not ErrorCode.NONE:
        return [Reply(call, ShareGroupHeartbeatResponse(error_code=error))]
    return [*initialize(core, effect, now), Reply(call, response)]


def _expect_heartbeat(core: Core, group_id: str, member_id: str, now: Moment) -> None:
    SHARE.expect_heartbeat(core, group_id, member_id, core.config.share.session_timeout_ms, now)


def loaded(core: Core, group: ShareGroup, now: Moment) -> Effects:
    """Start the session timers of a group that was loaded."""
    for member_id in group.members:
        _expect_heartbeat(core, group.group_id, member_id, now)
    return [log_line("Loaded share group %s with %d members.", group.group_id, len(group.members))]


def _leave(
    core: Core, call: Call[ShareGroupHeartbeatRequest], request: ShareGroupHeartbeatRequest, now: Moment
) -> Effects:
    group = existing_group(core, request.group_id, "Group")
    member = known_member(group, request.member_id)
    response = ShareGroupHeartbeatResponse(member_id=member.member_id, member_epoch=LEAVE_EPOCH)
    line = log_line("[GroupId %s] Member %s left the share group.", group.group_id, member.member_id)
    # A member that leaves may have acknowledgements under way. Its records are released with its share session.
    return [line, core.append(_removal(core, group, member, now), AnswerCall(call, response))]


def timer_elapsed(core: Core, _kind: Kind, group: ShareGroup, member_id: str, now: Moment) -> Effects:
    """Remove a member whose session ended."""
    member = group.members.get(member_id)
    if member is None:
        return []
    text = "[GroupId %s] Member %s fenced from the group because the member session expired."
    # If the append fails, the timer elapses again; if it succeeds, replay cancels the timer.
    _expect_heartbeat(core, group.group_id, member_id, now)
    release = ReleaseShareRecords(ReleaseRecords(group.group_id, member_id))
    return [log_line(text, group.group_id, member_id), core.append(_removal(core, group, member, now), release)]


def _removal(core: Core, group: ShareGroup, member: ShareMember, now: Moment) -> list[RecordBytes]:
    change = Change(core, group, now)
    change.records += encode.TYPES.member_tombstones(group.group_id, member.member_id)
    change.next_epoch(group.topics_after(member, NO_MEMBER))
    return change.records


def removal_appended(_core: Core, follow_up: ReleaseShareRecords, error: ErrorCode, _now: Moment) -> Effects:
    """Release the records of a removed member. Without the removal it continues, and its locks count."""
    return [follow_up.effect] if error is ErrorCode.NONE else []


def _response(
    core: Core, request: ShareGroupHeartbeatRequest, before: ShareMember, after: ShareMember
) -> ShareGroupHeartbeatResponse:
    """The member's epoch; its partitions only if it joins, sent a full request, or they changed."""
    default_ms = core.config.share.heartbeat_interval_ms
    response = ShareGroupHeartbeatResponse(
        member_id=after.member_id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=SHARE.heartbeat_interval_ms(core, request.group_id, default_ms),
    )
    is_full = request.member_epoch == JOIN_EPOCH or request.subscribed_topic_names is not None
    if is_full or before.assigned != after.assigned:
        rows = [
            TopicPartitions(topic_id=topic, partitions=sorted(after.assigned[topic]))
            for topic in sorted(after.assigned)
        ]
        response.assignment = Assignment(topic_partitions=rows)
    return response
