"""The state of a shard that all its modules share.

Durable: the value of each transactional id, which only `TransactionShard.replay` changes. Everything else is derived
from it, or lasts only until the next restart.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.coordinators.events import Append, Moment, RecordBytes
from ottla.coordinators.timers import Timers
from ottla.coordinators.transaction.config import TransactionConfig
from ottla.coordinators.transaction.events import AllocateProducerId, WriteMarkers
from ottla.coordinators.transaction.follow_ups import (
    AllocationFollowUp,
    AppendFollowUp,
    Completion,
    InFlight,
    Sent,
)
from ottla.coordinators.transaction.metadata import EPOCH_BUMP_SINCE, NO_TIMEOUT_MS, Metadata
from ottla.coordinators.transaction.records import record_of, tombstone_of
from ottla.coordinators.transaction.states import IDLE, PREPARED, State
from ottla.coordinators.transaction.timer_keys import Kind, TimerKey


class Core:
    """State of one shard."""

    __slots__ = (
        "_next_id",
        "_transaction_version",
        "allocations",
        "completions",
        "config",
        "coordinator_epoch",
        "expiries",
        "in_flight",
        "open",
        "partition",
        "pending",
        "sent",
        "timeouts",
        "timers",
        "transactions",
    )

    def __init__(
        self, config: TransactionConfig, partition: int, coordinator_epoch: int, transaction_version: Callable[[], int]
    ) -> None:
        self.config = config
        self.partition = partition
        self.coordinator_epoch = coordinator_epoch
        self._transaction_version = transaction_version
        self.transactions: dict[str, Metadata] = {}
        # Ids with a change in flight: an append, or the allocation of a producer id before it.
        self.pending: set[str] = set()
        # Ids in the state Ongoing.
        self.open: set[str] = set()
        # Exactly the ids in a Prepare state.
        self.completions: dict[str, Completion] = {}
        # When open transactions time out, on the monotonic clock.
        self.timeouts: Timers[str] = Timers()
        # When ids in an idle state expire, on the wall clock.
        self.expiries: Timers[str] = Timers()
        self.timers: Timers[TimerKey] = Timers()
        # Effects whose outcome has not been reported, by their ids.
        self.in_flight: dict[int, InFlight] = {}
        self.allocations: dict[int, AllocationFollowUp] = {}
        self.sent: dict[int, Sent] = {}
        self._next_id = 0

    @property
    def level(self) -> int:
        """The finalized level of the feature `transaction.version`."""
        return self._transaction_version()

    @property
    def bumps_epoch(self) -> bool:
        """Whether transactions that the coordinator aborts by itself get the next epoch. KIP-890."""
        return self.level >= EPOCH_BUMP_SINCE

    def is_pending(self, transactional_id: str) -> bool:
        """Whether a change of the id is in flight, so that no other may begin."""
        return transactional_id in self.pending or transactional_id in self.completions

    # -- effects -----------------------------------------------------------------------------------------------

    def change(self, transactional_id: str, next_value: Metadata, follow_up: AppendFollowUp) -> Append:
        """Return the effect that appends the record of `next_value`, which counts once it is appended."""
        self.pending.add(transactional_id)
        return self._append((record_of(transactional_id, next_value, self.level),), next_value, follow_up)

    def delete(self, transactional_ids: tuple[str, ...], follow_up: AppendFollowUp) -> Append:
        """Return the effect that appends the tombstones of the ids, which count once they are appended."""
        self.pending.update(transactional_ids)
        return self._append(tuple(map(tombstone_of, transactional_ids)), None, follow_up)

    def _append(
        self, records: tuple[RecordBytes, ...], next_value: Metadata | None, follow_up: AppendFollowUp
    ) -> Append:
        append_id = self._new_id()
        self.in_flight[append_id] = InFlight(records, next_value, follow_up)
        return Append(append_id, records)

    def allocate(self, transactional_id: str, follow_up: AllocationFollowUp) -> AllocateProducerId:
        """Return the effect that allocates a producer id; `follow_up` is done when its outcome is known."""
        self.pending.add(transactional_id)
        effect_id = self._new_id()
        self.allocations[effect_id] = follow_up
        return AllocateProducerId(effect_id)

    def write_markers(self, transactional_id: str, completion: Completion) -> WriteMarkers:
        """Return the effect that writes the markers that are left."""
        metadata = self.transactions[transactional_id]
        sent = Sent(transactional_id, tuple(sorted(completion.unwritten)))
        effect_id = self._new_id()
        self.sent[effect_id] = sent
        return WriteMarkers(
            id=effect_id,
            producer_id=metadata.producer_id,
            producer_epoch=metadata.producer_epoch,
            coordinator_epoch=self.coordinator_epoch,
            commit=metadata.commits,
            partitions=sent.partitions,
            transaction_version=metadata.client_transaction_version,
        )

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    # -- replay ------------------------------------------------------------------------------------------------

    def put(self, transactional_id: str, metadata: Metadata, now: Moment | None) -> None:
        """Replace the value of an id; without the present time, `loaded` must set the timeouts later."""
        was_open = transactional_id in self.open
        self.transactions[transactional_id] = metadata
        self._forget(transactional_id, metadata.state)
        if metadata.state in PREPARED:
            self.completions[transactional_id] = Completion(set(metadata.partitions))
        elif metadata.state is State.ONGOING:
            self.open.add(transactional_id)
            if now is not None and not was_open:
                self.expect_end(transactional_id, now)
        elif metadata.state in IDLE:
            self.expiries.set(transactional_id, metadata.update_ms + self.config.id_expiration_ms)

    def remove(self, transactional_id: str) -> None:
        """Delete an id."""
        self.transactions.pop(transactional_id, None)
        self._forget(transactional_id, State.DEAD)

    def _forget(self, transactional_id: str, state: State) -> None:
        """Delete what belonged to another state than the present one."""
        if state is not State.ONGOING:
            self.open.discard(transactional_id)
            self.timeouts.cancel(transactional_id)
        if self.completions.pop(transactional_id, None) is not None:
            self.timers.cancel((Kind.MARKERS, transactional_id))
        if state not in IDLE:
            self.expiries.cancel(transactional_id)

    def expect_end(self, transactional_id: str, now: Moment) -> None:
        """Abort an open transaction when it times out.

        The remaining time is at most the timeout, so that a transaction ends even if the wall clock was set back.
        """
        metadata = self.transactions[transactional_id]
        if metadata.timeout_ms == NO_TIMEOUT_MS:
            return
        remaining_ms = metadata.start_ms + metadata.timeout_ms - now.wall_ms
        self.timeouts.set(transactional_id, now.monotonic_ms + min(max(remaining_ms, 0), metadata.timeout_ms))
