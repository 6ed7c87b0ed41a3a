"""The coordinator's knowledge of one transactional id, and the next values that each decision leads to.

Values never change: a decision computes the next one, which counts once its record is appended.

A producer id has the epochs 0 to 32766. The coordinator itself uses 32767 to fence the last producer. A producer whose
epochs are exhausted gets a new producer id and epoch 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.coordinators.transaction.events import TopicPartition
from ottla.coordinators.transaction.states import MOVES, State

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME_MS = -1
LARGEST_EPOCH = 32_767
LAST_PRODUCER_EPOCH = LARGEST_EPOCH - 1
# A transaction with this timeout takes part in a two-phase commit and never times out. KIP-939.
NO_TIMEOUT_MS = 2**31 - 1
# From this version on, each transaction has its own epoch, and the broker adds partitions. KIP-890.
EPOCH_BUMP_SINCE = 2
# From this version on, records are flexible and can store the fields of KIP-890.
FLEXIBLE_RECORDS_SINCE = 1


def is_exhausted(producer_epoch: int) -> bool:
    """Whether the producer id has no further epoch for a producer."""
    return producer_epoch >= LAST_PRODUCER_EPOCH


class Metadata(NamedTuple):
    """The state of a transactional id."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State
    partitions: frozenset[TopicPartition]
    start_ms: int
    """When the transaction began, on the wall clock; -1 if none has begun."""
    update_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last change of the state."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id that replaces an exhausted one once the transaction is complete."""
    client_transaction_version: int = 0
    last_producer_epoch: int = NO_EPOCH
    """The previous epoch of the same producer. It is not stored: it recognises a retry until the next restart."""

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no further epoch for a producer."""
        return is_exhausted(self.producer_epoch)

    @property
    def commits(self) -> bool:
        """Whether the transaction was decided to commit."""
        return self.state in {State.PREPARE_COMMIT, State.COMPLETE_COMMIT}

    def move(self, state: State, now_ms: int, **changes: Any) -> Metadata:
        """The next value, in another state. The move must be legal."""
        assert state in MOVES[self.state], f"{self.state.title} -> {state.title} is not a legal move"
        return self._replace(state=state, previous_producer_id=self.producer_id, update_ms=now_ms, **changes)

    # -- InitProducerId ----------------------------------------------------------------------------------------

    def with_next_epoch(self, timeout_ms: int, now_ms: int, expected_epoch: int | None) -> Metadata | None:
        """The value after InitProducerId by a producer that names its epoch, or none; None if it is fenced.

        A producer that names the previous epoch retries: it gets the present epoch again. No other producer can have
        it, because InitProducerId without an epoch deletes the previous epoch. KIP-360.
        """
        epoch, last_epoch = self.producer_epoch + 1, self.producer_epoch
        if expected_epoch is None:
            last_epoch = NO_EPOCH
        elif self.producer_epoch not in {NO_EPOCH, expected_epoch}:
            if expected_epoch != self.last_producer_epoch:
                return None
            epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        if epoch > LAST_PRODUCER_EPOCH:
            return None
        return self._initialized(timeout_ms, now_ms, self.producer_id, epoch, last_epoch)

    def with_new_producer_id(self, producer_id: int, timeout_ms: int, now_ms: int, *, named_epoch: bool) -> Metadata:
        """The value after InitProducerId if the epochs of the old producer id are exhausted."""
        last_epoch = self.producer_epoch if named_epoch else NO_EPOCH
        return self._initialized(timeout_ms, now_ms, producer_id, 0, last_epoch)

    def _initialized(self, timeout_ms: int, now_ms: int, producer_id: int, epoch: int, last_epoch: int) -> Metadata:
        return self.move(
            State.EMPTY,
            now_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIME_MS,
        )

    # -- the transaction ---------------------------------------------------------------------------------------

    def with_partitions(self, added: frozenset[TopicPartition], now_ms: int, version: int) -> Metadata:
        """The value after partitions were added; the first ones begin the transaction."""
        start_ms = self.start_ms if self.state is State.ONGOING else now_ms
        return self.move(
            State.ONGOING,
            now_ms,
            partitions=self.partitions | added,
            start_ms=start_ms,
            client_transaction_version=version,
        )

    def prepared(self, *, commit: bool, now_ms: int) -> Metadata:
        """The decision about a transaction of a version without epoch bump."""
        return self._decided(commit, now_ms)

    def fenced(self, now_ms: int) -> Metadata:
        """The decision to abort a transaction of a version without epoch bump, and to fence its producer."""
        epoch = min(self.producer_epoch + 1, LARGEST_EPOCH)
        return self._decided(False, now_ms, producer_epoch=epoch, last_producer_epoch=NO_EPOCH)

    def prepared_with_epoch_bump(self, *, commit: bool, now_ms: int, next_producer_id: int) -> Metadata:
        """The decision about a transaction: the markers and the next transaction have the next epoch. KIP-890."""
        return self._decided(
            commit,
            now_ms,
            producer_epoch=min(self.producer_epoch + 1, LARGEST_EPOCH),
            last_producer_epoch=self.producer_epoch,
            next_producer_id=next_producer_id,
            client_transaction_version=EPOCH_BUMP_SINCE,
        )

    def _decided(self, commit: bool, now_ms: int, **changes: int) -> Metadata:
        # An abort of a transaction that has not begun needs a start time, too.
        start_ms = self.start_ms if self.state is State.ONGOING else now_ms
        state = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
        return self.move(state, now_ms, **{"client_transaction_version": 0, "start_ms": start_ms, **changes})

    def completed(self, now_ms: int) -> Metadata:
        """The value after all markers were written."""
        replaced = self.next_producer_id != NO_PRODUCER_ID
        return self.move(
            State.COMPLETE_COMMIT if self.commits else State.COMPLETE_ABORT,
            now_ms,
            producer_id=self.next_producer_id if replaced else self.producer_id,
            producer_epoch=0 if replaced else self.producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
        )


def created(producer_id: int, timeout_ms: int, now_ms: int) -> Metadata:
    """The value of a new transactional id, before its first epoch."""
    return Metadata(producer_id, NO_EPOCH, timeout_ms, State.EMPTY, frozenset(), NO_TIME_MS, now_ms)
