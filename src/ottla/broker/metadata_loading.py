"""Loads the metadata from disk: the newest whole snapshot, then the log after it.

A record that cannot be replayed stops the load: the error names its offset and what to do.

A crash may lose the end of the log, which was not synced and not acknowledged. The file `synced-offset` contains a
lower bound of the synced offset, and is written from time to time. Missing or wrong bytes before that offset mean that
acknowledged metadata is corrupt. The load then fails instead of continuing without it.
"""

from __future__ import annotations

import logging

from ottla.broker import metadata_snapshots as snapshots
from ottla.common.errors import ErrorCode, KafkaError
from ottla.log.files import Files
from ottla.log.log import Log
from ottla.metadata.delta import MetadataDelta, MetadataError
from ottla.metadata.image import EMPTY_IMAGE
from ottla.protocol.control_records import ControlType, decode_control_key
from ottla.protocol.metadata_records import UnknownRecordError, decode_metadata_record
from ottla.protocol.wire import DecodeError
from ottla.records import Buffer, check_crc, decode_batch, iter_batches
from ottla.records.checksum import crc32c

logger = logging.getLogger(__name__)

READ_SIZE = 8 << 20
SYNCED = "synced-offset"


class Loaded:
    """The result of a load."""

    def __init__(self) -> None:
        self.image = EMPTY_IMAGE
        # The latest kraft.version and voters, if the log has such records.
        self.controls: dict[ControlType, bytes] = {}
        self.snapshot_end = 0
        self.bytes_since_snapshot = 0
        self.last_timestamp_ms = -1
        # True if the log ends inside a metadata transaction, which must be aborted before the next append.
        self.in_transaction = False


def load(log: Log) -> Loaded:
    """Load the metadata up to the end of the log. Raises KAFKA_STORAGE_ERROR if a record is invalid."""
    try:
        return _load(log)
    except (MetadataError, DecodeError) as error:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"The metadata in {log.directory} cannot be read: {error}"
        ) from error


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
    text = b"%d" % offset
    path = f"{directory}/{SYNCED}"
    files.write(path + ".tmp", text + b" %08x" % crc32c(text))
    files.rename(path + ".tmp", path)


def _load(log: Log) -> Loaded:
    snapshots.remove_leftovers(log.files, log.directory)
    delta = MetadataDelta(EMPTY_IMAGE)
    loaded = Loaded()
    offset, epoch = 0, -1
    found = snapshots.newest(log.files, log.directory)
    if found is not None:
        snapshot_id, snapshot = found
        for position, record in enumerate(snapshot.records):
            try:
                delta.replay(record)
            except MetadataError as error:
                raise MetadataError(f"{error}, at record {position} of {snapshot_id.file_name}") from error
        loaded.controls.update(snapshot.controls)
        loaded.last_timestamp_ms = snapshot.timestamp_ms
        offset, epoch = snapshot_id.end_offset, snapshot_id.epoch
        if log.log_end_offset < offset:
            logger.warning(
                "The metadata log ends at offset %d, before its snapshot; continuing at the snapshot's end",
                log.log_end_offset,
            )
            log.truncate_fully(offset)
    if log.log_start_offset > offset:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"The metadata log in {log.directory} begins at {log.log_start_offset} and no snapshot reaches there",
        )
    loaded.snapshot_end = offset
    synced = read_synced(log.files, log.directory)
    if log.log_end_offset < synced:
        raise corrupt_log(log, log.log_end_offset)
    while offset < log.log_end_offset:
        data = log.read(offset, READ_SIZE, log.log_end_offset)
        before = offset
        for position, header in iter_batches(data):
            if header.base_offset > offset:
                break
            if not check_crc(data, position, header.size):
                raise corrupt_log(log, header.base_offset)
            if header.base_offset >= offset:
                _replay(log, delta, loaded, data, position, is_control=header.is_control)
                loaded.bytes_since_snapshot += header.size
            offset, epoch = header.next_offset, header.partition_leader_epoch
            loaded.last_timestamp_ms = header.max_timestamp
        if offset == before:  # this log is never compacted: a gap in the offsets is a loss
            raise corrupt_log(log, offset)
    loaded.image = delta.apply(offset - 1, epoch)
    loaded.in_transaction = delta.in_transaction
    return loaded


def _replay(log: Log, delta: MetadataDelta, loaded: Loaded, data: Buffer, position: int, *, is_control: bool) -> None:
    for record in decode_batch(data, position):
        if not is_control:
            try:
                delta.replay(decode_metadata_record(record.value or b""))
            except UnknownRecordError as error:
                where = f"offset {record.offset} of {log.directory}"
                raise snapshots.unknown_record(where, delta.metadata_version, error) from error
            except (MetadataError, DecodeError) as error:
                raise MetadataError(f"{error}, at offset {record.offset}") from error
            continue
        kind = decode_control_key(record.key or b"")
        if kind in snapshots.RETAINED_CONTROLS:
            loaded.controls[kind] = record.value or b""
