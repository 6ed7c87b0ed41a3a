"""A segment, or a snapshot of the metadata log, as rows: batches, optionally their records, and their defects.

At most one batch is in memory, or only its header if its records are not read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ottla.common.errors import KafkaError
from ottla.records import BatchHeader, Codec, Record, check_crc, kernels, read_header
from ottla.records.batch import CODEC_MASK, HEADER_SIZE, LOG_OVERHEAD
from ottla.records.reader import decode_batch, payload
from ottla.tools.dump.record_text import control_meaning
from ottla.tools.dump.rows import Row, Rows, damage, warning

LARGEST = 1 << 30
"""A larger batch is reported as damage and not read: no broker accepts it."""
_OVERHEAD_AND_MAGIC = 17
_ZEROS = bytes(1 << 16)
Meaning = Callable[[Record], dict[str, Any]]


class Depth(NamedTuple):
    """The depth of a dump: whether to show records, whether to verify checksums and structure, how to decode."""

    deep: bool = False
    verify: bool = False
    meaning: Meaning | None = None


def headers(fd: int, size: int) -> Iterator[tuple[int, BatchHeader | str]]:
    """Yield (position, header) of each batch. If the rest is unreadable, the last item has the reason as a str."""
    position = 0
    while position < size:
        head = os.pread(fd, HEADER_SIZE, position)
        if len(head) < HEADER_SIZE:
            yield position, f"{size - position} bytes at the end are not a complete batch"
            return
        try:
            header = read_header(head)
        except KafkaError as error:
            yield position, _not_a_batch(fd, position, size, head, error)
            return
        if position + header.size > size:
            missing = position + header.size - size
            yield position, f"the batch has {header.size:,} bytes, of which the last {missing:,} are missing"
            return
        yield position, header
        position += header.size


def _not_a_batch(fd: int, position: int, size: int, head: bytes, error: KafkaError) -> str:
    if not any(head) and _only_zeros(fd, position, size):
        return f"{size - position:,} zeros at the end: reserved space that was never written"
    magic = head[_OVERHEAD_AND_MAGIC - 1]
    length = int.from_bytes(head[8:12], "big", signed=True)
    if magic in (0, 1) and 14 <= length <= size - position - LOG_OVERHEAD:
        return f"a message of the old format {magic}, which neither Kafka 4 nor Ottla reads"
    return error.message or str(error)


def _only_zeros(fd: int, position: int, size: int) -> bool:
    while position < size:
        piece = os.pread(fd, len(_ZEROS), position)
        if not piece or piece != _ZEROS[: len(piece)]:
            return False
        position += len(piece)
    return True


def dump_segment(path: Path, base_offset: int | None, depth: Depth, follows: int | None = None) -> Rows:
    """Yield the rows of a segment; the last one is of kind "end" with the totals. Raises OSError.

    `base_offset` comes from the file name. `follows` is the offset after the previous segment. Both may be unknown.
    """
    fd = os.open(path, os.O_RDONLY)
    try:
        yield from _dump(fd, os.fstat(fd).st_size, base_offset, depth, follows)
    finally:
        os.close(fd)


def _dump(fd: int, size: int, base_offset: int | None, depth: Depth, follows: int | None) -> Rows:
    batches = records = bad = 0
    first: int | None = None
    expected = base_offset if follows is None else follows
    least = base_offset if follows is None else max(follows, base_offset or 0)
    epoch = -1
    latest = -1
    for position, header in headers(fd, size):
        if isinstance(header, str):
            make = warning if header.endswith("never written") else damage
            yield make(header, position=position)
            bad += make is damage
            break
        problems = list(_sequence_problems(header, expected, least, epoch))
        yield Row("batch", _batch_fields(position, header))
        opened = list(_open(fd, position, header, depth)) if depth.deep or depth.verify else []
        for row in [*problems, *opened]:
            fields = {**row.fields, "position": position} if row.kind != "record" else row.fields
            yield Row(row.kind, fields)
            bad += row.kind == "damage"
        batches += 1
        records += header.record_count
        first = header.base_offset if first is None else first
        expected = least = max(header.next_offset, expected or 0)
        epoch = max(epoch, header.partition_leader_epoch)
        latest = max(latest, header.max_timestamp)
    yield Row(
        "end",
        {
            "batches": batches,
            "records": records,
            "first_offset": first,
            "next_offset": expected,
            "max_timestamp": latest,
            "size": size,
            "damaged": bad,
        },
    )


def _sequence_problems(header: BatchHeader, expected: int | None, least: int | None, epoch: int) -> Rows:
    if least is not None and header.base_offset < least:
        yield damage(f"offset {header.base_offset:,} comes after {least - 1:,}", offset=header.base_offset)
    elif expected is not None and header.base_offset > expected:
        gap = header.base_offset - expected
        problem = f"{gap:,} offsets are missing from {expected:,} on: removed by compaction, or lost"
        yield warning(problem, offset=expected, gap=gap)
    if header.last_offset_delta < 0 or header.record_count < 0 or header.record_count > header.last_offset_delta + 1:
        yield damage(
            f"{header.record_count} records cannot have the offsets {header.base_offset} to {header.last_offset}",
            offset=header.base_offset,
        )
    if 0 <= header.partition_leader_epoch < epoch:
        yield damage(f"leader epoch {header.partition_leader_epoch} comes after {epoch}", offset=header.base_offset)


def _batch_fields(position: int, header: BatchHeader) -> dict[str, Any]:
    codec = header.attributes & CODEC_MASK
    return {
        "position": position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "size": header.size,
        "codec": Codec(codec).name.lower() if codec < len(Codec) else f"codec {codec}",
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "timestamp_type": "append" if header.is_log_append_time else "create",
        "leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "delete_horizon": header.delete_horizon_ms,
        "crc": header.crc,
    }


def _open(fd: int, position: int, header: BatchHeader, depth: Depth) -> Rows:
    """Yield the records of a batch and its defects."""
    if header.size > LARGEST:
        yield damage(f"the batch has {header.size:,} bytes and is too large to be read", offset=header.base_offset)
        return
    batch = os.pread(fd, header.size, position)
    if not check_crc(batch, 0, header.size):
        yield damage(f"the checksum {header.crc:08x} of the batch is wrong", offset=header.base_offset)
        return
    try:
        if not depth.deep:
            data, start, end = payload(batch, 0, header)
            kernels.walk_records(data, start, end, header.record_count)
            return
        for record in decode_batch(batch):
            yield Row("record", _record_fields(record, header, depth.meaning))
    except KafkaError as error:
        yield damage(f"the records cannot be read: {error.message or error}", offset=header.base_offset)


def _record_fields(record: Record, header: BatchHeader, meaning: Meaning | None) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": record.key,
        "value": record.value,
        "headers": record.headers,
    }
    if header.base_sequence >= 0:
        fields["sequence"] = (header.base_sequence + record.offset - header.base_offset) & 0x7FFFFFFF
    if meaning is not None or header.is_control:
        fields["meaning"] = control_meaning(record) if header.is_control else meaning and meaning(record)
    return fields
