"""Snapshots of the metadata log on disk: `<end offset>-<epoch>.checkpoint`, as KRaft writes them (KIP-630).

A snapshot is batches like the log's: control records (header; kraft.version and voters if the quorum has them), the
image's records, and a control record at the end. It is written to a `.part` file, synced and renamed. A file with the
final name that has no end was therefore corrupted later; it is skipped and logged. `bootstrap.checkpoint`, with the
first records of a cluster, has the same format.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from ottla.common.control_types import ControlType
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.values import value
from ottla.log.files import Files
from ottla.metadata.features import LATEST_METADATA_VERSION, METADATA_VERSION, METADATA_VERSION_NAMES
from ottla.protocol.control_records import (
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    decode_control_key,
    encode_control_key,
)
from ottla.protocol.message import Message
from ottla.protocol.metadata_records import (
    NEWEST_KNOWN,
    FeatureLevelRecord,
    UnknownRecordError,
    decode_metadata_record,
    encode_metadata_record,
)
from ottla.protocol.wire import DecodeError
from ottla.records import check_crc, decode_batch, encode_batch, iter_batches

logger = logging.getLogger(__name__)

BOOTSTRAP_FILE = "bootstrap.checkpoint"
SUFFIX = ".checkpoint"
PARTIAL_SUFFIX = ".checkpoint.part"
DELETED_SUFFIX = ".checkpoint.deleted"
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_CONTROL = 0x20
RECORDS_IN_BATCH = 2000
RETAINED_CONTROLS = (ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS)


class SnapshotId(NamedTuple):
    """The offset after the last record that the snapshot contains, and that record's epoch."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        """The name of the snapshot's file."""
        return f"{self.end_offset:020d}-{self.epoch:010d}{SUFFIX}"


@value
class Snapshot:
    """The contents of a snapshot file."""

    records: list[Message]
    controls: Mapping[ControlType, bytes]
    """The values of the control records in RETAINED_CONTROLS."""
    timestamp_ms: int
    """The timestamp of the last record that the snapshot contains."""


class DamagedSnapshotError(Exception):
    """A file that is not a whole snapshot."""


def unknown_record(where: str, metadata_version: int, error: UnknownRecordError) -> KafkaError:
    """The error for a record of newer software. Skipping it would lose the change that it describes."""
    name = METADATA_VERSION_NAMES.get(metadata_version, "unknown here")
    return KafkaError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"{error}, at {where}. Software newer than {NEWEST_KNOWN} wrote this record, under metadata.version"
        f" {metadata_version} ({name}). The metadata was not changed. Open the directory with the software that wrote"
        f" it; to use it here, first lower its metadata.version there (kafka-features.sh downgrade --metadata"
        f" {METADATA_VERSION_NAMES[LATEST_METADATA_VERSION]}) and wait for its next metadata snapshot",
    )


class SnapshotWriter:
    """Builds a snapshot's bytes step by step, so that requests are handled between the steps."""

    def __init__(
        self,
        snapshot_id: SnapshotId,
        records: Iterable[tuple[Message, int]],
        controls: Mapping[ControlType, bytes],
        timestamp_ms: int,
        last_timestamp_ms: int,
    ) -> None:
        """`records` are pairs of a record and its version; `last_timestamp_ms` is of the last record in the log."""
        self.snapshot_id = snapshot_id
        self.data = bytearray()
        self._records = iter(records)
        self._timestamp_ms = timestamp_ms
        self._offset = 0
        header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_timestamp_ms)
        first: list[tuple[ControlType, bytes]] = [(ControlType.SNAPSHOT_HEADER, header.encode(0))]
        first += [(kind, controls[kind]) for kind in RETAINED_CONTROLS if kind in controls]
        self._add([(encode_control_key(kind), value) for kind, value in first], _CONTROL)

    def step(self) -> bool:
        """Encode some more records; False when the snapshot is complete."""
        batch: list[tuple[bytes | None, bytes]] = [
            (None, encode_metadata_record(record, version))
            for record, version in islice(self._records, RECORDS_IN_BATCH)
        ]
        if batch:
            self._add(batch, 0)
            return True
        footer = SnapshotFooterRecord(version=0).encode(0)
        self._add([(encode_control_key(ControlType.SNAPSHOT_FOOTER), footer)], _CONTROL)
        return False

    def _add(self, pairs: list[tuple[bytes | None, bytes]], attributes: int) -> None:
        self.data += encode_batch(
            [(self._timestamp_ms, key, value, ()) for key, value in pairs],
            base_offset=self._offset,
            leader_epoch=self.snapshot_id.epoch,
            attributes=attributes,
        )
        self._offset += len(pairs)


