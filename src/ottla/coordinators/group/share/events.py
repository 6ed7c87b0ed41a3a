"""Events and effects of share groups that are not requests of Kafka's protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ottla.common.errors import ErrorCode
from ottla.common.ids import Uuid
from ottla.common.request import Request
from ottla.coordinators.events import OwnEffect
from ottla.coordinators.group.assignors import Partitions
from ottla.protocol.messages.share_group_describe import DescribedGroup


@dataclass(frozen=True, slots=True)
class DescribeShareGroup(Request[DescribedGroup]):
    """Describe one share group and its members; the response is a DescribedGroup of ShareGroupDescribe."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ListShares(Request["ListedShares"]):
    """List the partitions of a share group that have share state; the response is a `ListedShares`."""

    group_id: str


class ListedShares(NamedTuple):
    """The response to `ListShares`: nothing for a group that does not exist, or has another type."""

    partitions: Partitions
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class AlterShareOffsets(Request["AlteredShareOffsets"]):
    """Set where an empty share group starts in partitions that exist; the response is an `AlteredShareOffsets`."""

    group_id: str
    offsets: Mapping[Uuid, Mapping[int, int]]


class AlteredShareOffsets(NamedTuple):
    """The response to `AlterShareOffsets`: an error of the group, or the errors of single partitions."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    failed: Mapping[tuple[Uuid, int], ErrorCode] = {}


@dataclass(frozen=True, slots=True)
class DeleteShareOffsets(Request["DeletedShareOffsets"]):
    """Delete the share state of topics of an empty share group; the response is a `DeletedShareOffsets`."""

    group_id: str
    topics: frozenset[Uuid]


class DeletedShareOffsets(NamedTuple):
    """The response to `DeleteShareOffsets`: an error of the group, or the outcome of each topic.

    The outcome is UNKNOWN_TOPIC_OR_PARTITION if the group has no share state for the topic.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topics: Mapping[Uuid, ErrorCode] = {}


@dataclass(frozen=True, slots=True)
class InitializeShares(OwnEffect):
    """Effect: create the share state of partitions, then report them by `GroupShard.shares_initialized`.

    Their start offset is left to the leaders of the partitions.
    """

    group_id: str
    state_epoch: int
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class ReleaseRecords(OwnEffect):
    """Effect: release the records that a removed member has acquired; it has no outcome."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class DeleteShares(OwnEffect):
    """Effect: delete the share state of partitions, then report the outcome by `GroupShard.shares_deleted`."""

    group_id: str
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class ResetShares(OwnEffect):
    """Effect: replace the share state of partitions, then report the errors by `GroupShard.shares_reset`."""

    group_id: str
    state_epoch: int
    offsets: Mapping[Uuid, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class ForgetShares(OwnEffect):
    """Effect: delete the share state of partitions, then report the errors by `GroupShard.shares_forgotten`.

    Unlike `DeleteShares`, the group remains.
    """

    group_id: str
    partitions: Partitions
