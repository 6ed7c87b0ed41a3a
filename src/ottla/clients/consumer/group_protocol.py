"""Encodes and decodes the bytes that members exchange in JoinGroup and SyncGroup: subscriptions and assignments.

Kafka's formats ("consumer" protocol), so that members of different clients can share a group.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.clients.consumer.assignors import Member
from ottla.common.ids import TopicPartition, by_topic
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

SUBSCRIPTION_VERSION: Final = 3
ASSIGNMENT_VERSION: Final = 0


def subscription_bytes(
    topics: Iterable[str],
    owned: Iterable[TopicPartition],
    *,
    user_data: bytes | None,
    generation: int,
    rack: str | None,
) -> bytes:
    """Encode a member's subscription; `generation` is its last assignment's."""
    subscription = ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=user_data,
        owned_partitions=[
            ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in by_topic(sorted(owned)).items()
        ],
        generation_id=generation,
        rack_id=rack,
    )
    return encode_subscription(subscription, SUBSCRIPTION_VERSION)


def decode_member(member_id: str, instance_id: str | None, metadata: bytes) -> Member:
    row = decode_subscription(metadata)
    owned = tuple(TopicPartition(o.topic, p) for o in row.owned_partitions for p in o.partitions)
    return Member(member_id, tuple(row.topics), instance_id, owned, row.generation_id, row.user_data)


def assignment_bytes(partitions: Iterable[TopicPartition]) -> bytes:
    rows = [
        ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=ps)
        for topic, ps in by_topic(sorted(partitions)).items()
    ]
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=rows), ASSIGNMENT_VERSION)


def decode_partitions(assignment: bytes) -> frozenset[TopicPartition]:
    """Decode an assignment; empty bytes are no partitions. Raises DecodeError."""
    rows = decode_assignment(assignment).assigned_partitions if assignment else []
    return frozenset(TopicPartition(row.topic, p) for row in rows for p in row.partitions)
