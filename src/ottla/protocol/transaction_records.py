"""Records of `__transaction_state`: one per transactional id. KIP-98, KIP-890.

Before the key stands its type, before the value its version, as 16-bit numbers. A null value deletes.
"""

from __future__ import annotations

from ottla.protocol.keyed import decode_keyed, encode_key, encode_value
from ottla.protocol.message import Int8, Int16, Int32, Int64, Message, Struct, tagged
from ottla.protocol.wire import Buffer

__all__ = [
    "RECORD_TYPES",
    "TransactionLogKey",
    "TransactionLogValue",
    "decode_record",
    "encode_key",
    "encode_value",
]


class TransactionLogKey(Message, key=0, versions="0"):
    """Key (0) of a transaction's state."""

    transactional_id: str = ""


class TransactionLogValue(Message, key=0, versions="0-1", flexible="1+"):
    """A transaction's state. KIP-98, KIP-890"""

    producer_id: Int64 = 0
    previous_producer_id: Int64 = tagged(0, 1, default=-1)
    next_producer_id: Int64 = tagged(1, 1, default=-1)
    producer_epoch: Int16 = 0
    next_producer_epoch: Int16 = tagged(3, 1, default=-1)
    transaction_timeout_ms: Int32 = 0
    transaction_status: Int8 = 0
    transaction_partitions: list[PartitionsSchema] | None = []
    transaction_last_update_timestamp_ms: Int64 = 0
    transaction_start_timestamp_ms: Int64 = 0
    client_transaction_version: Int16 = tagged(2, 1)


class PartitionsSchema(Struct):
    """An element of `TransactionLogValue.transaction_partitions`."""

    topic: str = ""
    partition_ids: list[Int32] = []


RECORD_TYPES: dict[int, tuple[type[Message], type[Message]]] = {
    0: (TransactionLogKey, TransactionLogValue),
}


def decode_record(key: Buffer, value: Buffer | None) -> tuple[Message, Message | None] | None:
    """Key and value of a record, None for a tombstone; None if the type is unknown. Raises DecodeError."""
    return decode_keyed(RECORD_TYPES, key, value)
