"""Batches of records for one partition, and the queue of the partition that orders and numbers them.

The life of a batch: waiting, in flight, done (acknowledged, failed or split), announced.
`MOVES` has the legal transitions up to the outcome; the core makes them under its lock. Afterwards the thread that
executes the core's effects calls `announce` without the lock: it runs the callbacks of the records, marks the batch as
announced and wakes its waiters, in this order. So callbacks have run before `result()` or `flush()` returns, as with
Kafka's Java producer.

Records are encoded when they are appended (`_encoder`), so a batch that waits for its broker consists of bytes.

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

import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from enum import IntEnum
from typing import Any

from ottla.clients.producer import _encoder
from ottla.clients.producer._encoder import (
    HEADER_SIZE,
    UNKNOWN_OFFSET,
    BatchRecords,
    Delivery,
    Encoded,
    OpenQueue,
    in_callback,
)
from ottla.clients.producer.record_metadata import AppendedRange
from ottla.clients.producer.runtime import Runtime
from ottla.records import kernels
from ottla.records.batch import EncodedRecords
from ottla.records.kernels import append_record, decode_records
from ottla.records.reader import Record

logger = logging.getLogger("ottla.clients.producer")

# Whether records are appended without the lock of the core: see `_encoder`.
COMPILED = kernels.COMPILED and not _encoder.__file__.endswith(".py")
NOT_YET_MS: float = 1 << 62
MAX_EPOCH = 0x7FFF
SEQUENCE_MASK = 0x7FFFFFFF
NO_LIMIT = 1 << 62

# Held while callbacks are added or taken, so that none is missed. One lock for all batches: it is rarely contended.
_callbacks_lock = threading.Lock()


class State(IntEnum):
    WAITING = 0  # in its partition's queue; the last batch there may be open
    IN_FLIGHT = 1
    SPLIT = 2  # replaced by its pieces; done when they are
    DONE = 3


class Event(IntEnum):
    SENT = 0
    RETURNED = 1  # to its queue, to be sent again
    REPLACED = 2  # by its pieces
    FINISHED = 3


MOVES = {
    (State.WAITING, Event.SENT): State.IN_FLIGHT,
    (State.WAITING, Event.REPLACED): State.SPLIT,
    (State.WAITING, Event.FINISHED): State.DONE,  # expired, purged, or the producer was stopped
    (State.IN_FLIGHT, Event.RETURNED): State.WAITING,
    (State.IN_FLIGHT, Event.FINISHED): State.DONE,
    (State.SPLIT, Event.FINISHED): State.DONE,
}


class Batch(BatchRecords):
    """Records for one partition that are sent, acknowledged or refused together."""

    __slots__ = (
        "attempts",
        "deadline_ms",
        "epoch",
        "linger_until_ms",
        "ordinal",
        "producer_id",
        "sequence",
        "state",
        "unsure_until_ms",
        "urgent",
        "waiters",
        "whole",
        "wire",
    )

    queue: PartitionQueue
    pieces: list[Batch] | None

    def __init__(self, queue: PartitionQueue, ordinal: int) -> None:
        super().__init__(queue)
        self.state = State.WAITING
        self.ordinal = ordinal  # ascends within a partition; retries keep this order
        self.linger_until_ms = self.deadline_ms = NOT_YET_MS  # set by the first `step` after the batch was created
        self.wire: tuple[Any, ...] | None = None  # (encoded batch, its header), once encoded
        self.attempts = 0
        self.producer_id = self.epoch = self.sequence = -1
        self.unsure_until_ms: float = 0  # until then a request without a response may still arrive at the broker
        self.urgent = False  # a caller waits: do not linger
        self.waiters: list[Callable[[], object]] = []
        self.whole: Batch | None = None  # the batch that this is a piece of

    def move(self, event: Event) -> None:
        """Make a transition of `MOVES`; any other is a defect of the caller (KeyError)."""
        self.state = MOVES[self.state, event]

    def fill(self, body: Encoded) -> None:
        """Use records that are encoded already, instead of appending one by one."""
        self.out, self.count, self.base_timestamp, self.max_timestamp, _ = body
        self.size = len(self.out) - HEADER_SIZE

    def finish(self, base_offset: int, log_append_time_ms: int, error: Exception | None) -> None:
        """Record the outcome and release the bytes. A split batch finishes with the last of its pieces."""
        self.move(Event.FINISHED)
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.error = error
        self.out = bytearray()
        self.wire = None
        self.done = True
        if self.pieces is None and not self.callbacks:
            self.announced = True
        whole = self.whole
        if whole is not None and whole.pieces is not None and all(piece.done for piece in whole.pieces):
            errors = [piece.error for piece in whole.pieces if piece.error is not None]
            whole.finish(UNKNOWN_OFFSET, -1, errors[0] if errors else None)
            whole.announced = all(piece.announced for piece in whole.pieces)

    def replace_by(self, pieces: list[Batch]) -> None:
        """Hand records and callbacks to `pieces`, which have the same records in the same order."""
        self.move(Event.REPLACED)
        for piece in pieces:
            piece.whole = self
        self.pieces = pieces
        self.out = bytearray()
        self.wire = None
        for index in range(0, len(self.callbacks), 2):
            delivery = self.callbacks[index]
            self.leaf(delivery._index)[0].callbacks.extend((delivery, self.callbacks[index + 1]))  # noqa: SLF001
        self.callbacks = []

    def leaves(self) -> list[Batch]:
        """The batches that contain the records after all splits: this one, or its pieces, or theirs."""
        if self.pieces is None:
            return [self]
        return [leaf for piece in self.pieces for leaf in piece.leaves()]

    def announce(self) -> None:
        """Run the callbacks of the records in order, then wake the waiters. The batch must be done.

        The runtime runs coroutines that callbacks returned; the batch is announced when they have ended. Several
        threads may call this at the same time: each callback runs once.
        """
        token = in_callback.set(True)
        try:
            started = self._run_callbacks()
        except BaseException:  # Ctrl-C in a callback: the waiters must be woken all the same
            self._conclude()
            raise
        finally:
            in_callback.reset(token)
        if started:
            self.queue.runtime.run_coroutines(started, self.announce)
        else:
            self._conclude()

    def _run_callbacks(self) -> list[Coroutine[Any, Any, object]]:
        started: list[Coroutine[Any, Any, object]] = []
        while callbacks := self._take_callbacks(is_last=not started):
            self.looked_at = True
            for index in range(0, len(callbacks), 2):
                coroutine = call_back(callbacks[index + 1], callbacks[index], self.queue)
                if coroutine is not None:
                    started.append(coroutine)
        return started

    def _take_callbacks(self, is_last: bool) -> list[Any]:
        """The callbacks to run now. If there are none and `is_last`, `add_callback` refuses later ones."""
        with _callbacks_lock:
            callbacks, self.callbacks = self.callbacks, []
            if not callbacks and is_last:
                self.announced = True
        return callbacks

    def _conclude(self) -> None:
        self.announced = True
        self.wake()
        whole = self.whole
        if whole is not None and whole.pieces is not None and all(piece.announced for piece in whole.pieces):
            whole.announce()

    def add_callback(self, delivery: Delivery, callback: Callable[[Any], object]) -> bool:
        """Have `callback(delivery)` run when the batch is announced; False if it already is."""
        with _callbacks_lock:
            if not self.announced:
                self.callbacks.extend((delivery, callback))
            return not self.announced

    def wake(self) -> None:
        """Wake the waiters. Several threads may do so at the same time for the pieces of one batch."""
        while self.waiters:
            try:
                waiter = self.waiters.pop()
            except IndexError:
                return
            waiter()

    def wait_with(self, wake: Callable[[], object]) -> bool:
        """Call `wake()` when the batch is announced; False if it already is (then `wake` may be called or not)."""
        self.urgent = True
        if self.pieces is not None:
            for piece in self.leaves():
                piece.urgent = True
        self.waiters.append(wake)
        return not self.announced

    def __del__(self) -> None:
        """Report a failure that the program never asked for: no callback, no `result()`."""
        if self.error is not None and not self.looked_at and self.pieces is None:
            self.queue.runtime.report_unread_error(self)


def call_back(
    callback: Callable[[Any], object], delivery: Delivery, queue: object
) -> Coroutine[Any, Any, object] | None:
    try:
        returned = callback(delivery)
    except KeyboardInterrupt:
        raise
    except BaseException:  # SystemExit or a cancelled future's: the other callbacks must run all the same
        logger.exception("A delivery callback failed for %s", queue)
        return None
    return returned if isinstance(returned, Coroutine) else None


class Batches:
    __slots__ = ("_batches",)

    def __init__(self, batches: list[Batch]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)

    def done(self) -> bool:
        return all(batch.announced for batch in self._batches)

    def peek(self) -> list[AppendedRange]:
        """The positions of the rows, once done. Raises the first failure (other batches may have been written)."""
        leaves = [leaf for batch in self._batches for leaf in batch.leaves()]
        for batch in leaves:
            batch.looked_at = True
        for batch in leaves:
            if batch.error is not None:
                raise batch.error
        return [
            AppendedRange(batch.queue.topic, batch.queue.partition, batch.base_offset, batch.count) for batch in leaves
        ]


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
