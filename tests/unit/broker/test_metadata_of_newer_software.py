"""Unknown metadata records stop the start with an explanation; feature levels above the served ones are preserved."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cluster.metadata import snapshots
from ottla.cluster.metadata.log import MetadataShell
from ottla.common.control_types import ControlType
from ottla.common.errors import ErrorCode, KafkaError
from ottla.log.files import Files
from ottla.metadata.features import bootstrap_records
from ottla.protocol import metadata_records as m
from ottla.protocol.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    VotersRecord,
    VotersRecordVoter,
    decode_control_key,
)
from ottla.protocol.message import Message
from ottla.protocol.metadata_records import encode_metadata_record
from ottla.protocol.wire import uvarint
from ottla.records import decode_batch, encode_batch

from .metadata_support import DIRECTORY_ID, create, open_shell, register

LOG = "__cluster_metadata-0"
UNKNOWN_TYPE = uvarint(1) + uvarint(99) + uvarint(0) + b"\x01"
UNKNOWN_VERSION = uvarint(1) + uvarint(0) + uvarint(5) + b"\x01"
UNKNOWN_FRAME = uvarint(2) + uvarint(2) + uvarint(0) + b"\x01"

LEVELS = {
    "metadata.version": 30, "group.version": 1, "transaction.version": 2, "share.version": 1, "streams.version": 2,
    "eligible.leader.replicas.version": 1, "feature.of.the.future": 3,
}  # fmt: skip


def started(directory: Path) -> MetadataShell:
    shell = open_shell(str(directory))
    register(shell)
    return shell


def append(directory: Path, *values: bytes) -> int:
    """Append records as another node would; returns the offset of the first."""
    log = directory / LOG / "00000000000000000000.log"
    shell = open_shell(str(directory))
    offset, epoch = shell.log.log_end_offset, shell.raft.epoch
    shell.close()
    batch = encode_batch([(1, None, value, ()) for value in values], base_offset=offset, leader_epoch=epoch)
    log.write_bytes(log.read_bytes() + batch)
    return offset


def snapshot(records: list[Message], *values: bytes) -> bytes:
    writer = snapshots.SnapshotWriter(snapshots.SnapshotId(0, 0), ((r, 0) for r in records), {}, 1, 1)
    while writer.step():
        if values:
            writer._add([(None, value) for value in values], 0)
    return bytes(writer.data)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (UNKNOWN_TYPE, r"record type 99 \(version 0\) is unknown: Kafka 4.3 has types up to 28"),
        (UNKNOWN_VERSION, "RegisterBrokerRecord version 5 is unknown: Kafka 4.3 has versions 0 to 4"),
        (UNKNOWN_FRAME, "frame version 2 is unknown"),
    ],
    ids=["type", "version", "frame"],
)
def test_unknown_record_in_the_log_is_reported_with_its_offset_and_what_to_do(
    tmp_path: Path, value: bytes, what: str
) -> None:
    started(tmp_path).close()
    offset = append(tmp_path, encode_metadata_record(m.NoOpRecord(), 0), value) + 1
    for _ in range(2):
        with pytest.raises(KafkaError) as error:
            open_shell(str(tmp_path))
        assert error.value.code is ErrorCode.UNSUPPORTED_VERSION
        assert error.match(what)
        assert error.match(rf"at offset {offset} of .*{LOG}.*under metadata\.version 30 \(4\.3-IV0\)")
        assert error.match(r"kafka-features\.sh downgrade --metadata 4\.3-IV0")


def test_unknown_record_in_a_snapshot_is_not_replaced_by_an_older_snapshot(tmp_path: Path) -> None:
    shell = started(tmp_path)
    create(shell, "a")
    shell.close()
    (tmp_path / LOG / "00000000000000000002-0000000001.checkpoint").write_bytes(snapshot(bootstrap_records()))
    newest = "00000000000000000003-0000000001.checkpoint"
    (tmp_path / LOG / newest).write_bytes(snapshot([m.FeatureLevelRecord("metadata.version", 31)], UNKNOWN_TYPE))
    with pytest.raises(KafkaError, match=rf"type 99 .* at record \d of {newest}.*version 31 \(unknown here\)"):
        open_shell(str(tmp_path))


def test_unknown_bootstrap_record_is_not_replaced_by_the_default_ones(tmp_path: Path) -> None:
    path = tmp_path / snapshots.BOOTSTRAP_FILE
    path.write_bytes(content := snapshot(bootstrap_records(), UNKNOWN_TYPE))
    with pytest.raises(KafkaError, match="type 99"):
        open_shell(str(tmp_path))
    assert path.read_bytes() == content


def test_contradictory_record_is_reported_with_its_offset(tmp_path: Path) -> None:
    started(tmp_path).close()
    offset = append(tmp_path, encode_metadata_record(m.RemoveTopicRecord(b"x" * 16), 0))
    with pytest.raises(KafkaError, match=rf"Removal of an unknown topic id 7878\w+, at offset {offset}$"):
        open_shell(str(tmp_path))


def write_kraft_version(directory: Path, level: int) -> None:
    """Write the first snapshot, as `kafka-storage format --standalone` does."""
    voters = VotersRecord(voters=[VotersRecordVoter(voter_id=1, voter_directory_id=DIRECTORY_ID)])
    controls = {
        ControlType.KRAFT_VERSION: KRaftVersionRecord(kraft_version=level).encode(0),
        ControlType.KRAFT_VOTERS: voters.encode(0),
    }
    writer = snapshots.SnapshotWriter(snapshots.SnapshotId(0, 0), ((r, 0) for r in bootstrap_records()), controls, 1, 1)
    while writer.step():
        pass
    (directory / LOG).mkdir()
    (directory / LOG / writer.snapshot_id.file_name).write_bytes(writer.data)


def test_kraft_version_of_newer_software_is_rejected(tmp_path: Path) -> None:
    write_kraft_version(tmp_path, 2)
    with pytest.raises(KafkaError, match=r"kraft\.version 2 of the metadata in .* is not among 0 to 1"):
        open_shell(str(tmp_path))


def test_leader_change_of_a_directory_with_kraft_version_1_is_written_as_kafka_reads_it(tmp_path: Path) -> None:
    write_kraft_version(tmp_path, 1)
    started(tmp_path).close()
    data = (tmp_path / LOG / "00000000000000000000.log").read_bytes()
    (record,) = decode_batch(data, 0)
    assert decode_control_key(record.key or b"") is ControlType.LEADER_CHANGE
    change, end = LeaderChangeMessage.decode_from(record.value or b"", 0, 0)
    assert (change.version, [voter.voter_id for voter in change.voters], end) == (0, [1], len(record.value or b""))


def test_levels_of_stock_kafka_survive_starts_and_snapshots(tmp_path: Path) -> None:
    Files().write(
        str(tmp_path / snapshots.BOOTSTRAP_FILE),
        snapshot([m.FeatureLevelRecord(name, level) for name, level in LEVELS.items()]),
    )
    for _ in range(2):
        shell = started(tmp_path)
        assert shell.image.features == LEVELS
        served = {name: high for name, _, high in shell.image.brokers[1].features}
        assert (served["group.version"], served["streams.version"], served["transaction.version"]) == (1, 1, 2)
        shell.begin_snapshot()
        for _ in range(5):
            shell.tick()
        shell.close()
    newest = snapshots.newest(Files(), str(tmp_path / LOG))
    assert newest is not None
    levels = [record for record in newest[1].records if isinstance(record, m.FeatureLevelRecord)]
    assert {record.name: record.feature_level for record in levels} == LEVELS
