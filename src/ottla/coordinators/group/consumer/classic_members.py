"""Requests of the classic protocol that name a consumer group."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.coordinators.events import Call, Effects, Moment
from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.records import group_tombstones
from ottla.coordinators.group.core import Core, refuse_join
from ottla.coordinators.group.follow_ups import JoinConvertedGroup
from ottla.protocol.messages.join_group import JoinGroupRequest


def join(core: Core, call: Call, request: JoinGroupRequest, group: ConsumerGroup, _now: Moment) -> Effects:
    """Let a classic member join; an empty consumer group becomes a classic group."""
    if not group.is_empty:
        return [refuse_join(call, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)]
    config = core.config
    is_valid_timeout = config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms
    if request.member_id:
        return [refuse_join(call, ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)]
    if not is_valid_timeout:
        return [refuse_join(call, ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)]
    if not request.protocols or not request.protocol_type:
        return [refuse_join(call, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)]
    return [core.append(group_tombstones(group), JoinConvertedGroup(call, request))]
