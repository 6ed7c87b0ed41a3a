"""One partition's batches in their order, and its place in the producer's sequence.

Order: `waiting` ascends by ordinal, and what is in flight came before it or returns to its place. A batch that was sent
before is sent again only when nothing of the partition is in flight, so that retries never overtake.

Sequences (KIP-98): a batch gets its first sequence when it is first sent and keeps it, for a broker knows a repeated
batch by it. Only when the broker refuses the oldest unacknowledged batch as out of order is there a real gap (a batch
before it failed or expired): nothing after the gap can have been written, so the partition's epoch is raised and its
batches are numbered from 0 again (KIP-360). The epoch is the partition's own: brokers keep producers by partition.

A broker that does not know a producer yet takes any first sequence. So the first batch of a producer's id goes alone:
if it failed while others followed, these would be written before it.

A request of a connection that was given up may still be under way when a gap is found: if the batch that failed and
the next one both arrived late and before the new epoch, the next would be doubled. So the epoch is only raised when
nobody waits for such a request any more (`core.LATE_MS`); until then the batch is repeated as it was.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ottla.clients.producer.batch import Batch, Queue

if TYPE_CHECKING:
    from ottla.clients.producer.core import ProducerCore

MAX_EPOCH = 0x7FFF
SEQUENCE_MASK = 0x7FFFFFFF
FITS = 1 << 62


class PartitionQueue(Queue):
    """The batches of one partition: waiting (the last of them may be open), and in flight."""

    __slots__ = (
        "epoch",
        "in_flight",
        "is_known",
        "next_ordinal",
        "next_sequence",
        "producer_id",
        "renumber",
        "retry_at_ms",
        "too_large",
        "waiting",
    )

    def __init__(self, topic: str, partition: int, owner: ProducerCore) -> None:
        super().__init__(topic, partition, owner)
        self.waiting: deque[Batch] = deque()
        self.in_flight: list[Batch] = []  # ascends by ordinal
        self.is_known = False  # the broker has written something of this producer id: it checks what follows
        self.next_ordinal = 0
        self.retry_at_ms = 0
        self.producer_id = -1
        self.epoch = -1
        self.next_sequence = 0
        self.renumber = False  # a gap was found: a new epoch before the next batch
        self.too_large = FITS  # bytes of records, of the smallest batch that was refused for its size

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def add(self, *, is_open: bool = True) -> Batch:
        """A new batch at the end; the one that was open is closed. If not open, no other thread ever adds to it."""
        self.close_open()
        batch = Batch(self, self.next_ordinal)
        self.next_ordinal += 1
        self.waiting.append(batch)
        if is_open:
            self.open = batch
        return batch

    def may_send(self, limit: int) -> bool:
        """Whether the first waiting batch may go now, for all that the partition's order says.

        The limit counts from the oldest batch in flight, not how many are: a broker knows a repeated batch only among
        the last five, so none of the five may have passed it.
        """
        if not self.in_flight:
            return True
        if not (self.is_known or self.producer_id == -1):
            return False
        head = self.waiting[0]
        return not head.attempts and not self.renumber and head.ordinal - self.in_flight[0].ordinal < limit

    def take(self) -> Batch:
        """The first waiting batch, from now on in flight."""
        batch = self.waiting.popleft()
        batch.attempts += 1
        self.in_flight.append(batch)
        return batch

    def put_back(self, batch: Batch, error: Exception | None = None) -> None:
        """A batch that was in flight, to its place by order; `error` is why, should it never be written."""
        batch.error = error or batch.error
        position = 0
        for other in self.waiting:
            if other.ordinal > batch.ordinal:
                break
            position += 1
        self.waiting.insert(position, batch)

    def replace(self, batch: Batch, pieces: list[Batch]) -> None:
        """Put pieces where a waiting batch is. What comes after it moves on by as many ordinals."""
        position = self.waiting.index(batch)
        more = len(pieces) - 1
        for other in (*self.waiting, *self.in_flight):
            if other.ordinal > batch.ordinal:
                other.ordinal += more
        self.next_ordinal += more
        del self.waiting[position]
        for piece in reversed(pieces):
            self.waiting.insert(position, piece)

    def is_oldest(self, batch: Batch) -> bool:
        """Whether no batch that was sent before `batch` is still without an end."""
        older_waits = bool(self.waiting) and self.waiting[0].attempts > 0 and self.waiting[0].ordinal < batch.ordinal
        return not older_waits and all(other.ordinal >= batch.ordinal for other in self.in_flight)

    def number(self, batch: Batch, producer_id: int, epoch: int) -> bool:
        """Give the batch its sequence unless it has one; False if the producer needs a new id for that first.

        `producer_id` and `epoch` are the producer's newest. Called before the batch is taken.
        """
        if self.renumber:
            for other in self.waiting:
                other.sequence = -1
            self.next_sequence = 0
            self.epoch += 1
            self.renumber = False
        if self.producer_id == -1 or self.epoch > MAX_EPOCH:
            if producer_id == self.producer_id:
                return False
            self.producer_id = producer_id
            self.epoch = epoch
            self.next_sequence = 0
            self.is_known = False
        if batch.sequence == -1:
            batch.producer_id = self.producer_id
            batch.epoch = self.epoch
            batch.sequence = self.next_sequence
            self.next_sequence = (self.next_sequence + batch.count) & SEQUENCE_MASK
        return True

    def validate(self) -> None:
        """The order and sequences that the rest relies on."""
        ordinals = [batch.ordinal for batch in self.waiting]
        assert ordinals == sorted(set(ordinals)), f"{self}: waiting out of order {ordinals}"
        flying = [batch.ordinal for batch in self.in_flight]
        assert flying == sorted(set(flying)), f"{self}: in flight out of order {flying}"
        assert not set(flying) & set(ordinals), f"{self}: waiting and in flight at once"
        assert self.open is None or self.open is self.waiting[-1], f"{self}: the open batch is not the last"
        numbered = [batch for batch in (*self.in_flight, *self.waiting) if batch.sequence >= 0]
        assert all(batch.attempts or batch is self.waiting[0] for batch in numbered), f"{self}: numbered, never sent"
