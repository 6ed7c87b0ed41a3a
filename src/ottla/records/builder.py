"""Encode record batches of records, of one control record, or of no record.

Compaction leaves an empty batch where it must retain a producer's last sequence. The CRC is final: a log sets offset
and epoch with `batch.patch`, and the CRC does not cover these.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from ottla.common.control_types import ControlType
from ottla.records import kernels
from ottla.records.batch import (
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    Codec,
    write_header,
)
from ottla.records.codecs import compress

Headers = Sequence[tuple[str, Buffer | None]]
NewRecord = tuple[int, Buffer | None, Buffer | None, Headers]

_CONTROL_KEY = Struct(">hh")
_END_MARKER = Struct(">hi")


class BatchProducer(NamedTuple):
    """The producer in a batch's header, without a sequence if the producer is not idempotent or writes a marker."""

    id: int
    epoch: int = -1
    base_sequence: int = NO_SEQUENCE


NO_PRODUCER: Final = BatchProducer(NO_PRODUCER_ID)


def encode_batch(
    records: Iterable[NewRecord],
    *,
    codec: Codec = Codec.NONE,
    attributes: int = 0,
    producer: BatchProducer = NO_PRODUCER,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """Encode a batch of records, each (timestamp in ms, key, value, headers).

    `attributes` has the bits besides the codec. Raises ValueError without records (see `encode_empty_batch`).
    """
    out: bytearray
    out, count, base_timestamp, max_timestamp, last_delta = kernels.encode_records(records, None)
    if count == 0:
        raise ValueError("A batch needs at least one record")
    if codec is not Codec.NONE:
        out[HEADER_SIZE:] = compress(codec, memoryview(bytes(out))[HEADER_SIZE:])
    header = BatchHeader(
        base_offset,
        len(out) - LOG_OVERHEAD,
        leader_epoch,
        MAGIC,
        0,
        attributes | codec,
        last_delta,
        base_timestamp,
        max_timestamp,
        *producer,
        count,
    )
    write_header(out, 0, header)
    return out


def encode_control_batch(
    control_type: ControlType,
    value: Buffer,
    timestamp_ms: int,
    *,
    producer: BatchProducer = NO_PRODUCER,
    transactional: bool = False,
) -> bytearray:
    """Encode a batch of one control record with the encoded `value`; its key is int16 version 0 and int16 type."""
    return encode_batch(
        ((timestamp_ms, _CONTROL_KEY.pack(0, control_type), value, ()),),
        attributes=CONTROL | (TRANSACTIONAL if transactional else 0),
        producer=producer,
    )


def encode_end_transaction_marker(
    *, commit: bool, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp_ms: int
) -> bytearray:
    """Encode the marker that ends a producer's transaction in a partition. KIP-98."""
    return encode_control_batch(
        ControlType.COMMIT if commit else ControlType.ABORT,
        _END_MARKER.pack(0, coordinator_epoch),
        timestamp_ms,
        producer=BatchProducer(producer_id, producer_epoch),
        transactional=True,
    )


def decode_control_key(key: Buffer) -> int:
    """Return the type in a control record's key: a ControlType or a newer number. Raises ValueError if it is short."""
    if len(key) < _CONTROL_KEY.size:
        raise ValueError(f"The key of a control record has only {len(key)} bytes")
    control_type: int = _CONTROL_KEY.unpack_from(key)[1]
    return control_type


def encode_empty_batch(header: BatchHeader) -> bytearray:
    """Encode a batch without records that retains offsets, sequence and producer of `header`, as Kafka's cleaner."""
    out = bytearray(HEADER_SIZE)
    kept = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    empty = header._replace(
        batch_length=HEADER_SIZE - LOG_OVERHEAD, attributes=kept, base_timestamp=NO_TIMESTAMP, record_count=0
    )
    write_header(out, 0, empty)
    return out
