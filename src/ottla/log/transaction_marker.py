"""The control record that ends a transaction (KIP-98)."""

import struct
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.records import Buffer, ControlType, decode_batch, encode_end_transaction_marker

_KEY = Struct(">hh")
_VALUE = Struct(">hi")


class Marker(NamedTuple):
    """The content of a transaction marker."""

    aborted: bool
    coordinator_epoch: int
    timestamp: int


class TransactionEnd(NamedTuple):
    """The end of a producer's transaction, to be written into a partition.

    With a `transaction_version` of 2 or more the producer's epoch was bumped for the end of this very transaction
    (KIP-890, KIP-1228).
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int = 0

    def encode(self, timestamp_ms: int) -> bytearray:
        """Encode the control batch."""
        return bytearray(_encode(self, timestamp_ms))


@lru_cache(maxsize=1)
def _encode(end: TransactionEnd, timestamp_ms: int) -> bytes:
    # The partitions of a transaction get the same marker, most of them within a millisecond.
    return bytes(
        encode_end_transaction_marker(
            commit=end.commit,
            producer_id=end.producer_id,
            producer_epoch=end.producer_epoch,
            coordinator_epoch=end.coordinator_epoch,
            timestamp_ms=timestamp_ms,
        )
    )


def read_marker(buffer: Buffer, position: int) -> Marker | None:
    """The transaction marker in a control batch; None if compaction emptied it or it is another control record."""
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
