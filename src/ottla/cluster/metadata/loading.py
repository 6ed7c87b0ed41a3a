"""Reads the metadata log at the start: the newest whole snapshot, and the control records in and after it.

The records after the snapshot are only checked here: a replica learns from the quorum which of them are committed
(`quorum/replay.py`).

A crash may lose the end of the log, which was not synced and not acknowledged. The file `synced-offset` contains a
lower bound of the synced offset, and is written from time to time. Missing or wrong bytes before that offset mean that
acknowledged metadata is corrupt. The load then fails instead of continuing without it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.cluster.metadata import snapshots
from ottla.common.errors import ErrorCode, KafkaError
from ottla.log.files import Files
from ottla.log.log import Log
from ottla.metadata.delta import MetadataDelta, MetadataError
from ottla.metadata.image import EMPTY_IMAGE
from ottla.protocol.control_records import encode_control_key
from ottla.protocol.wire import DecodeError
from ottla.raft import Controls, VoterSet, control
from ottla.records import Buffer, check_crc, decode_batch, iter_batches
from ottla.records.checksum import crc32c

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataImage

logger = logging.getLogger(__name__)

READ_SIZE = 8 << 20
SYNCED = "synced-offset"


class Loaded:
    """The result of a load: the image of the snapshot, and what the log after it says about the quorum."""

    def __init__(self) -> None:
        self.image = EMPTY_IMAGE
        # The kraft.version and voters of the snapshot and of the log after it, with their offsets.
        self.controls: list[tuple[int, control.KRaftVersion | VoterSet]] = []
        self.snapshot_end = 0
        self.bytes_since_snapshot = 0
        self.last_timestamp_ms = -1


def load(log: Log) -> Loaded:
    """Load the newest snapshot, and check the log after it. Raises KAFKA_STORAGE_ERROR if either is invalid."""
    try:
        return _load(log)
    except (MetadataError, DecodeError) as error:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"The metadata in {log.directory} cannot be read: {error}"
        ) from error


def load_or_start_over(log: Log) -> Loaded:
    """Load as `load` does, but empty a log that cannot be read: this node fetches all of it again.

    Only for a node that cannot be a voter: a voter that forgot its log could elect a leader without committed records.
    For that reason it does not fetch a snapshot in place of a damaged one either, which begins with an empty log. A
    Kafka controller stops, too. A snapshot of another controller has only committed records, so that an operator can
    copy it.
    """
    try:
        return load(log)
    except KafkaError as error:
        if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
            raise
        logger.warning("Fetching all metadata again from the controllers: %s", error)
    lower_synced(log, 0)
    for snapshot_id in snapshots.list_ids(log.files, log.directory):
        log.files.unlink(f"{log.directory}/{snapshot_id.file_name}")
    log.truncate_fully(0)
    return load(log)


def corrupt_log(log: Log, offset: int) -> KafkaError:
    """Acknowledged metadata is corrupt or missing: only an operator may decide to continue without it."""
    return KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"The metadata log in {log.directory} is corrupt at offset {offset}, which was synced: restore the directory"
        f" from a copy. To continue with the records before that offset, remove {SYNCED} and the rest of the log",
    )


def read_synced(files: Files, directory: str) -> int:
    """Return an offset up to which the log was synced; 0 if it is unknown."""
    path = f"{directory}/{SYNCED}"
    if not files.exists(path):
        return 0
    text, _, checksum = files.read(path).partition(b" ")
    return int(text) if text.isdigit() and checksum == b"%08x" % crc32c(text) else 0


def write_synced(files: Files, directory: str, offset: int) -> None:
    """Record that the log is synced up to `offset`. The file itself is not synced: an older value is also valid."""
    path = f"{directory}/{SYNCED}"
    files.write(path + ".tmp", _synced_text(offset))
    files.rename(path + ".tmp", path)


def _synced_text(offset: int) -> bytes:
    text = b"%d" % offset
    return text + b" %08x" % crc32c(text)


def lower_synced(log: Log, offset: int) -> None:
    """Before a truncation to `offset`, record durably that the log need not be longer any more."""
    if read_synced(log.files, log.directory) > offset:
        log.files.write_atomically(f"{log.directory}/{SYNCED}", _synced_text(offset))


def controls_of(pairs: Iterable[tuple[bytes, bytes]], offset: int) -> Controls:
    """The kraft.version and voters among control records, given as keys and values, at one offset."""
    decoded = (control.decode(key, value) for key, value in pairs)
    return tuple((offset, each) for each in decoded if isinstance(each, control.KRaftVersion | VoterSet))


def controls_in(data: Buffer, position: int) -> Controls:
    """The kraft.version and voters in the control batch at `position`, with their offsets."""
    return tuple(
        each
        for record in decode_batch(data, position)
        for each in controls_of([(record.key or b"", record.value or b"")], record.offset)
    )


def snapshot_image(snapshot: snapshots.Snapshot, snapshot_id: snapshots.SnapshotId) -> MetadataImage:
    """The image of a snapshot. Raises MetadataError."""
    delta = MetadataDelta(EMPTY_IMAGE)
    for position, record in enumerate(snapshot.records):
        try:
            delta.replay(record)
        except MetadataError as error:
            raise MetadataError(f"{error}, at record {position} of {snapshot_id.file_name}") from error
    return delta.apply(snapshot_id.end_offset - 1, snapshot_id.epoch)


def snapshot_controls(snapshot: snapshots.Snapshot, snapshot_id: snapshots.SnapshotId) -> Controls:
    """The kraft.version and voters of a snapshot, at the offset of its last record."""
    pairs = ((encode_control_key(kind), value) for kind, value in sorted(snapshot.controls.items()))
    return controls_of(pairs, snapshot_id.end_offset - 1)


def _load(log: Log) -> Loaded:
    snapshots.remove_leftovers(log.files, log.directory)
    loaded = Loaded()
    found = snapshots.newest(log.files, log.directory)
    if found is not None:
        snapshot_id, snapshot = found
        loaded.image = snapshot_image(snapshot, snapshot_id)
        loaded.controls += snapshot_controls(snapshot, snapshot_id)
        loaded.last_timestamp_ms = snapshot.timestamp_ms
        loaded.snapshot_end = snapshot_id.end_offset
        if log.log_end_offset < snapshot_id.end_offset:
            logger.warning(
                "The metadata log ends at offset %d, before its snapshot; continuing at the snapshot's end",
                log.log_end_offset,
            )
            log.truncate_fully(snapshot_id.end_offset)
    if log.log_start_offset > loaded.snapshot_end:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"The metadata log in {log.directory} begins at {log.log_start_offset} and no snapshot reaches there:"
            " copy a .checkpoint file with at least that offset from the same directory of another controller."
            " Without one, restore the directory from a copy, or format the node with a new one",
        )
    synced = read_synced(log.files, log.directory)
    if log.log_end_offset < synced:
        raise corrupt_log(log, log.log_end_offset)
    _check_log(log, loaded)
    return loaded


def _check_log(log: Log, loaded: Loaded) -> None:
    """Check the batches after the snapshot, and collect their control records."""
    offset = loaded.snapshot_end
    while offset < log.log_end_offset:
        data = log.read(offset, READ_SIZE, log.log_end_offset)
        before = offset
        for position, header in iter_batches(data):
            if header.base_offset > offset:
                break
            if not check_crc(data, position, header.size):
                raise corrupt_log(log, header.base_offset)
            if header.base_offset >= offset:
                loaded.bytes_since_snapshot += header.size
                if header.is_control:
                    loaded.controls += controls_in(data, position)
            offset = header.next_offset
            loaded.last_timestamp_ms = header.max_timestamp
        if offset == before:  # this log is never compacted: a gap in the offsets is a loss
            raise corrupt_log(log, offset)
