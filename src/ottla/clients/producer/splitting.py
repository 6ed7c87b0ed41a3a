"""A batch that its topic is too small for, as several smaller ones. KIP-126.

Records are encoded relative to their batch's first, so they are read and written again. That costs, but happens only
until the producer knows what is too large: `PartitionQueue.too_large`.
"""

from __future__ import annotations

from ottla.clients.errors import MessageTooLarge
from ottla.clients.producer.batch import Batch
from ottla.clients.producer.partition import SEQUENCE_MASK, PartitionQueue
from ottla.records.batch import HEADER_SIZE
from ottla.records.kernels import append_record, decode_records
from ottla.records.reader import Record


def split(queue: PartitionQueue, batch: Batch) -> list[Batch]:
    """The pieces that take the batch's place: at least two, which it becomes. It must be neither open nor in flight.

    Their records take at most half of its bytes, and of the least that is known to be too large. They keep its
    sequences, if it has any, so that what was numbered behind it stays right.
    """
    most = min(batch.size, queue.too_large) // 2
    pieces: list[Batch] = []
    out = batch.out
    records = decode_records(out, HEADER_SIZE, len(out), batch.count, 0, batch.base_timestamp, None, Record)
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
        piece = Batch(queue, batch.ordinal + len(pieces))
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
    batch.become(pieces)
    return pieces


def in_place_of(batch: Batch, pieces: list[Batch], batches: dict[Batch, None]) -> dict[Batch, None]:
    """The same batches in the same order, with the pieces where the batch was."""
    made: dict[Batch, None] = {}
    for other in batches:
        made.update(dict.fromkeys(pieces if other is batch else (other,)))
    return made


def too_large(batch: Batch, message: str | None) -> MessageTooLarge:
    """What a record fails with that is too large by itself."""
    size = batch.size + HEADER_SIZE if batch.wire is None else len(batch.wire[0])
    return MessageTooLarge(
        f"A record for {batch.queue} takes {size} bytes as a batch of its own, more than max.message.bytes of the "
        f"topic (or message.max.bytes of the broker) allows{': ' + message if message else ''}"
    )
