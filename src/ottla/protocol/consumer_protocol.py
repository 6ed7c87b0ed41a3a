"""The messages that members of a classic consumer group exchange in JoinGroup and SyncGroup.

Each message begins with its version, a 16-bit number. A newer version is decoded as the newest known one, because
versions only append fields.
"""

from __future__ import annotations

from ottla.protocol.message import Int32, Message, Struct, since
from ottla.protocol.wire import Buffer, DecodeError


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """The subscription of a member of a classic consumer group. KIP-429, KIP-792, KIP-881"""

    topics: list[str] = []
    user_data: bytes | None = None
    owned_partitions: list[ConsumerProtocolSubscriptionTopicPartition] = since(1)
    generation_id: Int32 = since(2, default=-1)
    rack_id: str | None = since(3, default=None)


class ConsumerProtocolSubscriptionTopicPartition(Struct):
    """An element of `ConsumerProtocolSubscription.owned_partitions`."""

    topic: str = ""
    partitions: list[Int32] = []


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """The partitions that a member of a classic consumer group was given."""

    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = []
    user_data: bytes | None = None


class ConsumerProtocolAssignmentTopicPartition(Struct):
    """An element of `ConsumerProtocolAssignment.assigned_partitions`."""

    topic: str = ""
    partitions: list[Int32] = []


PROTOCOL_TYPE = "consumer"


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int) -> bytes:
    """The metadata that a member joins with."""
    return version.to_bytes(2, "big") + subscription.encode(version)


def decode_subscription(buffer: Buffer) -> ConsumerProtocolSubscription:
    """The subscription in a member's metadata. Raises DecodeError."""
    version = min(_version(buffer), ConsumerProtocolSubscription.MAX_VERSION)
    return ConsumerProtocolSubscription.decode_from(buffer, 2, version)[0]


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int) -> bytes:
    """The assignment that a leader hands to a member."""
    return version.to_bytes(2, "big") + assignment.encode(version)


def decode_assignment(buffer: Buffer) -> ConsumerProtocolAssignment:
    """The assignment that a member was given. Raises DecodeError."""
    version = min(_version(buffer), ConsumerProtocolAssignment.MAX_VERSION)
    return ConsumerProtocolAssignment.decode_from(buffer, 2, version)[0]


def _version(buffer: Buffer) -> int:
    version = int.from_bytes(buffer[:2], "big", signed=True)
    if len(buffer) < 2 or version < 0:
        raise DecodeError("A consumer protocol message without version")
    return version
