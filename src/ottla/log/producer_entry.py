"""A partition's state of one producer id: its epoch, its last batches, its open transaction."""

from typing import NamedTuple

RETAINED_BATCHES = 5
_INT32_MAX = 0x7FFFFFFF


class WrittenBatch(NamedTuple):
    """One of a producer's last batches."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """Sequence number of the first record; numbers wrap from 2^31-1 to 0."""
        return (self.last_sequence - self.offset_delta) & _INT32_MAX

    @property
    def first_offset(self) -> int:
        """Offset of the first record."""
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """The state of one producer id in one partition. `transaction_start` is -1 outside of a transaction."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "transaction_start")

    def __init__(self, producer_id: int, epoch: int = -1) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.transaction_start = -1
        self.batches: list[WrittenBatch] = []
        """At most `RETAINED_BATCHES`, oldest first, all of the current epoch."""

    @property
    def last_sequence(self) -> int:
        """Last sequence number of the newest batch, -1 without a batch."""
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        """Last offset of the newest batch, -1 without a batch."""
        return self.batches[-1].last_offset if self.batches else -1

    def move_to(self, epoch: int) -> None:
        """Start a new epoch: its sequence numbers begin again at 0."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
