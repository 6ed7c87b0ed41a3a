"""Events and effects of share groups that are not requests of Kafka's protocol."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.coordinators.events import OwnEffect
from ottla.coordinators.group.assignors import Partitions


@dataclass(frozen=True, slots=True)
class DescribeShareGroup:
    """Describe one share group and its members; the response is a DescribedGroup of ShareGroupDescribe."""

    group_id: str


@dataclass(frozen=True, slots=True)
class InitializeShares(OwnEffect):
    """Effect: create the share state of partitions, then report them by `GroupShard.shares_initialized`.

    Their start offset is left to the leaders of the partitions.
    """

    group_id: str
    state_epoch: int
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class DeleteShares(OwnEffect):
    """Effect: delete the share state of partitions, then report the outcome by `GroupShard.shares_deleted`."""

    group_id: str
    partitions: Partitions
