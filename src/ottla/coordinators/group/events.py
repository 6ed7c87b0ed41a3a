"""Requests of the group coordinator that are not requests of Kafka's protocol.

The broker splits a request that names several groups into one of these for each group.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.common.errors import ErrorCode
from ottla.common.request import Request
from ottla.protocol.messages import consumer_group_describe, describe_groups
from ottla.protocol.messages.delete_groups import DeletableGroupResult
from ottla.protocol.messages.list_groups import ListedGroup
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)


@dataclass(frozen=True, slots=True)
class FetchOffsets(Request[OffsetFetchResponseGroup | list[OffsetFetchRequestTopics]]):
    """Fetch the committed offsets of one group; the response is an OffsetFetchResponseGroup.

    If the request is for all offsets and the group has more than `most`, the response is a list of
    OffsetFetchRequestTopics instead, which the caller must fetch in parts.
    """

    group: OffsetFetchRequestGroup
    require_stable: bool = False
    most: int | None = None


@dataclass(frozen=True, slots=True)
class DescribeGroup(Request[describe_groups.DescribedGroup]):
    """Describe one group and its members; the response is a DescribedGroup."""

    group_id: str


@dataclass(frozen=True, slots=True)
class DescribeConsumerGroup(Request[consumer_group_describe.DescribedGroup]):
    """Describe one consumer group and its members; the response is a DescribedGroup of ConsumerGroupDescribe."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ListGroups(Request[list[ListedGroup] | ErrorCode]):
    """List the groups of this shard; the response is a list of ListedGroup."""

    states: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DeleteGroup(Request[DeletableGroupResult | None]):
    """Delete one group and its offsets; the response is a DeletableGroupResult, or None while offsets are left.

    Each call deletes a bounded number of offsets; the call that deletes the last ones also deletes the group.
    """

    group_id: str


@dataclass(frozen=True, slots=True)
class ForceRebalance(Request[ErrorCode]):
    """Start a rebalance, as if a member had joined or left; the response is an ErrorCode."""

    group_id: str


@dataclass(frozen=True, slots=True)
class TopicsDeleted(Request[bool | None]):
    """Delete the offsets of deleted topics, a bounded number per call; the response is True if more are left."""

    names: frozenset[str]
