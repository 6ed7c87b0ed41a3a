"""Logs that no broker wrote: valid segments in the directory of a partition whose broker does not run.

Gigabytes are there in seconds, the same for each broker. Sparse ones hold records of a megabyte of zeros, of which the
disk keeps one block each: all offsets, checksums and indices are right.
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

from ottla.records import encode_batch, patch
from ottla.records.batch import seal

_INDEX_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_SPARSE_RECORD = 1_000_000
_BATCHES_IN_A_GB = 1000
_MAX_TIMESTAMP_POSITION = 35
_TIMESTAMPS = struct.Struct(">qq")


def fill(directories: list[Path], total_bytes: int, record_bytes: int, records_in_a_batch: int) -> int:
    """Write one segment to each directory, `total_bytes` together, without indices: as a crash leaves it.

    Returns the number of batches in each.
    """
    template = encode_batch([(_now(), None, os.urandom(record_bytes), [])] * records_in_a_batch, leader_epoch=0)
    size = len(template)
    count = total_bytes // len(directories) // size
    data = template * count
    for number in range(count):
        patch(memoryview(data)[number * size : (number + 1) * size], 0, number * records_in_a_batch, 0)
    for directory in directories:
        with (directory / _name(0, ".log")).open("wb") as log:
            log.write(data)
    return count


def sparse(directory: Path, gigabytes: int) -> int:
    """Segments of a GB each, with their indices, in place of the empty one that is there; the offset after the last."""
    template = encode_batch([(0, None, bytes(_SPARSE_RECORD), [])], leader_epoch=0)
    size = len(template)
    head_size = size - _SPARSE_RECORD - 1  # the value is zeros, and so is the number of headers after it
    for number in range(gigabytes):
        base = number * _BATCHES_IN_A_GB
        timestamp = _now() - (gigabytes - number) * 1000
        _TIMESTAMPS.pack_into(template, _MAX_TIMESTAMP_POSITION - 8, timestamp, timestamp)
        seal(template, 0)
        head = bytearray(template[:head_size])
        with (directory / _name(base, ".log")).open("wb") as log:
            for index in range(_BATCHES_IN_A_GB):
                patch(head, 0, base + index, 0)
                os.pwrite(log.fileno(), head, index * size)
            log.truncate(_BATCHES_IN_A_GB * size)
        entries = (_INDEX_ENTRY.pack(index, index * size) for index in range(1, _BATCHES_IN_A_GB))
        (directory / _name(base, ".index")).write_bytes(b"".join(entries))
        (directory / _name(base, ".timeindex")).write_bytes(_TIME_ENTRY.pack(timestamp, 0))
    return gigabytes * _BATCHES_IN_A_GB


def many(directory: Path, count: int) -> tuple[int, int]:
    """Write `count` segments of one small record each; return (timestamp of the first, offset after the last)."""
    start = _now() - count
    batch = encode_batch([(0, None, b"v" * 100, [])], leader_epoch=0)
    for offset in range(count):
        _TIMESTAMPS.pack_into(batch, _MAX_TIMESTAMP_POSITION - 8, start + offset, start + offset)
        seal(batch, 0)
        patch(batch, 0, offset, 0)
        (directory / _name(offset, ".log")).write_bytes(batch)
        (directory / _name(offset, ".index")).write_bytes(b"")
        (directory / _name(offset, ".timeindex")).write_bytes(_TIME_ENTRY.pack(start + offset, 0))
    return start, count


def _name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def _now() -> int:
    return int(time.time() * 1000)
