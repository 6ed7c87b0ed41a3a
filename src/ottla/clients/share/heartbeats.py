"""Builds the heartbeats of a share group member (KIP-932). A field that has not changed is omitted."""

from __future__ import annotations

from typing import Final

from ottla.clients.consumer.heartbeat_requests import LEAVE_EPOCH, Heartbeat, Sent
from ottla.clients.consumer.settings import GroupSettings
from ottla.common.errors import ErrorCode
from ottla.protocol.message import Message
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

_ADVICE: Final[dict[int, str]] = {
    ErrorCode.UNSUPPORTED_VERSION: (
        "the broker does not serve share groups (KIP-932): enable the feature share.version=1 of a cluster of "
        "Kafka 4.2 or newer"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: (
        "share group {group} is full: stop another member, or raise group.share.max.size of the brokers"
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: "group {group} is not a share group: choose another group.id",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "group {group} is not a share group: choose another group.id",
}


class ShareHeartbeats:
    """ShareGroupHeartbeat."""

    advice = _ADVICE

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings

    def heartbeat(self, member_id: str, epoch: int, fields: Sent, previous: Sent | None) -> Heartbeat:
        """Build a heartbeat with the fields that differ from `previous`; all fields if it is None."""
        request = ShareGroupHeartbeatRequest(group_id=self._settings.group_id, member_id=member_id, member_epoch=epoch)
        if previous is None:
            request.rack_id = self._settings.rack or None
        if previous is None or previous.subscription != fields.subscription:
            request.subscribed_topic_names = sorted(fields.subscription.topics)
        return Heartbeat(request)

    def leave(self, member_id: str) -> Message:
        """Build the heartbeat that leaves the group."""
        return ShareGroupHeartbeatRequest(
            group_id=self._settings.group_id, member_id=member_id, member_epoch=LEAVE_EPOCH
        )
