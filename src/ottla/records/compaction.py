"""Compaction of one batch: copies the retained records, which keep their offsets.

Base offset, last offset delta, sequence and producer do not change, so that neither offsets nor a producer's sequences
get gaps. Only the count, the sizes, the timestamps and the CRC change. KIP-534 for the delete horizon.
"""

from collections.abc import Callable, Container

from ottla.records import kernels
from ottla.records.batch import (
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_OVERHEAD,
    Buffer,
    read_header,
    wrap64,
    write_header,
)
from ottla.records.codecs import compress
from ottla.records.reader import payload

Keep = Container[int] | Callable[[int, bytes | None, bool], bool]


def retain(buffer: Buffer, position: int, keep: Keep, delete_horizon_ms: int | None = None) -> Buffer | None:
    """Return the batch at `position` with only the records that `keep` selects, or None if it selects no record.

    `keep` is a container of offsets or a predicate of (offset, key, whether the value is not null).
    `delete_horizon_ms` becomes the batch's delete horizon unless it has one. An unchanged batch is returned as a slice
    of `buffer` without a copy.
    """
    header = read_header(buffer, position)
    data, start, end = payload(buffer, position, header)
    rows = kernels.decode_keys(data, start, end, header.record_count, header.base_offset)
    kept = (keep(*row) for row in rows) if callable(keep) else (row[0] in keep for row in rows)
    mask = bytes(map(bool, kept))
    if not any(mask):
        return None
    horizon = None if header.attributes & DELETE_HORIZON else delete_horizon_ms
    if all(mask) and horizon is None:
        return memoryview(buffer)[position : position + header.size]
    shift = 0 if horizon is None else wrap64(header.base_timestamp - horizon)
    out: bytearray
    out, count, _, greatest = kernels.keep_records(data, start, end, header.record_count, mask, shift)
    if header.is_compressed:
        out[HEADER_SIZE:] = compress(header.codec, memoryview(bytes(out))[HEADER_SIZE:])
    changed = header._replace(
        batch_length=len(out) - LOG_OVERHEAD,
        record_count=count,
        max_timestamp=header.max_timestamp if header.is_log_append_time else wrap64(header.base_timestamp + greatest),
    )
    if horizon is not None:
        changed = changed._replace(base_timestamp=horizon, attributes=header.attributes | DELETE_HORIZON)
    write_header(out, 0, changed)
    return out
