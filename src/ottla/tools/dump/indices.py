"""Offset, time and transaction indices as rows. One scan of an index and its segment compares them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

from ottla.log.files import Files
from ottla.log.index import CorruptIndexError
from ottla.log.txn_index import TxnIndex
from ottla.records import BatchHeader
from ottla.tools.dump.rows import Row, Rows, damage
from ottla.tools.dump.segment import headers

_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_PIECE = 1 << 16


def _entries(path: Path, entry: Struct) -> Iterator[tuple[int, int]]:
    """Yield the entries before the zeros of preallocated space. Raises OSError."""
    zeros = 0
    position = 0
    is_first = True
    with open(path, "rb") as file:
        while piece := file.read(_PIECE // entry.size * entry.size):
            for first, second in entry.iter_unpack(piece[: len(piece) // entry.size * entry.size]):
                if first == 0 and second == 0 and not is_first:
                    zeros += 1
                    continue
                for _ in range(zeros):
                    yield 0, 0
                zeros = 0
                yield first, second
                is_first = False
            position += len(piece)


def _size_problem(path: Path, entry: Struct) -> Rows:
    left = path.stat().st_size % entry.size
    if left:
        yield damage(f"{left} bytes at the end are not a complete entry of {entry.size} bytes")


class _Batches:
    """The batches of a segment, read forwards in step with the entries of an index."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY)
        self._rows = headers(self._fd, os.fstat(self._fd).st_size)
        self.position = -1
        self.header: BatchHeader | None = None
        self.latest = -1
        self.ended = False

    def forward(self) -> bool:
        """Go to the next batch; returns False at the end, and stays at the last batch."""
        row = next(self._rows, None)
        if row is None or isinstance(row[1], str):
            self.ended = True
            return False
        self.position, self.header = row[0], row[1]
        self.latest = max(self.latest, row[1].max_timestamp)
        return True

    def close(self) -> None:
        os.close(self._fd)


def dump_offset_index(path: Path, base_offset: int, segment: Path | None) -> Rows:
    """Yield the entries of a `.index`; with `segment` each is compared with the batch at its position."""
    yield from _size_problem(path, _OFFSET_ENTRY)
    batches = _Batches(segment) if segment else None
    count, bad, before = 0, 0, (-1, -1)
    try:
        for relative, position in _entries(path, _OFFSET_ENTRY):
            offset = base_offset + relative
            yield Row("entry", {"offset": offset, "position": position})
            problem = _offset_problem(relative, position, before, offset, batches)
            if problem:
                yield damage(problem, offset=offset, position=position)
                bad += 1
            before = (relative, position)
            count += 1
    finally:
        if batches:
            batches.close()
    yield Row("end", {"entries": count, "damaged": bad})


def _offset_problem(
    relative: int, position: int, before: tuple[int, int], offset: int, batches: _Batches | None
) -> str | None:
    if relative <= before[0] or position <= before[1]:
        return f"the entry {offset:,} at {position:,} is not greater than the previous entry"
    if batches is None:
        return None
    while batches.position < position and batches.forward():
        pass
    if batches.position != position or batches.header is None:
        return f"no batch begins at {position:,}"
    if offset < batches.header.base_offset:
        return f"the batch at {position:,} begins at offset {batches.header.base_offset:,}, after {offset:,}"
    return None


def dump_time_index(path: Path, base_offset: int, segment: Path | None) -> Rows:
    """Yield the entries of a `.timeindex`; with `segment` each is compared with the timestamps up to its offset."""
    yield from _size_problem(path, _TIME_ENTRY)
    batches = _Batches(segment) if segment else None
    count, bad, before = 0, 0, (-1, -1)
    try:
        for timestamp, relative in _entries(path, _TIME_ENTRY):
            offset = base_offset + relative
            yield Row("entry", {"timestamp": timestamp, "offset": offset})
            problem = None
            if timestamp <= before[0] or relative < before[1]:
                problem = f"the entry {timestamp} at offset {offset:,} is not greater than the previous entry"
            elif batches is not None:
                problem = _time_problem(timestamp, offset, batches)
            if problem:
                yield damage(problem, offset=offset, timestamp=timestamp)
                bad += 1
            before = (timestamp, relative)
            count += 1
    finally:
        if batches:
            batches.close()
    yield Row("end", {"entries": count, "damaged": bad})


def _time_problem(timestamp: int, offset: int, batches: _Batches) -> str | None:
    while (batches.header is None or batches.header.last_offset < offset) and batches.forward():
        pass
    if batches.header is None or (batches.ended and batches.header.last_offset < offset):
        return f"the segment ends before offset {offset:,}"
    if batches.latest != timestamp:
        return f"the latest timestamp up to offset {offset:,} is {batches.latest}, not {timestamp}"
    return None


def dump_transaction_index(path: Path) -> Rows:
    """Yield the entries of a `.txnindex`: the aborted transactions."""
    try:
        entries = TxnIndex(Files(), str(path)).all()
    except CorruptIndexError as error:
        yield damage(str(error))
        entries = []
    last = -1
    for entry in entries:
        yield Row("entry", entry._asdict())
        if entry.last_offset < last:
            yield damage(f"the entry that ends at {entry.last_offset:,} comes after {last:,}")
        last = max(last, entry.last_offset)
    yield Row("end", {"entries": len(entries), "damaged": 0})
