"""The header of a record batch v2: reading and writing it, iterating over batches, and checking the CRC.

Nothing here reads the records. The CRC does not cover the base offset and the leader epoch, so `patch` need not
recompute it; `set_timestamps` does. A buffer may be bytes, bytearray or a memoryview of bytes. `position` always names
a byte, `offset` a record. An impossible batch raises KafkaError(CORRUPT_MESSAGE).

Layout: base offset int64, length int32 (of the rest), leader epoch int32, magic int8, CRC uint32 (of the rest),
attributes int16, last offset delta int32, base and max timestamp int64, producer id int64, producer epoch int16, base
sequence int32, record count int32, records. KIP-98, KIP-482, KIP-534 (delete horizon).
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.records.checksum import crc32c

Buffer = bytes | bytearray | memoryview

HEADER_SIZE: Final = 61
LOG_OVERHEAD: Final = 12  # base offset and length, which `batch_length` does not count
MAGIC: Final = 2
NO_PRODUCER_ID: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1

MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
CRC_START: Final = 21  # the first byte that the CRC covers
ATTRIBUTES_POSITION: Final = 21

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

_HEADER = Struct(">qiibIhiqqqhii")
_LENGTH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_TIMESTAMP = Struct(">q")
_LENGTH_POSITION = 8
_MAX_TIMESTAMP_POSITION = 35
_MIN_LENGTH = HEADER_SIZE - LOG_OVERHEAD
_new_tuple = tuple.__new__


class Codec(IntEnum):
    """Compression codecs by their number in the attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_CODECS = tuple(Codec)


class EncodedRecords(NamedTuple):
    """The uncompressed records of a batch, `data[start:end]`, and the fields of its header that decode them.

    `append_time` replaces the records' own timestamps.
    """

    data: Buffer
    start: int
    end: int
    record_count: int
    base_offset: int = 0
    base_timestamp: int = 0
    append_time: int | None = None


class BatchHeader(NamedTuple):
    """The fields before the records, in the order of the wire."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        """Offset of the last record, as it was before compaction."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset that follows this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """The compression codec. Raises KafkaError(UNSUPPORTED_COMPRESSION_TYPE) for an unknown number."""
        number = self.attributes & CODEC_MASK
        if number >= len(_CODECS):
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression codec {number}")
        return _CODECS[number]

    @property
    def is_compressed(self) -> bool:
        """Whether the records are compressed."""
        return self.attributes & CODEC_MASK != 0

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction (markers do)."""
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        """Whether the records are for brokers and clients, not for applications."""
        return self.attributes & CONTROL != 0

    @property
    def is_log_append_time(self) -> bool:
        """Whether every record's timestamp is `max_timestamp`."""
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which the cleaner may delete this batch's tombstones and markers, if it has been set."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, or -1 if the batch has no sequence."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)


def increment_sequence(sequence: int, increment: int) -> int:
    """Add to a sequence number, which wraps from 2^31-1 to 0."""
    return (sequence + increment) & 0x7FFFFFFF


def wrap64(value: int) -> int:
    """Wrap a sum to int64, as Java and C do; a timestamp delta from a client may overflow."""
    return (value + 0x8000000000000000 & 0xFFFFFFFFFFFFFFFF) - 0x8000000000000000


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at `position`, without checking the CRC or that the batch is complete.

    Raises KafkaError(CORRUPT_MESSAGE) if fewer than 61 bytes remain, the magic is not 2 or the length is impossible.
    """
    if len(buffer) - position < HEADER_SIZE:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"No complete batch header at position {position}")
    header = _new_tuple(BatchHeader, _HEADER.unpack_from(buffer, position))  # `_make` without its check
    if header.magic != MAGIC or header.batch_length < _MIN_LENGTH:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"No batch at position {position}: magic {header.magic}, length {header.batch_length}",
        )
    return header


def iter_batches(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield positions and headers of complete batches; stop before an incomplete batch at the end."""
    end = len(buffer)
    while end - position >= HEADER_SIZE:
        header = read_header(buffer, position)
        following = position + LOG_OVERHEAD + header.batch_length
        if following > end:
            return
        yield position, header
        position = following


def compute_crc(buffer: Buffer, position: int, size: int) -> int:
    """Compute the CRC-32C of the batch of `size` bytes at `position`."""
    return crc32c(memoryview(buffer)[position + CRC_START : position + size])


def check_crc(buffer: Buffer, position: int, size: int) -> bool:
    """Return whether the batch of `size` bytes at `position` is complete and matches its CRC."""
    if size < HEADER_SIZE or len(buffer) - position < size:
        return False
    stored: int = _CRC.unpack_from(buffer, position + CRC_POSITION)[0]
    return stored == compute_crc(buffer, position, size)


def patch(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Set the batch's base offset and leader epoch. The CRC covers neither."""
    _TIMESTAMP.pack_into(buffer, position, base_offset)
    _LENGTH.pack_into(buffer, position + 12, leader_epoch)


def set_timestamps(buffer: bytearray | memoryview, position: int, max_timestamp: int, *, log_append: bool) -> None:
    """Set the batch's timestamp type and max timestamp; recompute the CRC if one of them changes."""
    attributes_position = position + ATTRIBUTES_POSITION
    old: int = _ATTRIBUTES.unpack_from(buffer, attributes_position)[0]
    new = old | LOG_APPEND_TIME if log_append else old & ~LOG_APPEND_TIME
    if new == old and _TIMESTAMP.unpack_from(buffer, position + _MAX_TIMESTAMP_POSITION)[0] == max_timestamp:
        return
    _ATTRIBUTES.pack_into(buffer, attributes_position, new)
    _TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_POSITION, max_timestamp)
    seal(buffer, position)


def seal(buffer: bytearray | memoryview, position: int) -> None:
    """Compute the CRC of the batch and write it into the header."""
    size = LOG_OVERHEAD + _LENGTH.unpack_from(buffer, position + _LENGTH_POSITION)[0]
    _CRC.pack_into(buffer, position + CRC_POSITION, compute_crc(buffer, position, size))


def write_header(buffer: bytearray | memoryview, position: int, header: BatchHeader) -> None:
    """Write `header` at `position`, before the records, with a new CRC (`header.crc` is ignored)."""
    _HEADER.pack_into(buffer, position, *header)
    end = position + LOG_OVERHEAD + header[1]
    _CRC.pack_into(buffer, position + CRC_POSITION, crc32c(memoryview(buffer)[position + CRC_START : end]))
