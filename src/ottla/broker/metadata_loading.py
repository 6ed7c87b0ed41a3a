"""Read the metadata on disk: the newest whole snapshot, then the log from there on."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ottla.broker import metadata_snapshots as snapshots
from ottla.common.errors import ErrorCode, KafkaError
from ottla.log.log import Log
from ottla.metadata.delta import MetadataDelta, MetadataError
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.protocol.control_records import ControlType, decode_control_key
from ottla.protocol.metadata_records import decode_metadata_record
from ottla.protocol.wire import DecodeError
from ottla.records import Buffer, decode_batch, iter_batches

logger = logging.getLogger(__name__)

READ_SIZE = 8 << 20


@dataclass
class Loaded:
    """What was found."""

    image: MetadataImage
    controls: dict[ControlType, bytes]
    """The latest kraft.version and voters, if the log has such records."""
    snapshot_end: int
    bytes_since_snapshot: int
    last_timestamp_ms: int
    in_transaction: bool
    """The log ends inside a metadata transaction, which must be aborted before anything else is appended."""


def load(log: Log) -> Loaded:
    """Everything up to the end of the log. Raises KAFKA_STORAGE_ERROR if it makes no sense."""
    try:
        return _load(log)
    except (MetadataError, DecodeError) as error:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"The metadata in {log.directory} cannot be read: {error}"
        ) from error


def _load(log: Log) -> Loaded:
    snapshots.remove_leftovers(log.files, log.directory)
    delta = MetadataDelta(EMPTY_IMAGE)
    loaded = Loaded(EMPTY_IMAGE, {}, 0, 0, -1, in_transaction=False)
    offset, epoch = 0, -1
    found = snapshots.newest(log.files, log.directory)
    if found is not None:
        snapshot_id, snapshot = found
        for record in snapshot.records:
            delta.replay(record)
        loaded.controls.update(snapshot.controls)
        loaded.last_timestamp_ms = snapshot.timestamp_ms
        offset, epoch = snapshot_id.end_offset, snapshot_id.epoch
        if log.log_end_offset < offset:
            logger.warning("The metadata log ends at %d, before its snapshot: going on there", log.log_end_offset)
            log.truncate_fully(offset)
    if log.log_start_offset > offset:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"The metadata log in {log.directory} begins at {log.log_start_offset} and no snapshot reaches there",
        )
    loaded.snapshot_end = offset
    while offset < log.log_end_offset:
        data = log.read(offset, READ_SIZE, log.log_end_offset)
        for position, header in iter_batches(data):
            if header.base_offset >= offset:
                _replay(delta, loaded, data, position, is_control=header.is_control)
                loaded.bytes_since_snapshot += header.size
            offset, epoch = header.next_offset, header.partition_leader_epoch
            loaded.last_timestamp_ms = header.max_timestamp
    loaded.image = delta.apply(offset - 1, epoch)
    loaded.in_transaction = delta.in_transaction
    return loaded


def _replay(delta: MetadataDelta, loaded: Loaded, data: Buffer, position: int, *, is_control: bool) -> None:
    for record in decode_batch(data, position):
        if not is_control:
            delta.replay(decode_metadata_record(record.value or b""))
            continue
        kind = decode_control_key(record.key or b"")
        if kind in snapshots.KEPT_CONTROLS:
            loaded.controls[kind] = record.value or b""
