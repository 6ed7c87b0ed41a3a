"""The transaction coordinator of this node: the shards of `__transaction_state`, and the effects that only they have.

Producer ids come from the controller's blocks. The partitions of a transaction may be led by other brokers, and so may
the partition of `__transaction_state` that has the transactions of a producer whose batches arrive here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ottla.common.clock import Clock
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.request import Request
from ottla.common.slices import Slices
from ottla.common.timers import CallLater
from ottla.coordination.internal_topic import InternalTopic
from ottla.coordination.runtime import CoordinatorRuntime
from ottla.coordination.shards import Coordinator, CoordinatorOptions
from ottla.coordinators.events import Effects, Moment, ParkedEffect
from ottla.coordinators.transaction.config import TransactionConfig
from ottla.coordinators.transaction.errors import error_response
from ottla.coordinators.transaction.events import (
    AddPartitions,
    AllocateProducerId,
    ListTransactions,
    MarkersWritten,
    ProducerIdAllocated,
    WriteMarkers,
)
from ottla.coordinators.transaction.shard import TransactionShard
from ottla.log.transaction_marker import TransactionEnd
from ottla.metadata.image import NO_LEADER

if TYPE_CHECKING:
    from ottla.protocol.messages.list_transactions import TransactionState

R = TypeVar("R")

logger = logging.getLogger(__name__)

TopicPartition: TypeAlias = tuple[str, int]
Errors: TypeAlias = Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class TransactionPorts:
    """The parts of its broker that the transaction coordinator uses."""

    next_producer_id: Callable[[], Completion[int]]
    write_markers: Callable[[TransactionEnd, Iterable[TopicPartition]], Completion[dict[TopicPartition, ErrorCode]]]
    add_at: Callable[[int, AddPartitions], Completion[dict[TopicPartition, ErrorCode]]]
    """Asks the coordinator on another broker; never fails."""
    transaction_version: Callable[[], int]
    """The finalized level of the feature `transaction.version`."""


class TransactionRuntime:
    """The transaction coordinator."""

    def __init__(
        self,
        config: TransactionConfig,
        topic: InternalTopic,
        ports: TransactionPorts,
        *,
        clock: Clock,
        call_later: CallLater,
        options: CoordinatorOptions,
    ) -> None:
        self.config = config
        self._node_id = options.node_id
        self._ports = ports
        self._call_later = call_later
        coordinator = Coordinator(
            name="TransactionCoordinator",
            logger=logging.getLogger("ottla.coordinators.transaction"),
            new_shard=self._new_shard,
            loaded=_loaded,
            error_response=error_response,
            execute=self._execute,
        )
        self.shards: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            coordinator, topic, clock=clock, call_later=call_later, options=options
        )

    def submit(self, transactional_id: str, request: Request[R], *, api_version: int = 0) -> Completion[R]:
        """Pass `request` to the shard of the id; completes with the response and never fails."""
        return self.shards.submit(transactional_id, request, api_version=api_version)

    def add(self, request: AddPartitions, api_version: int) -> Completion[dict[TopicPartition, ErrorCode]]:
        """Add partitions to a transaction, or verify them; completes with the ErrorCode of each."""
        return self.submit(request.transactional_id, request, api_version=api_version)

    def has_open(self, transactional_id: str, producer: tuple[int, int], partitions: Iterable[TopicPartition]) -> bool:
        """Whether this node knows at once that the producer (id, epoch) has a transaction open with the partitions.

        Otherwise ask with `add_anywhere`, which costs much more.
        """
        shard = self.shards.settled(transactional_id)
        return shard is not None and shard.has_open(transactional_id, producer, partitions)

    def add_anywhere(self, request: AddPartitions, api_version: int) -> Completion[dict[TopicPartition, ErrorCode]]:
        """Add or verify partitions of a transaction that any broker coordinates; completes with the error of each."""
        leader = self.shards.topic.leader_of(request.transactional_id)
        if leader in (self._node_id, NO_LEADER):
            return self.add(request, api_version)
        return self._ports.add_at(leader, request)

    def list_transactions(self, question: ListTransactions) -> Slices[tuple[ErrorCode, list[TransactionState]]]:
        """Return (error, transactions) over the shards of this node. An error of one shard is the error of all."""
        return (yield from self.shards.collect(question))

    def pause(self, duration_ms: int) -> Completion[None]:
        """Complete after this time."""
        over: Completion[None] = Completion()
        self._call_later(duration_ms / 1000, partial(_complete, over))
        return over

    # -- effects ---------------------------------------------------------------------------------------------------

    def _new_shard(self, index: int, leader_epoch: int) -> TransactionShard:
        return TransactionShard(self.config, index, leader_epoch, self._ports.transaction_version)

    def _execute(self, index: int, shard: TransactionShard, effect: ParkedEffect) -> None:
        if isinstance(effect, AllocateProducerId):
            allocated = self._ports.next_producer_id()
            allocated.on_done(partial(self._allocated, index, shard, effect.id))
        elif isinstance(effect, WriteMarkers):
            end = TransactionEnd(
                effect.producer_id,
                effect.producer_epoch,
                effect.coordinator_epoch,
                effect.commit,
                effect.transaction_version,
            )
            written = self._ports.write_markers(end, effect.partitions)
            written.on_done(partial(self._written, index, shard, effect.id))
        else:
            raise TypeError(f"the transaction coordinator cannot execute {effect!r}")

    def _allocated(self, index: int, shard: TransactionShard, effect_id: int, done: Completion[int]) -> None:
        try:
            event = ProducerIdAllocated(effect_id, done.result())
        except KafkaError as error:
            event = ProducerIdAllocated(effect_id, -1, error.code)
        self.shards.resume(index, shard, lambda shard, now: shard.handle_producer_id(event, now))

    def _written(
        self, index: int, shard: TransactionShard, effect_id: int, done: Completion[dict[TopicPartition, ErrorCode]]
    ) -> None:
        if done.error is not None:
            logger.error("Failed to write transaction markers; they are written again", exc_info=done.error)
        # The shard retries partitions without an outcome.
        event = MarkersWritten(effect_id, {} if done.error is not None else _without_deleted(done.result()))
        self.shards.resume(index, shard, lambda shard, now: shard.handle_markers(event, now))


def _loaded(_index: int, shard: TransactionShard, now: Moment) -> Effects:
    return shard.loaded(now)


def _without_deleted(outcomes: Errors) -> Errors:
    """Nothing is left to end in partitions that the metadata no longer has. Offline ones have other errors."""
    deleted = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return {partition: ErrorCode.NONE if error is deleted else error for partition, error in outcomes.items()}


def _complete(completion: Completion[None]) -> None:
    completion.complete(None)
