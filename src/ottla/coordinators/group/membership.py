"""Whether a request that commits or fetches offsets comes from a member of its group, for groups of all types.

A member of a consumer or streams group may commit with an earlier epoch than its present one, as long as it got all
partitions of the request at that epoch or before (KIP-1251): otherwise a commit would fail in each rebalance.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.common.errors import ErrorCode
from ottla.common.ids import Uuid
from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.member import ConsumerMember
from ottla.coordinators.group.core import Core
from ottla.coordinators.group.streams.group import StreamsGroup
from ottla.coordinators.group.streams.member import StreamsMember

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


def check_member(core: Core, committer: Committer, partitions: Iterable[tuple[Uuid, int]]) -> ErrorCode:
    """Return NONE, or the error for a commit of offsets of these partitions."""
    group = core.groups.get(committer.group_id)
    if group is not None:
        return group.check_commit(
            committer.member_id, committer.instance_id, committer.epoch, is_transactional=committer.is_transactional
        )
    modern = core.consumer_groups.get(committer.group_id) or core.streams_groups.get(committer.group_id)
    if modern is not None:
        error = _check_modern(core, modern, committer, partitions)
        stale = committer.is_transactional and error is ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.ILLEGAL_GENERATION if stale else error
    if committer.group_id in core.share_groups:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if committer.epoch < 0 and committer.group_id not in core.unserved:
        return ErrorCode.NONE  # the commit creates a simple group
    if committer.is_transactional or committer.api_version < GROUP_ID_NOT_FOUND_SINCE:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.GROUP_ID_NOT_FOUND


def _check_modern(
    core: Core,
    group: ConsumerGroup | StreamsGroup,
    committer: Committer,
    partitions: Iterable[tuple[Uuid, int]],
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
    if is_old_version and not _is_classic(member):
        return ErrorCode.UNSUPPORTED_VERSION
    if committer.epoch == member.epoch:
        return ErrorCode.NONE
    if committer.epoch < member.epoch and all(
        (got_at := _assignment_epoch(core, group, member, partition)) is not None and got_at <= committer.epoch
        for partition in partitions
    ):
        return ErrorCode.NONE
    return _stale(member)


def _assignment_epoch(
    core: Core,
    group: ConsumerGroup | StreamsGroup,
    member: ConsumerMember | StreamsMember,
    partition: tuple[Uuid, int],
) -> int | None:
    """The epoch at which the member got a partition, or the active task that reads it; None if it does not own it."""
    if isinstance(member, ConsumerMember):
        return member.assignment_epoch(*partition)
    topic = core.topics.by_id.get(partition[0])
    if topic is None or not isinstance(group, StreamsGroup) or group.topology is None:
        return None
    subtopology = group.topology.subtopology_of.get(topic.name)
    return None if subtopology is None else member.assignment_epoch(subtopology, partition[1])


def _is_classic(member: ConsumerMember | StreamsMember) -> bool:
    return isinstance(member, ConsumerMember) and member.classic is not None


def check_fetch(core: Core, group_id: str, member_id: str | None, epoch: int) -> ErrorCode:
    """Return NONE, or the error for a fetch of offsets. Only members of consumer and streams groups are checked."""
    group = core.consumer_groups.get(group_id) or core.streams_groups.get(group_id)
    if group is None or (member_id is None and epoch < 0):
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if epoch == member.epoch else _stale(member)


def _stale(member: ConsumerMember | StreamsMember) -> ErrorCode:
    return ErrorCode.ILLEGAL_GENERATION if _is_classic(member) else ErrorCode.STALE_MEMBER_EPOCH
