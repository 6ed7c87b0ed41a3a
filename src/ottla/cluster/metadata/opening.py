"""Opens the metadata directory before the node leads: log, vote, voters, and the first records of a new cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.cluster.metadata import snapshots
from ottla.cluster.metadata.loading import read_synced
from ottla.cluster.metadata.snapshots import SnapshotId, SnapshotWriter
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import METADATA_TOPIC, METADATA_TOPIC_ID, TopicPartition
from ottla.log.config import LogConfig
from ottla.log.context import LogContext
from ottla.log.directory import LogDirectory, Opening
from ottla.log.recovery import open_log
from ottla.metadata.features import KRAFT_VERSION, METADATA_VERSION, bootstrap_records
from ottla.protocol import metadata_records as m
from ottla.raft import Controls, Election, Persist, QuorumConfig, ReplicaKey, Voter, VoterSet, control, quorum_state

if TYPE_CHECKING:
    from ottla.cluster.metadata.options import NodeIdentity
    from ottla.cluster.metadata.snapshotting import MetadataLogSettings
    from ottla.common.clock import Clock
    from ottla.log.files import Files
    from ottla.log.log import Log
    from ottla.protocol.message import Message

logger = logging.getLogger(__name__)

# The level of Kafka 4.3.
NEWEST_KRAFT_VERSION = 1
PARTITION = TopicPartition(METADATA_TOPIC, 0)


def open_metadata_log(directory: str, files: Files, settings: MetadataLogSettings, clock: Clock) -> Log:
    """Open the metadata log in a log directory, or create it. Raises OSError and KafkaError."""
    config = LogConfig(
        segment_bytes=settings.segment_bytes, segment_ms=settings.segment_ms, retention_ms=-1, retention_bytes=-1
    )
    return open_log(
        LogContext(LogDirectory(directory, files), PARTITION, clock=clock),
        config,
        opening=Opening(recovery_point=read_synced(files, f"{directory}/{PARTITION}")),
        topic_id=METADATA_TOPIC_ID,
    )


def check_level(log: Log, controls: Controls) -> None:
    """Raise UNSUPPORTED_VERSION for a log of a quorum whose kraft.version cannot be written here."""
    levels = [record.level for _, record in controls if isinstance(record, control.KRaftVersion)]
    if levels and levels[-1] > NEWEST_KRAFT_VERSION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{KRAFT_VERSION} {levels[-1]} of the metadata in {log.directory} is not among 0 to {NEWEST_KRAFT_VERSION},"
            " which this software can write: newer software wrote this directory and must open it",
        )


def own_quorum(node: NodeIdentity, log: Log, controls: Controls) -> QuorumConfig:
    """A quorum of this node alone. The directory that its log names as the only voter's is this directory.

    Raises INCONSISTENT_VOTER_SET for a log of another quorum.
    """
    static = VoterSet.of([Voter(ReplicaKey(node.node_id))])
    recorded = [record for _, record in controls if isinstance(record, VoterSet)]
    voters = recorded[-1] if recorded else static
    if voters.ids != {node.node_id}:
        raise KafkaError(
            ErrorCode.INCONSISTENT_VOTER_SET,
            f"The metadata in {log.directory} belongs to a quorum of the nodes {sorted(voters.ids)}, and node"
            f" {node.node_id} is configured as a quorum of its own: set controller.quorum.bootstrap.servers",
        )
    voter = voters.get(node.node_id)
    directory_id = voter.key.directory_id if voter is not None and recorded else node.directory_id
    return QuorumConfig(node.node_id, directory_id, node.cluster_id, static_voters=static)


def read_election(log: Log, *, is_only_voter: bool) -> Election:
    """The node's last vote. Raises KAFKA_STORAGE_ERROR if it cannot be read and other voters could notice."""
    path = _election_path(log)
    if not log.files.exists(path):
        return Election()
    try:
        return quorum_state.decode(log.files.read(path).decode())
    except ValueError as error:
        if not is_only_voter:
            # A forgotten vote could elect two leaders in one epoch.
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{path} cannot be read: {error}. Restore it from a copy, or format the node with a new directory",
            ) from error
        # The only voter can have voted only for itself, so that the log's epoch suffices.
        logger.warning("Skipping %s: it cannot be read: %s", path, error)
        return Election()


def write_election(log: Log, effect: Persist) -> None:
    """Write the vote, and sync it."""
    text = quorum_state.encode(effect.election, effect.voters, effect.kraft_version)
    log.files.write_atomically(_election_path(log), text.encode())


def _election_path(log: Log) -> str:
    return f"{log.directory}/{quorum_state.FILE_NAME}"


def first_records(directory: str, files: Files, now_ms: int) -> list[Message]:
    """The first records of a new cluster: from `bootstrap.checkpoint`, or the default ones, which are written there."""
    path = f"{directory}/{snapshots.BOOTSTRAP_FILE}"
    records: list[Message] = []
    if files.exists(path):
        try:
            records = snapshots.parse(files.read(path), path).records
        except snapshots.DamagedSnapshotError as error:
            logger.warning("Skipping %s", error)
    if not any(isinstance(r, m.FeatureLevelRecord) and r.name == METADATA_VERSION for r in records):
        records = bootstrap_records()
        # Not synced: a torn file is skipped and written again until the log itself contains the records.
        files.write(path, _bootstrap_bytes(records, now_ms))
    return records


def _bootstrap_bytes(records: Iterable[Message], now_ms: int) -> bytes:
    writer = SnapshotWriter(SnapshotId(0, 0), ((record, 0) for record in records), {}, now_ms, 0)
    while writer.step():
        pass
    return bytes(writer.data)
