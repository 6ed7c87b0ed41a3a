"""The batches of one partition in their order, and the partition's place in the sequence of the producer.

Order: `waiting` ascends by ordinal. A batch in flight has a lower ordinal than all waiting batches that were never
sent, or it returns to its place by its ordinal. A batch that was sent before is sent again only when nothing of the
partition is in flight, so a retry never overtakes an earlier batch.

Sequence numbers (KIP-98): a batch gets its first sequence number when it is first sent. It keeps that number in all
retries, because the broker recognizes a repeated batch by it. When the broker refuses the oldest unacknowledged batch
as out of order, there is a real gap: an earlier batch failed or expired. Nothing after the gap can have been written,
so the producer raises the epoch of the partition and numbers its batches from 0 again (KIP-360). Each partition has its
own epoch, since brokers store producer state per partition.

A broker accepts any first sequence number of a producer that it does not know. So the first batch of a producer id is
sent alone: if it failed while others followed, the others would be written before it.

A request of a lost connection may still arrive when a gap is found. If the failed batch and the next one both arrived
before the new epoch, the next one would be written twice. So the epoch is raised only after such a request cannot
arrive any more (`core.LATE_ARRIVAL_MS`); until then the batch is repeated unchanged.
"""

from __future__ import annotations

from collections import deque

from ottla.clients.producer._encoder import OpenQueue
from ottla.clients.producer.batch import Batch, Event, Runtime
from ottla.records.batch import HEADER_SIZE, EncodedRecords
from ottla.records.kernels import append_record, decode_records
from ottla.records.reader import Record

MAX_EPOCH = 0x7FFF
SEQUENCE_MASK = 0x7FFFFFFF
NO_LIMIT = 1 << 62


