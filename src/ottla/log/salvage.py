"""Copies of bytes that a repair takes out of a log: beside their segment, until an operator deletes them.

Rule: no repair changes or removes bytes of a segment without a copy, which is on disk before the change. Exception:
bytes that were not synced and have no batch with a right CRC, such as half a batch or zeros after a power cut.

- `<base offset>.log.<position>-<n>.replaced`: the former batch header at a position of a segment.
- `<base offset>.log.<position>-<n>.removed`: the bytes of a segment from a position on, or, from 0 on, all of it.

The loaders of Kafka and of Ottla ignore both names. They are deleted with their partition, copied when it moves to
another log directory, and are no part of the size of the log. All copies of a partition together take at most
`MOST_BYTES`, or what the latest repair took out: a broker that crashes again and again must not fill its disk. The
oldest are deleted first.
"""

from __future__ import annotations

import logging
import re

from ottla.log.files import Files
from ottla.log.segment import Segment

logger = logging.getLogger(__name__)

REPLACED, REMOVED = ".replaced", ".removed"
MOST_BYTES = 1 << 30
# A small copy counts this many bytes, so that the number of copies is bounded, too.
_LEAST_COUNTED = 1 << 20
_CHUNK = 1 << 20
_NAME = r"\d{20}\.log\.\d+-(?P<number>\d+)\.(?:replaced|removed)"


def is_copy(name: str) -> bool:
    """Whether a file of a partition's directory is a copy of bytes that a repair took out."""
    return re.fullmatch(_NAME, name) is not None


def save_bytes(segment: Segment, start: int, end: int, kind: str) -> str:
    """Copy a range of a segment durably; return the path of the copy. Raises OSError."""
    files = segment.file.files
    path = _new_path(segment, start, kind)
    target = files.open(path, create=True, truncate=True)
    try:
        for position in range(start, end, _CHUNK):
            data = files.pread(segment.file.open(), min(_CHUNK, end - position), position)
            files.pwrite(target, data, position - start)
        files.fsync(target)
    finally:
        files.close(target)
    files.fsync_directory(segment.file.directory)
    return path


def save_segment(segment: Segment) -> str:
    """Rename the log file of a closed segment, which leaves the log; return its new path. Raises OSError."""
    path = _new_path(segment, 0, REMOVED)
    segment.file.files.rename(segment.file.path(), path)
    return path


def _new_path(segment: Segment, position: int, kind: str) -> str:
    number = max(_copies_in(segment.file.files, segment.file.directory), default=(0, ""))[0] + 1
    return f"{segment.file.directory}/{segment.base_offset:020d}.log.{position}-{number}{kind}"


def _copies_in(files: Files, directory: str) -> list[tuple[int, str]]:
    """Number and name of each copy, oldest first."""
    names = files.list(directory)
    return sorted((int(found["number"]), name) for name in names if (found := re.fullmatch(_NAME, name)))


def limit(files: Files, directory: str, newest: set[str]) -> None:
    """Delete the oldest copies in a partition's directory, but none of `newest`, while all take too much space."""
    found = _copies_in(files, directory)
    sizes = {name: max(files.size(f"{directory}/{name}"), _LEAST_COUNTED) for _, name in found}
    excess = sum(sizes.values()) - MOST_BYTES
    for _, name in found:
        path = f"{directory}/{name}"
        if excess > 0 and path not in newest:
            logger.warning("Deleting %s: the copies of repaired bytes take more than %d bytes", path, MOST_BYTES)
            files.unlink(path)
            excess -= sizes[name]


def copy_all(source: Files, from_directory: str, target: Files, to_directory: str) -> None:
    """Copy all copies to the directory of a log that moves, durably; existing copies are skipped."""
    for name in source.list(from_directory):
        path = f"{to_directory}/{name}"
        if is_copy(name) and not target.exists(path):
            _copy_file(source, f"{from_directory}/{name}", target, path)


def _copy_file(source: Files, old: str, target: Files, new: str) -> None:
    temporary = f"{new}.tmp"
    reading = source.open(old, read_only=True)
    try:
        writing = target.open(temporary, create=True, truncate=True)
        try:
            for position in range(0, source.length(reading), _CHUNK):
                target.pwrite(writing, source.pread(reading, _CHUNK, position), position)
            target.fsync(writing)
        finally:
            target.close(writing)
    finally:
        source.close(reading)
    target.rename(temporary, new)
    target.fsync_directory(new.rpartition("/")[0])
