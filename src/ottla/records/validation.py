"""Validation of a produced batch by the leader, before the batch gets an offset.

The data must be exactly one valid v2 batch that obeys the topic's rules; a leader of stock Kafka returns the same error
codes. The records of an uncompressed batch are checked one by one. A compressed batch is not decompressed and its
header is trusted, unless a rule needs its records: a compacted topic (keys), another `compression.type`, or timestamps
that cannot be decided by the header. Kafka decompresses every batch, at several times the cost; that only detects
clients that compress invalid records.

The batch is changed in place if the topic uses log append time or if its max timestamp is wrong. A read-only buffer or
another codec needs a copy. KIP-32, KIP-98, KIP-110 (zstd), KIP-467 (record errors), KIP-937 (bounds).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.values import value
from ottla.records import kernels
from ottla.records.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    Codec,
    EncodedRecords,
    read_header,
    set_timestamps,
    write_header,
)
from ottla.records.checksum import crc32c
from ottla.records.codecs import MAX_DECOMPRESSED_SIZE, TooLargeError, compress
from ottla.records.contract import Contract
from ottla.records.reader import Record, payload

CREATE_TIME_TYPE: Final = "CreateTime"
LOG_APPEND_TIME_TYPE: Final = "LogAppendTime"
UNBOUNDED_MS: Final = (1 << 63) - 1

_LENGTH_AND_MAGIC = Struct(">8xi4xb")
_SMALLEST_LENGTH = 14  # of a record of magic 0; Kafka rejects a smaller length as corrupt
_SHOWN_ERRORS = 3
# Limits of decompression: real data compresses by a small factor, a decompression bomb by a thousand.
_UNPACKED_BYTES = 16 * 1024 * 1024
_UNPACKED_FACTOR = 4

_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class NotOneBatchError(KafkaError):
    """The data is not one complete batch that the request version allows. The partition is not looked up."""


class RecordError(KafkaError):
    """Some records of the batch are invalid; `record_errors` has (index in the batch, message) of each. KIP-467."""

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = list(record_errors)


@value
class ProduceRules:
    """The topic's settings that apply to a produced batch."""

    topic: str
    max_message_bytes: int = 1048588
    compression_type: str = "producer"
    compression_level: int | None = None
    timestamp_type: str = CREATE_TIME_TYPE
    before_max_ms: int = UNBOUNDED_MS
    after_max_ms: int = 3_600_000
    compacted: bool = False
    contract: Contract | None = None
    """The schemas that the records must have; `validate_produced` does not check them (`ottla.broker.contracts`)."""


def validate_produced(
    buffer: memoryview, rules: ProduceRules, now_ms: int, *, allow_zstd: bool = True
) -> tuple[BatchHeader, memoryview]:
    """Return header and bytes of the only batch in `buffer`, ready to append: `buffer` itself or a copy.

    `allow_zstd` is false for Produce below version 7. Raises KafkaError with Kafka's code, or RecordError if single
    records are invalid; in that case the buffer is unchanged.
    """
    if rules.compression_type == "producer" and rules.timestamp_type == CREATE_TIME_TYPE:
        plain = kernels.plain_batch(buffer, rules.max_message_bytes, BatchHeader)
        if plain is not None:  # the common case; any other batch is checked in detail, for precise errors
            header, earliest, latest, null_keys = plain
            timely = now_ms - earliest <= rules.before_max_ms and latest - now_ms <= rules.after_max_ms
            if timely and latest == header.max_timestamp and not (null_keys and rules.compacted):
                return header, buffer
    header = _read_one_batch(buffer, allow_zstd=allow_zstd)
    _check_header(header, buffer, rules)
    attributes = header.attributes
    max_timestamp = header.max_timestamp
    if rules.compression_type == "producer" and not attributes & CODEC_MASK:
        max_timestamp = _check_records(buffer, HEADER_SIZE, len(buffer), header, rules, now_ms)
        recompressed = False
    else:
        source = header.codec
        target = source if rules.compression_type == "producer" else _CODECS[rules.compression_type]
        recompressed = source is not target
        if source is Codec.NONE or recompressed or _needs_inside(header, rules, now_ms):
            data, start, end = uncompressed(buffer, header, rules)
            max_timestamp = _check_records(data, start, end, header, rules, now_ms)
            if recompressed:
                buffer = _recompress(data, start, end, header, target, rules)
    appends = rules.timestamp_type == LOG_APPEND_TIME_TYPE
    if appends:
        max_timestamp = now_ms
    if max_timestamp != header.max_timestamp or appends != (attributes & LOG_APPEND_TIME != 0):
        if buffer.readonly:
            buffer = memoryview(bytearray(buffer))
        set_timestamps(buffer, 0, max_timestamp, log_append=appends)
        header = read_header(buffer)
    elif recompressed:
        header = read_header(buffer)
    return header, buffer


