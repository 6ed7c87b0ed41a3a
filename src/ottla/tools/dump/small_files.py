"""Checkpoints, producer snapshots and the small text files of log directories as rows."""

from __future__ import annotations

from pathlib import Path

from ottla.log import checkpoints, epoch_check, epochs
from ottla.log.files import Files
from ottla.log.producer_snapshot import CorruptSnapshotError, decode_snapshot
from ottla.tools.dump.rows import Row, Rows, damage

_LARGEST = 256 << 20
OFFSETS = frozenset(
    {
        checkpoints.RECOVERY_POINTS,
        checkpoints.LOG_STARTS,
        checkpoints.HIGH_WATERMARKS,
        checkpoints.CLEANER_OFFSETS,
    }
)
TEXTS = frozenset({"meta.properties", checkpoints.PARTITION_METADATA, "quorum-state", ".kafka_cleanshutdown"})


def dump_offsets(directory: Path, name: str) -> Rows:
    """Yield the rows of a checkpoint with offsets by partition."""
    try:
        rows = checkpoints.read_offsets(Files(), str(directory), name)
    except checkpoints.CorruptCheckpointError as error:
        yield damage(str(error))
        return
    for tp, offset in rows.items():
        yield Row("entry", {"topic": tp.topic, "partition": tp.partition, "offset": offset})
    yield Row("end", {"entries": len(rows)})


def dump_epochs(path: Path, *, verify: bool = False) -> Rows:
    """Yield the rows of a leader-epoch checkpoint; `verify` compares it with the batches of its directory."""
    try:
        rows = epochs.read_entries(Files(), str(path))
    except (checkpoints.CorruptCheckpointError, ValueError) as error:
        yield damage(str(error))
        return
    before = (-1, -1)
    bad = 0
    for epoch, start in rows:
        yield Row("entry", {"leader_epoch": epoch, "start_offset": start})
        if epoch <= before[0] or start <= before[1]:
            yield damage(f"the epoch {epoch} from {start:,} on is not greater than the previous entry")
            bad += 1
        before = (epoch, start)
    problem = None
    if verify and not bad:
        entries = [epochs.EpochEntry(*row) for row in rows]
        problem = epoch_check.disagreement_in(Files(), str(path.parent), entries)
    if problem is not None:
        yield damage(problem)
        bad += 1
    yield Row("end", {"entries": len(rows), "damaged": bad})


def dump_producers(path: Path) -> Rows:
    """Yield the rows of a producer snapshot of a partition."""
    try:
        entries = decode_snapshot(_read(path))
    except CorruptSnapshotError as error:
        yield damage(str(error))
        return
    for entry in entries:
        yield Row(
            "entry",
            {
                "producer_id": entry.producer_id,
                "producer_epoch": entry.epoch,
                "last_sequence": entry.last_sequence,
                "last_offset": entry.last_offset,
                "last_timestamp": entry.last_timestamp,
                "coordinator_epoch": entry.coordinator_epoch,
                "transaction_start": None if entry.transaction_start < 0 else entry.transaction_start,
            },
        )
    yield Row("end", {"entries": len(entries)})


def dump_text(path: Path) -> Rows:
    """Yield the lines of a small text file."""
    for line in _read(path).decode("utf-8", "replace").splitlines():
        yield Row("line", {"text": line})


def _read(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(_LARGEST)
