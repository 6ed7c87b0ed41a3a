"""Read the records of a batch, compressed or not.

The caller checks the CRC (`batch.check_crc`) if it does not trust the source. Any bytes yield records or a KafkaError:
CORRUPT_MESSAGE for the batch and its compression, INVALID_RECORD for a record's structure.
"""

from typing import NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.records import kernels
from ottla.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    BatchHeader,
    Buffer,
    EncodedRecords,
    read_header,
)
from ottla.records.codecs import MAX_DECOMPRESSED_SIZE, decompress

_new_tuple = tuple.__new__


class Record(NamedTuple):
    """One record. The timestamp is in ms; with log append time it is the batch's max timestamp."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def payload(
    buffer: Buffer, position: int, header: BatchHeader, max_size: int = MAX_DECOMPRESSED_SIZE
) -> tuple[Buffer, int, int]:
    """Return (data, start, end) of the decompressed records; without compression, `data` is `buffer`."""
    end = position + header.size
    if end > len(buffer):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"The batch at position {position} ends too early")
    start = position + HEADER_SIZE
    if not header.attributes & CODEC_MASK:
        return buffer, start, end
    data = decompress(header.codec, memoryview(buffer)[start:end], max_size) if end > start else b""
    return data, 0, len(data)


def encoded_records(buffer: Buffer, position: int, header: BatchHeader) -> EncodedRecords:
    """Return the decompressed records of the batch at `position`, for the kernels that decode them."""
    data, start, end = payload(buffer, position, header)
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    # The constructor of a NamedTuple would take a tenth of the time that a batch of one record needs.
    return _new_tuple(
        EncodedRecords,
        (data, start, end, header.record_count, header.base_offset, header.base_timestamp, append_time),
    )


def decode_batch(buffer: Buffer, position: int = 0) -> list[Record]:
    """Return copies of the records of the batch at `position`."""
    header = read_header(buffer, position)
    rows: list[Record] = kernels.decode_records(encoded_records(buffer, position, header), Record)
    return rows


def decode_keys(buffer: Buffer, position: int = 0) -> list[tuple[int, bytes | None, bool]]:
    """Return (offset, key, whether the value is not null) of every record of the batch at `position`."""
    header = read_header(buffer, position)
    data, start, end = payload(buffer, position, header)
    rows: list[tuple[int, bytes | None, bool]] = kernels.decode_keys(
        data, start, end, header.record_count, header.base_offset
    )
    return rows