def uncompressed(buffer: memoryview, header: BatchHeader, rules: ProduceRules) -> tuple[Buffer, int, int]:
    """Return (data, start, end) of the records of a produced batch.

    The size is limited, because all clients wait meanwhile and a few bytes may claim gigabytes. Raises KafkaError.
    """
    most = min(_UNPACKED_BYTES + _UNPACKED_FACTOR * rules.max_message_bytes, MAX_DECOMPRESSED_SIZE)
    try:
        return payload(buffer, 0, header, most)
    except TooLargeError as error:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from None


def _invalid(rules: ProduceRules, why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"The batch for {rules.topic} is invalid: {why}")


def _read_one_batch(buffer: memoryview, *, allow_zstd: bool) -> BatchHeader:
    """Return the header of the only batch, which must fill the buffer."""
    if len(buffer) <= MAGIC_POSITION:
        raise NotOneBatchError(ErrorCode.INVALID_RECORD, "The request has no batch for the partition")
    length, magic = _LENGTH_AND_MAGIC.unpack_from(buffer)
    if length < _SMALLEST_LENGTH or not 0 <= magic <= MAGIC:
        raise NotOneBatchError(ErrorCode.CORRUPT_MESSAGE, f"No batch: magic {magic}, length {length}")
    size = LOG_OVERHEAD + length
    if size > len(buffer):
        raise NotOneBatchError(ErrorCode.INVALID_RECORD, "The request has no complete batch for the partition")
    if magic < MAGIC:
        raise NotOneBatchError(ErrorCode.INVALID_RECORD, f"A batch of magic {magic}: only magic {MAGIC} is accepted")
    header = read_header(buffer)
    if not allow_zstd and header.attributes & CODEC_MASK == Codec.ZSTD:
        raise NotOneBatchError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "This version of the produce request does not support zstd"
        )
    if size != len(buffer):
        raise NotOneBatchError(
            ErrorCode.INVALID_RECORD, f"{len(buffer) - size} bytes follow the one batch that is allowed"
        )
    return header


def _check_size(size: int, rules: ProduceRules) -> None:
    if size > rules.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The batch for {rules.topic} has {size} bytes, max.message.bytes is {rules.max_message_bytes}",
        )


def _check_header(header: BatchHeader, buffer: memoryview, rules: ProduceRules) -> None:
    base_offset, _, _, _, crc, attributes, last_delta, _, _, producer_id, _, sequence, count = header
    if base_offset:
        raise _invalid(rules, f"its base offset is {base_offset} instead of 0")
    _check_size(len(buffer), rules)
    if crc32c(buffer[CRC_START:]) != crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"The batch for {rules.topic} does not match its CRC")
    if last_delta < 0:
        raise _invalid(rules, f"its last offset delta is {last_delta}")
    if count <= 0:
        raise _invalid(rules, f"its record count is {count}")
    if last_delta + 1 != count:
        raise _invalid(rules, f"its last offset delta {last_delta} does not fit {count} records")
    if attributes & CONTROL:
        raise _invalid(rules, "clients may not write control records")
    if producer_id > NO_PRODUCER_ID and sequence < 0:
        raise _invalid(rules, f"sequence {sequence} of producer {producer_id}")


