"""The content of a producer snapshot file (`<offset>.snapshot`): version, CRC-32C of the rest, count, entries.

Kafka writes the newest batch of each producer. Ottla writes the retained older batches first, as entries of their
own; Kafka uses the last entry of a producer id. So a producer that resends several batches after a crash is
recognized for all of them.
"""

from collections.abc import Mapping
from struct import Struct

from ottla.log.producer_entry import ProducerEntry, WrittenBatch
from ottla.records.checksum import crc32c

_NO_BATCH = WrittenBatch(-1, -1, 0, -1)
_HEAD = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_VERSION = 1
_CRC_START = 6


class CorruptSnapshotError(Exception):
    """A producer snapshot that cannot be used; an older one and the log replace it."""


def encode_snapshot(entries: Mapping[int, ProducerEntry]) -> bytes:
    """Encode the state of all producers."""
    rows = []
    for e in entries.values():
        rows += [_row(e, batch, batch.timestamp, -1) for batch in e.batches[:-1]]
        rows.append(_row(e, e.batches[-1] if e.batches else _NO_BATCH, e.last_timestamp, e.transaction_start))
    body = len(rows).to_bytes(4, "big") + b"".join(rows)
    return _VERSION.to_bytes(2, "big") + int(crc32c(body)).to_bytes(4, "big") + body


def _row(entry: ProducerEntry, batch: WrittenBatch, timestamp: int, transaction_start: int) -> bytes:
    return _ENTRY.pack(
        entry.producer_id,
        entry.epoch,
        batch.last_sequence,
        batch.last_offset,
        batch.offset_delta,
        timestamp,
        entry.coordinator_epoch,
        transaction_start,
    )


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """Decode a snapshot file. Raises CorruptSnapshotError."""
    if len(data) < _HEAD.size:
        raise CorruptSnapshotError(f"{len(data)} bytes are too short for a producer snapshot")
    version, crc, count = _HEAD.unpack_from(data)
    rows = data[_HEAD.size :]
    if version != _VERSION or count < 0 or len(rows) != count * _ENTRY.size:
        raise CorruptSnapshotError(f"Version {version} with {count} entries in {len(data)} bytes")
    if crc != crc32c(data[_CRC_START:]):
        raise CorruptSnapshotError("The checksum of the snapshot is wrong")
    entries: dict[int, ProducerEntry] = {}
    for producer_id, epoch, sequence, offset, delta, timestamp, coordinator, start in _ENTRY.iter_unpack(rows):
        entry = entries.setdefault(producer_id, ProducerEntry(producer_id, epoch))
        entry.move_to(epoch)
        entry.last_timestamp = timestamp
        entry.coordinator_epoch = coordinator
        entry.transaction_start = start
        if offset >= 0:
            entry.batches.append(WrittenBatch(sequence, offset, delta, timestamp))
    return list(entries.values())
