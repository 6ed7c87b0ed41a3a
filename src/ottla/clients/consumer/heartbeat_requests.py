"""Builds the heartbeats of members of consumer groups (KIP-848) and share groups (KIP-932).

A field that has not changed is omitted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from ottla.clients.consumer.settings import GroupSettings
from ottla.common.errors import ErrorCode
from ottla.common.ids import Uuid
from ottla.protocol.message import Message
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, RequestTopicPartitions
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""The group keeps the partitions of the instance for its next member, until the session times out."""
_PATTERN_VERSION: Final = 1


class TopicIdPartition(NamedTuple):
    """A partition of a topic by the topic's id: a recreated topic has other partitions."""

    topic_id: Uuid
    partition: int


class Subscribed(NamedTuple):
    """The subscribed topics, or the pattern that the broker matches (RE2 syntax)."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None

    @property
    def is_empty(self) -> bool:
        return not self.topics and self.pattern is None


class Sent(NamedTuple):
    """The fields of a heartbeat that are omitted while they do not change; None differs from all values."""

    subscription: Subscribed
    owned: frozenset[TopicIdPartition] | None


class Heartbeat(NamedTuple):
    """A request, and the oldest version in which the broker understands it."""

    request: Message
    min_version: int = 0


_CONSUMER_ADVICE: Final[dict[int, str]] = {
    ErrorCode.UNSUPPORTED_VERSION: (
        "the broker does not serve group.protocol=consumer (KIP-848): set group.protocol=classic, or enable the "
        "feature group.version=1 of a cluster with Kafka 4.0 or newer"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: (
        "group {group} is full: stop another member, or raise group.consumer.max.size of the brokers"
    ),
    ErrorCode.UNRELEASED_INSTANCE_ID: (
        "another consumer is a member of group {group} with group.instance.id={instance}: close it, wait until its "
        "session has timed out, or choose another id"
    ),
    ErrorCode.FENCED_INSTANCE_ID: (
        "another consumer has taken over group.instance.id={instance} of group {group}: each consumer needs its own"
    ),
    ErrorCode.UNSUPPORTED_ASSIGNOR: (
        "the brokers do not have the assignor of group.remote.assignor: choose one of group.consumer.assignors, or none"
    ),
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the SubscriptionPattern must follow the syntax of RE2",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "group {group} has members of another protocol that cannot be migrated: stop them first"
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: "group {group} is of another type: choose another group.id",
}


class ConsumerHeartbeats:
    advice = _CONSUMER_ADVICE
    """Advice to the user about an error code; a format string with `group` and `instance`."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings

    def heartbeat(self, member_id: str, epoch: int, fields: Sent, previous: Sent | None) -> Heartbeat:
        settings = self._settings
        request = ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id, member_id=member_id, member_epoch=epoch, instance_id=settings.instance_id
        )
        if previous is None:
            request.rack_id = settings.rack or None
            request.rebalance_timeout_ms = settings.max_poll_interval_ms
            request.server_assignor = settings.remote_assignor
        topics, pattern = fields.subscription
        if previous is None or previous.subscription.topics != topics:
            request.subscribed_topic_names = sorted(topics)
        if previous is None or previous.subscription.pattern != pattern:
            # The empty string removes an earlier pattern; null would leave it.
            request.subscribed_topic_regex = pattern or ""
        if previous is None or previous.owned != fields.owned:
            request.topic_partitions = _by_topic_id(fields.owned or ())
        return Heartbeat(request, _PATTERN_VERSION if pattern else 0)

    def leave(self, member_id: str) -> Message:
        """Build the heartbeat that leaves the group; a static member keeps its place for a while."""
        settings = self._settings
        return ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id,
            member_id=member_id,
            member_epoch=LEAVE_EPOCH if settings.instance_id is None else LEAVE_STATIC_EPOCH,
            instance_id=settings.instance_id,
        )


def _by_topic_id(partitions: Iterable[TopicIdPartition]) -> list[RequestTopicPartitions]:
    rows: dict[Uuid, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        rows.setdefault(topic_id, []).append(partition)
    return [RequestTopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in rows.items()]


_SHARE_ADVICE: Final[dict[int, str]] = {
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
    advice = _SHARE_ADVICE

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings

    def heartbeat(self, member_id: str, epoch: int, fields: Sent, previous: Sent | None) -> Heartbeat:
        request = ShareGroupHeartbeatRequest(group_id=self._settings.group_id, member_id=member_id, member_epoch=epoch)
        if previous is None:
            request.rack_id = self._settings.rack or None
        if previous is None or previous.subscription != fields.subscription:
            request.subscribed_topic_names = sorted(fields.subscription.topics)
        return Heartbeat(request)

    def leave(self, member_id: str) -> Message:
        return ShareGroupHeartbeatRequest(
            group_id=self._settings.group_id, member_id=member_id, member_epoch=LEAVE_EPOCH
        )


HeartbeatRequests: TypeAlias = ConsumerHeartbeats | ShareHeartbeats
