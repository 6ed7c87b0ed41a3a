"""Splits a batch that is larger than max.message.bytes of its topic. KIP-126.

The timestamp and offset of a record are encoded relative to the first record of its batch, so all records are decoded
and encoded again. This is rare: `PartitionQueue.too_large` is the smallest size that the broker refused, and the core
splits batches of that size before it sends them.
"""

from __future__ import annotations

from ottla.clients.errors import MessageTooLarge
from ottla.clients.producer.batch import Batch
from ottla.clients.producer.partition_queue import SEQUENCE_MASK, PartitionQueue
from ottla.records.batch import HEADER_SIZE, EncodedRecords
from ottla.records.kernels import append_record, decode_records
from ottla.records.reader import Record


def split(queue: PartitionQueue, batch: Batch) -> list[Batch]:
    """Split a batch, which must be neither open nor in flight, into at least two pieces that replace it.

    The records of a piece take at most half of the batch's bytes, and at most half of the smallest size that the broker
    refused. A single record may take more. Pieces of a numbered batch get its sequence numbers, one range after the
    other, so the numbers of later batches stay valid. They inherit deadline, attempts and urgency; callbacks move to
    the piece with their record, and futures find their record with `BatchRecords.leaf`.

    Cost: linear in the records. A batch that is still too large is split again, so in the end each record is encoded
    at most about log2(size / limit) times.
    """
    most = min(batch.size, queue.too_large) // 2
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
    batch.replace_by(pieces)
    return pieces


def in_place_of(batch: Batch, pieces: list[Batch], batches: dict[Batch, None]) -> dict[Batch, None]:
    """The same batches in the same order, with the pieces in the place of the batch."""
    made: dict[Batch, None] = {}
    for other in batches:
        made.update(dict.fromkeys(pieces if other is batch else (other,)))
    return made


def too_large(batch: Batch, message: str | None) -> MessageTooLarge:
    """The error of a single record that is too large."""
    size = batch.size + HEADER_SIZE if batch.wire is None else len(batch.wire[0])
    return MessageTooLarge(
        f"A record for {batch.queue} takes {size} bytes as a batch of its own, more than max.message.bytes of the "
        f"topic (or message.max.bytes of the broker) allows{': ' + message if message else ''}"
    )
