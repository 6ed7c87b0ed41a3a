"""The control record that ends a transaction (KIP-98)."""

from __future__ import annotations

import struct
from functools import lru_cache
from struct import Struct

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.values import value
from ottla.records import (
    BatchHeader,
    Buffer,
    ControlType,
    decode_batch,
    encode_end_transaction_marker,
    read_header,
)

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
FORGET_PRODUCER = -2
"""The coordinator epoch of a marker that also removes the producer's state. No transaction coordinator has it."""
_LONGEST_CACHED = 128  # more than the size of a marker of a leader, which is decoded once for all partitions


@value
class Marker:
    """The content of a transaction marker."""

    aborted: bool
    coordinator_epoch: int
    timestamp: int


@value
class TransactionEnd:
    """The end of a producer's transaction, to be written into a partition.

    With a `transaction_version` of 2 or more the producer's epoch was bumped for the end of this very transaction
    (KIP-890, KIP-1228).
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int = 0

    def encode(self, timestamp_ms: int) -> tuple[bytearray, BatchHeader]:
        """Encode the control batch; returns it with its header."""
        batch, header = _encode(self, timestamp_ms)
        return bytearray(batch), header


# The partitions of a transaction get the same marker, most of them within a millisecond: it is encoded once.
@lru_cache(maxsize=1)
def _encode(end: TransactionEnd, timestamp_ms: int) -> tuple[bytes, BatchHeader]:
    batch = bytes(
        encode_end_transaction_marker(
            commit=end.commit,
            producer_id=end.producer_id,
            producer_epoch=end.producer_epoch,
            coordinator_epoch=end.coordinator_epoch,
            timestamp_ms=timestamp_ms,
        )
    )
    return batch, read_header(batch)


def read_marker(buffer: Buffer, position: int) -> Marker | None:
    """The transaction marker in a control batch; None if compaction emptied it or it is another control record."""
    size = len(buffer) - position
    return _read_marker(bytes(buffer)) if not position and size <= _LONGEST_CACHED else _decode(buffer, position)


@lru_cache(maxsize=4)
def _read_marker(batch: bytes) -> Marker | None:
    return _decode(batch, 0)


def _decode(buffer: Buffer, position: int) -> Marker | None:
    records = decode_batch(buffer, position)
    if not records:
        return None
    record = records[0]
    try:
        _, kind = _KEY.unpack_from(record.key or b"")
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            return None
        _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    except struct.error as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, "A transaction marker is too short") from error
    return Marker(kind == ControlType.ABORT, coordinator_epoch, record.timestamp)