def write(files: Files, directory: str, name: str, data: bytes | bytearray) -> None:
    """Write and sync the file `name`; blocking. Raises OSError; no file of that name exists then."""
    partial = f"{directory}/{name}.part"
    files.write(partial, data, sync=True)
    files.rename(partial, f"{directory}/{name}")
    files.fsync_directory(directory)


def parse(data: bytes, name: str) -> Snapshot:
    """Read a snapshot's bytes. Raises DamagedSnapshotError, and UNSUPPORTED_VERSION for records of newer software."""
    try:
        return _parse(data, name)
    except (KafkaError, DecodeError) as error:
        if isinstance(error.__cause__, UnknownRecordError):
            raise
        raise DamagedSnapshotError(f"{name}: {error}") from error


def _parse(data: bytes, name: str) -> Snapshot:
    records: list[Message] = []
    controls: dict[ControlType, bytes] = {}
    timestamp_ms = -1
    ended = False
    end = 0
    for position, header in iter_batches(data):
        if not check_crc(data, position, header.size):
            raise DamagedSnapshotError(f"{name}: the batch at byte {position} has a wrong CRC")
        end = position + header.size
        for record in decode_batch(data, position):
            if not header.is_control:
                try:
                    records.append(decode_metadata_record(record.value or b""))
                except UnknownRecordError as error:
                    # The snapshot is whole. Rejecting it as damaged would silently load an older snapshot.
                    raise unknown_record(f"record {record.offset} of {name}", _level(records), error) from error
                continue
            kind = decode_control_key(record.key or b"")
            if kind is ControlType.SNAPSHOT_HEADER:
                timestamp_ms = SnapshotHeaderRecord.decode(record.value or b"", 0).last_contained_log_timestamp
            elif kind is ControlType.SNAPSHOT_FOOTER:
                ended = True
            elif kind in RETAINED_CONTROLS:
                controls[kind] = record.value or b""
    if not ended or end != len(data):
        raise DamagedSnapshotError(f"{name}: it is cut off after {end} of {len(data)} bytes")
    return Snapshot(records, controls, timestamp_ms)


def _level(records: list[Message]) -> int:
    """The finalized metadata.version in the records; 0 if there is none."""
    levels = [r.feature_level for r in records if isinstance(r, FeatureLevelRecord) and r.name == METADATA_VERSION]
    return levels[-1] if levels else 0


def list_ids(files: Files, directory: str) -> list[SnapshotId]:
    """The snapshots in the directory, oldest first."""
    matches = (_NAME.fullmatch(name) for name in files.list(directory))
    return sorted(SnapshotId(int(match[1]), int(match[2])) for match in matches if match)


def remove_leftovers(files: Files, directory: str) -> None:
    """Remove the files of snapshots that a crash interrupted while they were written or deleted."""
    for name in files.list(directory):
        if name.endswith((PARTIAL_SUFFIX, DELETED_SUFFIX)):
            files.unlink(f"{directory}/{name}")


def newest(files: Files, directory: str) -> tuple[SnapshotId, Snapshot] | None:
    """The newest snapshot that is whole, if there is one."""
    for snapshot_id in reversed(list_ids(files, directory)):
        try:
            return snapshot_id, parse(files.read(f"{directory}/{snapshot_id.file_name}"), snapshot_id.file_name)
        except DamagedSnapshotError as error:
            logger.warning("Skipping the snapshot %s in %s", error, directory)
    return None