def _needs_inside(header: BatchHeader, rules: ProduceRules, now_ms: int) -> bool:
    """Return whether a compressed batch must be decompressed to apply the rules."""
    if rules.compacted:
        return True
    if rules.timestamp_type == LOG_APPEND_TIME_TYPE:
        return header.is_log_append_time  # to report the invalid records
    # The header has the latest timestamp but not the earliest.
    latest = now_ms + rules.after_max_ms
    return rules.before_max_ms < UNBOUNDED_MS or header.max_timestamp > latest or header.base_timestamp > latest


def _check_records(
    data: bytes | bytearray | memoryview, start: int, end: int, header: BatchHeader, rules: ProduceRules, now_ms: int
) -> int:
    """Check the records and return their latest timestamp."""
    count = header.record_count
    least, greatest, null_keys, misplaced = kernels.walk_records(data, start, end, count)
    if misplaced:
        raise _invalid(rules, f"the offsets of {misplaced} of its {count} records do not ascend from 0 by 1")
    stamped = header.attributes & LOG_APPEND_TIME != 0
    if stamped:
        earliest = latest = header.max_timestamp
        wrapped = False
    else:
        earliest, latest = header.base_timestamp + least, header.base_timestamp + greatest
        # A sum beyond int64 wraps, as it does in every reader. Then other records have the extreme timestamps.
        wrapped = latest > UNBOUNDED_MS or earliest < ~UNBOUNDED_MS
    if rules.timestamp_type == CREATE_TIME_TYPE:
        suspect = wrapped or now_ms - earliest > rules.before_max_ms or latest - now_ms > rules.after_max_ms
    else:
        suspect = stamped
    if suspect or (null_keys and rules.compacted):
        append_time = header.max_timestamp if stamped else None
        records = EncodedRecords(data, start, end, count, 0, header.base_timestamp, append_time)
        rows = kernels.decode_records(records, Record)
        _refuse_records(rows, header, rules, now_ms)
        latest = max(row.timestamp for row in rows)
    return latest


def _refuse_records(rows: list[Record], header: BatchHeader, rules: ProduceRules, now_ms: int) -> None:
    errors: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    for index, row in enumerate(rows):
        if rules.compacted and row.key is None:
            errors.append((index, f"Compacted topic {rules.topic} accepts no record without a key"))
        elif why := _timestamp_error(row.timestamp, header, rules, now_ms):
            errors.append((index, why))
            code = ErrorCode.INVALID_TIMESTAMP
    if not errors:
        return
    if code is ErrorCode.INVALID_TIMESTAMP:
        raise RecordError(code, "One or more records have been rejected due to invalid timestamp", errors)
    shown = "; ".join(f"record {index}: {why}" for index, why in errors[:_SHOWN_ERRORS])
    raise RecordError(code, f"{len(errors)} records of the batch are invalid: {shown}", errors)


def _timestamp_error(timestamp: int, header: BatchHeader, rules: ProduceRules, now_ms: int) -> str | None:
    if rules.timestamp_type == CREATE_TIME_TYPE and timestamp != NO_TIMESTAMP:
        if now_ms - timestamp > rules.before_max_ms or timestamp - now_ms > rules.after_max_ms:
            return (
                f"Timestamp {timestamp} is not within [{now_ms - rules.before_max_ms}, {now_ms + rules.after_max_ms}]"
            )
    elif header.is_log_append_time:
        return "A producer may not set the timestamp type LogAppendTime"
    return None


def _recompress(
    data: bytes | bytearray | memoryview,
    start: int,
    end: int,
    header: BatchHeader,
    target: Codec,
    rules: ProduceRules,
) -> memoryview:
    """Return the batch with its records compressed in the topic's codec."""
    out = bytearray(HEADER_SIZE)
    out += compress(target, memoryview(data)[start:end], rules.compression_level)
    _check_size(len(out), rules)
    changed = header._replace(batch_length=len(out) - LOG_OVERHEAD, attributes=header.attributes & ~CODEC_MASK | target)
    write_header(out, 0, changed)
    return memoryview(out)
