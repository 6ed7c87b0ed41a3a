"""Starts a pipeline from the beginning or another place: without its checkpoint, with other committed offsets.

The next run begins at the offsets of `START_FILE` in the new checkpoint, or without that file where its streams say.
Works on checkpoints in directories of this machine. Does not import Spark.

A reset that was interrupted is completed by the next one, with a start of its own. For this, the topics and groups of
the pipeline are in its old checkpoint (NAME.deleted) or in START_FILE, until all groups are changed.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ottla.clients import Admin
from ottla.clients.admin import OffsetSpec
from ottla.clients.admin.core import PartialFailure
from ottla.clients.errors import GroupNotFound
from ottla.common.ids import TopicPartition
from ottla.streams.checkpoint_files import (
    PROGRAM_FILE,
    START_FILE,
    StoredProgram,
    dump_starts,
    load_groups,
    load_starts,
)
from ottla.streams.errors import StreamsError

TABLES: Final = "ottla.table."
"""The beginning of the groups that have the ends of tables; the pipeline and the id of the query follow."""
_QUERY_ID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@dataclass(frozen=True)
class Reset:
    """The changes of a reset."""

    pipeline: str
    checkpoint: Path
    has_checkpoint: bool
    groups: Sequence[str]
    table_groups: Sequence[str] = ()
    """The groups that have the ends of tables, by queries of the old checkpoint."""
    outputs: Sequence[str] = ()
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where the next run begins; nothing: where its streams say."""


def local_path(checkpoint: str) -> Path:
    """Return the directory of a checkpoint on this machine. Raises StreamsError for other file systems."""
    scheme, colon, path = checkpoint.partition(":")
    if not colon or "/" in scheme:
        return Path(checkpoint)
    if scheme == "file":
        return Path("/" + path.lstrip("/"))
    raise StreamsError(
        f"The checkpoint {checkpoint} is not in a directory of this machine. Delete it with the tools of its file "
        "system: then the next run starts where its streams say"
    )


def read_program(checkpoint: Path) -> StoredProgram | None:
    """Return the description of the program in a checkpoint; None if there is none. Raises StreamsError."""
    path = checkpoint / PROGRAM_FILE
    try:
        return StoredProgram.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StreamsError(f"{path}: {error}") from None


@dataclass(frozen=True)
class Remembered:
    """The files of a pipeline."""

    topics: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()


def remember(checkpoint: Path) -> Remembered | None:
    """Return the topics and groups of a pipeline, also after an interrupted reset; None if no file has them.

    Raises StreamsError.
    """
    for directory in (checkpoint, _old(checkpoint)):
        program = read_program(directory)
        if program is not None:
            return Remembered(frozenset(program.sources.values()), frozenset(program.operators))
        path = directory / START_FILE
        try:
            text = path.read_text()
            return Remembered(frozenset(load_starts(text)), frozenset(load_groups(text)))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise StreamsError(f"{path}: {error}") from None
    # The reset has changed all groups before it began to delete the files.
    return Remembered() if _old(checkpoint).exists() else None


def find_table_groups(admin: Admin, pipeline: str) -> list[str]:
    """Return the groups that have the ends of a pipeline's tables. Raises exceptions of clients."""
    name = re.compile(f"{re.escape(TABLES)}{re.escape(pipeline)}\\.{_QUERY_ID}")
    return sorted(each.group_id for each in admin.list_groups() if name.fullmatch(each.group_id))


def find_starts(admin: Admin, topics: Sequence[str], at: OffsetSpec | int) -> dict[TopicPartition, int]:
    """Return an offset in each partition of topics: of an OffsetSpec, or of the first record since a time in ms.

    Without such a record it is the end of the partition. Raises exceptions of clients.
    """
    described = admin.describe_topics(topics)
    partitions = [
        TopicPartition(name, each.partition) for name, topic in described.items() for each in topic.partitions
    ]
    found = {each: listed.offset for each, listed in admin.list_offsets(dict.fromkeys(partitions, at)).items()}
    late = [each for each, offset in found.items() if offset < 0]
    if late:
        ends = admin.list_offsets(dict.fromkeys(late, OffsetSpec.LATEST))
        found |= {each: listed.offset for each, listed in ends.items()}
    return dict(sorted(found.items()))


def execute(admin: Admin, reset: Reset) -> None:
    """Make the changes. After a crash, do it again. Raises exceptions of clients, and OSError."""
    old, new = _old(reset.checkpoint), _new(reset.checkpoint)
    shutil.rmtree(new, ignore_errors=True)
    if reset.has_checkpoint:
        shutil.rmtree(old, ignore_errors=True)
        reset.checkpoint.rename(old)
    if reset.starts:
        _write_starts(reset, new)
    if reset.has_checkpoint or reset.starts:
        # Before offsets change: the old state must not return after a power failure.
        _sync(reset.checkpoint.parent)
    for group in reset.groups:
        _move_group(admin, group, reset.starts)
    for group in reset.table_groups:
        _move_group(admin, group, {})
    # Also the directory of a reset that crashed after its rename.
    if old.exists():
        shutil.rmtree(old)


def _old(checkpoint: Path) -> Path:
    return checkpoint.with_name(f"{checkpoint.name}.deleted")


def _new(checkpoint: Path) -> Path:
    return checkpoint.with_name(f"{checkpoint.name}.new")


def _write_starts(reset: Reset, new: Path) -> None:
    """Create a checkpoint with the file. It is complete or absent, also after a power failure."""
    new.mkdir(parents=True)
    with (new / START_FILE).open("w") as file:
        file.write(dump_starts(reset.starts, reset.groups))
        file.flush()
        os.fsync(file.fileno())
    _sync(new)
    new.rename(reset.checkpoint)


def _sync(directory: Path) -> None:
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _move_group(admin: Admin, group: str, starts: Mapping[TopicPartition, int]) -> None:
    try:
        if starts:
            admin.alter_group_offsets(group, starts)
        else:
            admin.delete_group(group)
    except GroupNotFound:
        return
    except PartialFailure as failure:
        if not all(isinstance(error, GroupNotFound) for error in failure.errors.values()):
            raise
