"""Requests to the share coordinator, each for one share partition, and its responses.

`topic_exists` says whether the metadata has the partition: the coordinator refuses those that were deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ottla.common.errors import ErrorCode
from ottla.common.ids import Uuid, uuid_from_text, uuid_to_text
from ottla.common.request import Request
from ottla.coordinators.events import OwnEffect
from ottla.coordinators.share.state_batches import StateBatch

UNCHOSEN_OFFSET = -1
_MOST_DIGITS = 10


class ShareKey(NamedTuple):
    """A topic partition of a share group."""

    group_id: str
    topic_id: Uuid
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key for FindCoordinator, which selects the partition of `__share_group_state`."""
        return f"{self.group_id}:{uuid_to_text(self.topic_id)}:{self.partition}"


def is_coordinator_key(text: str) -> bool:
    """Whether `text` is the `coordinator_key` of a share partition. A group id may contain colons."""
    group_id, _, rest = text.rpartition(":")
    group_id, _, topic_id = group_id.rpartition(":")
    if not group_id or len(rest) > _MOST_DIGITS or not (rest.isascii() and rest.isdecimal()):
        return False
    try:
        return uuid_to_text(uuid_from_text(topic_id)) == topic_id
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class InitializeState(Request["Result"]):
    """Begin to share a partition, or reset it.

    `keeps_existing`: state that exists is not reset, so that the request can be repeated while members use the state.
    """

    key: ShareKey
    state_epoch: int
    start_offset: int
    """UNCHOSEN_OFFSET leaves the choice to the partition's leader."""
    topic_exists: bool = True
    keeps_existing: bool = False


@dataclass(frozen=True, slots=True)
class ReadState(Request["Result"]):
    """Read the state for the leader of `leader_epoch`, and fence earlier leaders."""

    key: ShareKey
    leader_epoch: int
    topic_exists: bool = True


@dataclass(frozen=True, slots=True)
class ReadSummary(Request["Result"]):
    """Read the offsets of a share partition, which need not exist."""

    key: ShareKey
    topic_exists: bool = True


@dataclass(frozen=True, slots=True)
class WriteState(Request["Result"]):
    """Merge states into what is stored."""

    key: ShareKey
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    topic_exists: bool = True


@dataclass(frozen=True, slots=True)
class DeleteState(Request["Result"]):
    """Delete the state of a share partition."""

    key: ShareKey
    topic_exists: bool = True


@dataclass(frozen=True, slots=True)
class TopicsDeleted(Request[None]):
    """Delete the state of all share partitions of these topics; the response is None."""

    topic_ids: frozenset[Uuid]


class Result(NamedTuple):
    """The response to each request: an error, or what was read."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = -1
    batches: tuple[StateBatch, ...] = ()


@dataclass(frozen=True, slots=True)
class PruneLog(OwnEffect):
    """Effect: delete the records of the partition below `offset`. Newer records repeat what they say."""

    offset: int
