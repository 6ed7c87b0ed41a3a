"""The control record that ends a transaction (KIP-98)."""

import struct
from struct import Struct
from typing import NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.records import Buffer, ControlType, decode_batch

_KEY = Struct(">hh")
_VALUE = Struct(">hi")


class Marker(NamedTuple):
    """The content of a transaction marker."""

    aborted: bool
    coordinator_epoch: int
    timestamp: int


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
