"""Members that leave a streams group: by request, by the end of their session, or because they give up tasks too
slowly; and the timers of a group.
"""

from __future__ import annotations

from ottla.coordinators.events import Call, Effects, Moment, RecordBytes, log_line
from ottla.coordinators.group.core import Core
from ottla.coordinators.group.follow_ups import AnswerCall
from ottla.coordinators.group.modern.requests import GroupType, known_member
from ottla.coordinators.group.streams import records as encode
from ottla.coordinators.group.streams.change import Change
from ottla.coordinators.group.streams.events import StreamsHeartbeat, StreamsOutcome
from ottla.coordinators.group.streams.group import StreamsGroup
from ottla.coordinators.group.streams.member import MemberState, StreamsMember
from ottla.coordinators.group.timer_keys import Kind
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse

STREAMS = GroupType("streams", "streams.heartbeat.interval.ms", "streams.session.timeout.ms")


def existing_group(core: Core, group_id: str, noun: str | None = None) -> StreamsGroup:
    """Return the streams group; raises GROUP_ID_NOT_FOUND. `noun` begins Kafka's message, which differs by request."""
    return STREAMS.existing(core, core.streams_groups, group_id, noun)


def expect_heartbeat(core: Core, group_id: str, member_id: str, now: Moment) -> None:
    """Remove the member unless a heartbeat arrives within its session timeout."""
    STREAMS.expect_heartbeat(core, group_id, member_id, core.config.streams.session_timeout_ms, now)


def loaded(core: Core, group: StreamsGroup, now: Moment) -> Effects:
    """Start the timers of the members of a group that was loaded."""
    for member in group.members.values():
        expect_heartbeat(core, group.group_id, member.member_id, now)
        if member.state is MemberState.UNREVOKED_TASKS:
            key = (Kind.REBALANCE, group.group_id, member.member_id)
            core.timers.set(key, now.monotonic_ms + member.rebalance_timeout_ms)
    return [log_line("Loaded streams group %s with %d members.", group.group_id, len(group.members))]


def leave(core: Core, call: Call[StreamsHeartbeat], request: StreamsGroupHeartbeatRequest, now: Moment) -> Effects:
    """Remove a member that leaves; it may request that the whole application shuts down."""
    group = existing_group(core, request.group_id, "Group")
    member = known_member(group, request.member_id)
    if request.shutdown_application and group.shutdown_member is None:
        group.shutdown_member = member.member_id
    response = StreamsGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)
    line = log_line("[GroupId %s] Member %s left the streams group.", group.group_id, member.member_id)
    return [line, core.append(_removal(core, group, member, now), AnswerCall(call, StreamsOutcome(response)))]


def _removal(core: Core, group: StreamsGroup, member: StreamsMember, now: Moment) -> list[RecordBytes]:
    change = Change(core, group, now)
    change.records += encode.TYPES.member_tombstones(group.group_id, member.member_id)
    change.next_epoch(group.state.metadata_hash, group.validated_epoch, group.assignment_settings)
    return change.records


def timer_elapsed(core: Core, kind: Kind, group: StreamsGroup, member_id: str, now: Moment) -> Effects:
    """Assign tasks after the initial delay, or remove a member whose time is over."""
    if kind is Kind.ASSIGNMENT:
        return _delay_elapsed(core, group, now)
    member = group.members.get(member_id)
    if member is None:
        return []
    if kind is Kind.REBALANCE:
        if member.state is not MemberState.UNREVOKED_TASKS:
            return []
        line = log_line(
            "[GroupId %s] Member %s fenced from the group because it failed to transition from epoch %d within %dms.",
            group.group_id, member_id, member.epoch, member.rebalance_timeout_ms,
        )  # fmt: skip
        core.timers.set((kind, group.group_id, member_id), now.monotonic_ms + max(member.rebalance_timeout_ms, 1))
    else:
        text = "[GroupId %s] Streams member %s fenced from the group because the member session expired."
        line = log_line(text, group.group_id, member_id)
        # If the append fails, the timer elapses again; if it succeeds, replay cancels the timer.
        expect_heartbeat(core, group.group_id, member_id, now)
    return [line, core.append(_removal(core, group, member, now))]


def _delay_elapsed(core: Core, group: StreamsGroup, now: Moment) -> Effects:
    if group.is_empty or group.state.is_assigned or group.topology is None:
        return []
    change = Change(core, group, now)
    configured, _, _ = change.configured(group.topology)
    change.assign(None, configured, group.assignment_settings)
    return [*change.lines, core.append(change.records)]
