"""Builds metadata responses for tests."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def topic_row(
    name: str, *, leaders: Sequence[int] = (), epoch: int = 0, topic_id: bytes | None = None, error: int = 0
) -> MetadataResponseTopic:
    """Return a topic with one partition per leader (-1: no leader)."""
    partitions = [
        MetadataResponsePartition(0, index, leader, epoch, [1, 2], [1, 2], []) for index, leader in enumerate(leaders)
    ]
    return MetadataResponseTopic(error, name, topic_id or name.encode().ljust(16, b"\0"), False, partitions)


def metadata(*topics: MetadataResponseTopic, nodes: Sequence[int] = (1, 2), controller: int = 1) -> MetadataResponse:
    """Return a response with these brokers and topics."""
    brokers = [MetadataResponseBroker(node, f"host{node}", 9092) for node in nodes]
    return MetadataResponse(brokers=brokers, cluster_id="c", controller_id=controller, topics=list(topics))
