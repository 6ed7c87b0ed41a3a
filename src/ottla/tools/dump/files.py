"""The kind of a file by its name, and the order in which the files of a directory are read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ottla.tools.dump import indices, small_files
from ottla.tools.dump.rows import Rows
from ottla.tools.dump.segment import Depth, dump_segment

_NUMBERED = re.compile(
    r"(\d{20})\.(log|index|timeindex|txnindex|snapshot)(?:\.deleted|\.cleaned|\.swap)?|(\d{20})-(\d{10})\.checkpoint"
)
_ORDER = {"log": 0, "index": 1, "timeindex": 2, "txnindex": 3, "snapshot": 4}
_PARTITION = re.compile(r"(.+)-(\d+)")


class Found(NamedTuple):
    """A readable file. `kind` names its format; `base_offset` comes from its name."""

    path: Path
    kind: str
    base_offset: int = 0


def kind_of(path: Path) -> Found | None:
    """Return the file with its kind; None if the name is unknown."""
    name = path.name
    match = _NUMBERED.fullmatch(name)
    if match:
        if match[3] is not None:
            return Found(path, "metadata snapshot", int(match[3]))
        return Found(path, match[2], int(match[1]))
    if name == "bootstrap.checkpoint":
        return Found(path, "metadata snapshot")
    if name == "leader-epoch-checkpoint":
        return Found(path, "epochs")
    if name in small_files.OFFSETS:
        return Found(path, "offsets")
    return Found(path, "text") if name in small_files.TEXTS else None


def topic_of(path: Path) -> str | None:
    """Return the topic of the partition directory that contains the file."""
    match = _PARTITION.fullmatch(path.resolve().parent.name)
    return match[1] if match else None


def files_below(path: Path) -> Iterator[Found]:
    """Yield the file itself, or the readable files of a directory tree in order, segment by segment.

    Raises OSError.
    """
    if not path.is_dir():
        found = kind_of(path)
        if found is not None:
            yield found
        return
    inside = sorted(path.iterdir(), key=lambda each: _place(each.name))
    for each in inside:
        found = None if each.is_dir() else kind_of(each)
        if found is not None:
            yield found
    for each in inside:
        if each.is_dir() and not each.is_symlink():
            yield from files_below(each)


def _place(name: str) -> tuple[object, ...]:
    match = _NUMBERED.fullmatch(name)
    if match and match[2]:
        return (1, match[1], _ORDER[match[2]], name)
    partition = _PARTITION.fullmatch(name)
    return (0, partition[1], int(partition[2]), name) if partition else (0, name, 0, name)


def dump_file(found: Found, depth: Depth, follows: int | None = None) -> Rows:
    """Yield the rows of a file; with `depth.verify` indices are compared with their segment. Raises OSError."""
    path, kind, base_offset = found
    segment = path.with_name(re.sub(r"\.(index|timeindex)", ".log", path.name))
    beside = segment if depth.verify and segment != path and segment.exists() else None
    if kind == "log":
        yield from dump_segment(path, base_offset, depth, follows)
    elif kind == "metadata snapshot":
        yield from dump_segment(path, None, depth)
    elif kind == "index":
        yield from indices.dump_offset_index(path, base_offset, beside)
    elif kind == "timeindex":
        yield from indices.dump_time_index(path, base_offset, beside)
    elif kind == "txnindex":
        yield from indices.dump_transaction_index(path)
    elif kind == "snapshot":
        yield from small_files.dump_producers(path)
    elif kind == "epochs":
        yield from small_files.dump_epochs(path, verify=depth.verify)
    elif kind == "offsets":
        yield from small_files.dump_offsets(path.parent, path.name)
    else:
        yield from small_files.dump_text(path)
