"""The follow-ups of a shard once the outcome of an effect is known, as data: one type for each kind.

`Core.append` and `Core.allocate` store the follow-up under the id of the effect; the shard takes it out again and
calls the function that its table names for the type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from ottla.coordinators.events import Call, RecordBytes
    from ottla.coordinators.transaction.events import AddPartitions, TopicPartition
    from ottla.coordinators.transaction.metadata import Metadata
    from ottla.protocol.messages.end_txn import EndTxnRequest
    from ottla.protocol.messages.init_producer_id import InitProducerIdRequest


class Initialize(NamedTuple):
    """Answer an InitProducerId. After an allocation, first handle it again, with the new producer id."""

    call: Call[InitProducerIdRequest]
    transactional_id: str
    request: InitProducerIdRequest


class AnswerAdd(NamedTuple):
    """Answer a request that adds partitions."""

    call: Call[AddPartitions]
    transactional_id: str
    request: AddPartitions


class EndOrder(NamedTuple):
    """End a transaction. `call` is the EndTxn, or the InitProducerId that fences its producer; None after a timeout."""

    call: Call[EndTxnRequest] | Call[InitProducerIdRequest] | None
    transactional_id: str
    commit: bool
    bumps_epoch: bool
    fences: bool


class Complete(NamedTuple):
    """All markers are written, and the transaction is complete."""

    transactional_id: str


class Expire(NamedTuple):
    """Transactional ids have expired."""

    transactional_ids: tuple[str, ...]


AllocationFollowUp: TypeAlias = Initialize | EndOrder
"""Done when a producer id is allocated."""
AppendFollowUp: TypeAlias = Initialize | AnswerAdd | EndOrder | Complete | Expire
"""Done when records are appended."""


def ids_of(follow_up: AppendFollowUp) -> tuple[str, ...]:
    """The transactional ids whose change is in flight."""
    return follow_up.transactional_ids if isinstance(follow_up, Expire) else (follow_up.transactional_id,)


class InFlight(NamedTuple):
    """The records of an append, replayed if it succeeds, and what follows from its outcome."""

    records: tuple[RecordBytes, ...]
    next_value: Metadata | None
    """The value that the record stores, with those fields that are not stored."""
    follow_up: AppendFollowUp


class Sent(NamedTuple):
    """Markers that are being written."""

    transactional_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True)
class Completion:
    """The markers of a decided transaction."""

    unwritten: set[TopicPartition]
    pause_ms: int = 0
    """How long to wait before the next attempt after a failure."""
    superseded: bool = False
    """Whether a later coordinator of the same partition writes the markers."""
