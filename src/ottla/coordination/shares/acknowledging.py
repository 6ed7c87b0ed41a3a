"""Acknowledgements of one request, ShareFetch or ShareAcknowledge: checked, applied and stored. KIP-932, KIP-1222.

`begin` changes the states, so that a fetch in the same request does not deliver the records again to the same member.
`outcomes` waits until they are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.common.ids import Uuid
from ottla.common.slices import Slices, result_of
from ottla.coordinators.share.acknowledgement import AcknowledgementBatch, Refusal, check_form
from ottla.coordinators.share.events import ShareKey
from ottla.coordinators.share.sessions import SessionKey, SharedTopicPartition

if TYPE_CHECKING:
    from ottla.coordination.shares.partitions import SharedPartitions

LONGEST_MEMBER_ID = 36
RENEW_SINCE_VERSION = 2


class _Batch(Protocol):
    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class _Partition(Protocol):
    partition_index: int

    @property
    def acknowledgement_batches(self) -> Iterable[_Batch]: ...


class _Topic(Protocol):
    topic_id: Uuid

    @property
    def partitions(self) -> Iterable[_Partition]: ...


MayRead = Callable[[Uuid], bool]
"""Whether the client of a request may read a topic that exists."""
Batches = dict[SharedTopicPartition, list[AcknowledgementBatch]]


def is_valid_member_id(member_id: str) -> bool:
    """Whether a client may have chosen this id: it is as long as the text of a UUID, or shorter."""
    return 0 < len(member_id) <= LONGEST_MEMBER_ID


def session_key(group_id: str | None, member_id: str | None) -> SessionKey | Refusal:
    """The member that sent a request, or INVALID_REQUEST."""
    if group_id is None:
        return Refusal(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
    if member_id is None or not is_valid_member_id(member_id):
        return Refusal(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    return SessionKey(group_id, member_id)


def batches_of(topics: Iterable[_Topic]) -> Slices[Batches]:
    """The acknowledgements of a request by partition. A partition that is named twice gets the batches of both."""
    found: Batches = {}
    for topic in topics:
        for partition in topic.partitions:
            yield
            rows = found.setdefault(SharedTopicPartition(topic.topic_id, partition.partition_index), [])
            rows += [
                AcknowledgementBatch(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                for batch in partition.acknowledgement_batches
            ]
    return found


class Acknowledgements:
    """The acknowledgements of one request. `renews`: the request may have renewals."""

    __slots__ = ("_batches", "_may_read", "_member", "_partitions", "_pending", "_renews")

    def __init__(
        self,
        partitions: SharedPartitions,
        member: SessionKey,
        batches: Batches,
        *,
        may_read: MayRead,
        renews: bool,
    ) -> None:
        self._partitions = partitions
        self._member = member
        self._batches = batches
        self._may_read = may_read
        self._renews = renews
        self._pending: dict[SharedTopicPartition, Completion[Refusal]] = {}

    def begin(self) -> Slices[None]:
        """Change the states of the records, partition by partition."""
        for name, batches in self._batches.items():
            yield
            self._pending[name] = self._begin_one(name, batches)

    def _begin_one(self, name: SharedTopicPartition, batches: list[AcknowledgementBatch]) -> Completion[Refusal]:
        refusal = check_form(batches, renews=self._renews)
        if refusal is not None:
            return Completion.of(refusal)
        if not self._partitions.knows_topic(name.topic_id):
            return Completion.of(Refusal(ErrorCode.UNKNOWN_TOPIC_ID, ""))
        if not self._may_read(name.topic_id):
            return Completion.of(Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ""))
        shared = self._partitions.existing(ShareKey(self._member.group_id, *name))
        if shared is None:
            return Completion.of(Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""))
        return shared.acknowledge(self._member.member_id, batches)

    def outcomes(self) -> Slices[dict[SharedTopicPartition, Refusal]]:
        """Wait until all states are stored; returns the error or NONE of each partition."""
        found: dict[SharedTopicPartition, Refusal] = {}
        for name, pending in self._pending.items():
            found[name] = yield from result_of(pending)
        return found


def may_renew(version: int, *, is_renewal: bool) -> bool:
    """Whether acknowledgements of type RENEW are legal in a request."""
    return version >= RENEW_SINCE_VERSION and is_renewal