class PartitionQueue(OpenQueue):
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

    def __init__(self, topic: str, partition: int, runtime: Runtime) -> None:
        super().__init__(topic, partition, runtime)
        self.waiting: deque[Batch] = deque()
        self.in_flight: list[Batch] = []  # ascends by ordinal
        self.is_known = False  # the broker has written a batch of this producer id, so it checks the next sequence
        self.next_ordinal = 0
        self.retry_at_ms = 0
        self.producer_id = -1
        self.epoch = -1
        self.next_sequence = 0
        self.renumber = False  # a gap was found: raise the epoch before the next batch
        self.too_large = NO_LIMIT  # size of the smallest batch that the broker refused as too large

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def add(self, *, is_open: bool = True) -> Batch:
        """Append a new batch and close the previous one. If it is not open, no thread ever appends records to it."""
        self.close_batch()
        batch = Batch(self, self.next_ordinal)
        self.next_ordinal += 1
        self.waiting.append(batch)
        if is_open:
            self.open_batch = batch
        return batch

    def may_send(self, limit: int) -> bool:
        """Whether the order of the partition allows to send the first waiting batch now.

        `limit` bounds the distance to the oldest batch in flight, not their number: a broker recognizes a repeated
        batch only among the last five, so at most four later batches may have been written before a retry.
        """
        if not self.in_flight:
            return True
        if not self.is_known and self.producer_id != -1:
            return False
        head = self.waiting[0]
        return not head.attempts and not self.renumber and head.ordinal - self.in_flight[0].ordinal < limit

    def take(self) -> Batch:
        batch = self.waiting.popleft()
        batch.move(Event.SENT)
        batch.attempts += 1
        self.in_flight.append(batch)
        return batch

    def put_back(self, batch: Batch, error: Exception | None = None) -> None:
        """Return a batch to its place among those waiting. `error` is reported if the batch is never written."""
        batch.move(Event.RETURNED)
        batch.error = error or batch.error
        position = 0
        for other in self.waiting:
            if other.ordinal > batch.ordinal:
                break
            position += 1
        self.waiting.insert(position, batch)

    def split(self, batch: Batch) -> list[Batch]:
        """Split a waiting batch, which must not be open, into at least two pieces that replace it (KIP-126).

        The timestamp and offset of a record are encoded relative to the first record of its batch, so all records are
        decoded and encoded again. This is rare: the core splits batches of at least `too_large` before it sends them.

        The records of a piece take at most half of the batch's bytes, and at most half of the smallest size that the
        broker refused. A single record may take more. Pieces of a numbered batch get its sequence numbers, one range
        after the other, so the numbers of later batches stay valid. They inherit deadline, attempts and urgency;
        callbacks move to the piece with their record, and futures find their record with `BatchRecords.leaf`.

        Cost: linear in the records. A batch that is still too large is split again, so in the end each record is
        encoded at most about log2(size / limit) times.
        """
        most = min(batch.size, self.too_large) // 2
        pieces: list[Batch] = []
        out = batch.out
        encoded = EncodedRecords(out, HEADER_SIZE, len(out), batch.count, base_timestamp=batch.base_timestamp)
        records: list[Record] = decode_records(encoded, Record)
        piece: Batch | None = None
        for record in records:
            if piece is not None:
                length = len(piece.out)
                delta = record.timestamp - piece.base_timestamp
                append_record(piece.out, delta, piece.count, record.key, record.value, record.headers)
                if len(piece.out) - HEADER_SIZE <= most:
                    piece.max_timestamp = max(piece.max_timestamp, record.timestamp)
                    piece.count += 1
                    continue
                del piece.out[length:]
            piece = Batch(self, batch.ordinal + len(pieces))
            pieces.append(piece)
            append_record(piece.out, 0, 0, record.key, record.value, record.headers)
            piece.base_timestamp = piece.max_timestamp = record.timestamp
            piece.count = 1
        first = 0
        for piece in pieces:
            piece.size = len(piece.out) - HEADER_SIZE
            piece.deadline_ms = batch.deadline_ms
            piece.attempts = batch.attempts
            piece.unsure_until_ms = batch.unsure_until_ms
            piece.urgent = batch.urgent
            if batch.sequence >= 0:
                piece.producer_id, piece.epoch = batch.producer_id, batch.epoch
                piece.sequence = (batch.sequence + first) & SEQUENCE_MASK
            first += piece.count
        batch.replace_by(pieces)
        self._replace(batch, pieces)
        return pieces

    def _replace(self, batch: Batch, pieces: list[Batch]) -> None:
        """Put `pieces` in the place of a waiting batch. The ordinals of later batches increase accordingly."""
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
        """Whether every batch that was sent before `batch` has an outcome."""
        older_waits = bool(self.waiting) and self.waiting[0].attempts > 0 and self.waiting[0].ordinal < batch.ordinal
        return not older_waits and all(other.ordinal >= batch.ordinal for other in self.in_flight)

    def number(self, batch: Batch, producer_id: int, epoch: int) -> bool:
        """Give `batch` its sequence number unless it has one; False if that needs a new producer id.

        Call this before `take`. `producer_id` and `epoch` are the newest that the producer received. The partition
        switches to them when it has no id yet, or when its epoch is exhausted; then the numbers start at 0. After a gap
        all waiting batches lose their numbers and the epoch is raised. The invariant: in one epoch of an id, the
        numbers of the partition's batches follow each other without gaps, in the order of their ordinals.
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

    def number_in_transaction(self, batch: Batch, producer_id: int, epoch: int) -> None:
        """Give `batch` its sequence number unless it has one. Call this before `take`.

        All partitions of a transaction have its id and epoch. A new epoch begins only when nothing of the old one
        waits. Its first batch is sent alone, since the broker may not know the producer (any more).
        """
        if (self.producer_id, self.epoch) != (producer_id, epoch) or self.renumber:
            for other in self.waiting:
                other.sequence = -1
            self.producer_id, self.epoch = producer_id, epoch
            self.next_sequence = 0
            self.is_known = self.renumber = False
        if batch.sequence == -1:
            batch.producer_id, batch.epoch = producer_id, epoch
            batch.sequence = self.next_sequence
            self.next_sequence = (self.next_sequence + batch.count) & SEQUENCE_MASK

    def validate(self) -> None:
        ordinals = [batch.ordinal for batch in self.waiting]
        assert ordinals == sorted(set(ordinals)), f"{self}: waiting out of order {ordinals}"
        flying = [batch.ordinal for batch in self.in_flight]
        assert flying == sorted(set(flying)), f"{self}: in flight out of order {flying}"
        assert not set(flying) & set(ordinals), f"{self}: waiting and in flight at once"
        assert self.open_batch is None or self.open_batch is self.waiting[-1], f"{self}: the open batch is not the last"
        numbered = [batch for batch in (*self.in_flight, *self.waiting) if batch.sequence >= 0]
        assert all(batch.attempts or batch is self.waiting[0] for batch in numbered), f"{self}: numbered, never sent"
