"""Whether a request that commits or fetches offsets comes from a member of its group, for groups of all types.

A member of a consumer group may commit with an earlier epoch than its present one, as long as it got all partitions of
the request at that epoch or before (KIP-1251): otherwise a commit would fail whenever the group rebalances.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.common.errors import ErrorCode
from ottla.common.ids import Uuid
from ottla.coordinators.events import Moment
from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.member import ConsumerMember
from ottla.coordinators.group.core import Core

GROUP_ID_NOT_FOUND_SINCE = 9
# Members of the consumer protocol must use this version of OffsetCommit.
MEMBER_EPOCH_SINCE = 9
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Committer:
    """Who commits: a member with its generation or epoch, or -1 for an administrator or a consumer without a group."""

    group_id: str
    member_id: str
    instance_id: str | None
    epoch: int
    api_version: int = GROUP_ID_NOT_FOUND_SINCE
    """The version of OffsetCommit; ignored for transactions."""
    is_transactional: bool = False


def check_member(core: Core, committer: Committer, partitions: Iterable[tuple[Uuid, int]], now: Moment) -> ErrorCode:
    """Return NONE, or the error for a commit of offsets of these partitions."""
    group = core.groups.get(committer.group_id)
    if group is not None:
        return group.check_commit(
            committer.member_id, committer.instance_id, committer.epoch, is_transactional=committer.is_transactional
        )
    consumer_group = core.consumer_groups.get(committer.group_id)
    if consumer_group is not None:
        error = _check_consumer_group(consumer_group, committer, partitions)
        stale = committer.is_transactional and error is ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.ILLEGAL_GENERATION if stale else error
    if committer.group_id in core.share_groups:
        return ErrorCode.GROUP_ID_NOT_FOUND
    other = core.unserved.get(committer.group_id)
    error = ErrorCode.GROUP_ID_NOT_FOUND if other is None else other.check_commit(core, committer.epoch, now)
    if error is not ErrorCode.GROUP_ID_NOT_FOUND:
        return error
    if committer.epoch < 0 and other is None:
        return ErrorCode.NONE  # the commit creates a simple group
    if committer.is_transactional or committer.api_version < GROUP_ID_NOT_FOUND_SINCE:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.GROUP_ID_NOT_FOUND


def _check_consumer_group(
    group: ConsumerGroup, committer: Committer, partitions: Iterable[tuple[Uuid, int]]
) -> ErrorCode:
    if committer.epoch < 0 and group.is_empty:
        return ErrorCode.NONE
    is_anonymous = committer.epoch == NO_EPOCH and not committer.member_id and committer.instance_id is None
    if committer.is_transactional and is_anonymous:
        return ErrorCode.NONE
    member = group.members.get(committer.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_old_version = not committer.is_transactional and committer.api_version < MEMBER_EPOCH_SINCE
    if member.classic is None and is_old_version:
        return ErrorCode.UNSUPPORTED_VERSION
    if committer.epoch == member.epoch:
        return ErrorCode.NONE
    if committer.epoch < member.epoch and all(
        (got_at := member.assignment_epoch(*partition)) is not None and got_at <= committer.epoch
        for partition in partitions
    ):
        return ErrorCode.NONE
    return _stale(member)


def check_fetch(core: Core, group_id: str, member_id: str | None, epoch: int) -> ErrorCode:
    """Return NONE, or the error for a fetch of offsets. Only members of consumer groups are checked."""
    group = core.consumer_groups.get(group_id)
    if group is None or (member_id is None and epoch < 0):
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if epoch == member.epoch else _stale(member)


def _stale(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
