"""Formats the log directories of a node, as `kafka-storage format` does; either program opens what the other wrote.

Each directory gets `bootstrap.checkpoint` (the feature levels of a new cluster) and `meta.properties`. The directory of
the metadata log also gets the first snapshot with kraft.version 1 and the voters, if they are named (KIP-853).
`meta.properties` is written last: after a crash the directory is not formatted, and formatting it again completes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ottla.cluster.metadata import snapshots
from ottla.cluster.metadata.snapshots import SnapshotId, SnapshotWriter
from ottla.common.control_types import ControlType
from ottla.common.ids import METADATA_TOPIC, Uuid, uuid_from_text
from ottla.config.listeners import IN_BRACKETS
from ottla.log.creation import removed_if_refused
from ottla.log.files import Files
from ottla.log.storage import MetaProperties, StorageError, check_meta, read_meta, write_meta
from ottla.metadata.features import (
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_NAMES,
    SUPPORTED_FEATURES,
    bootstrap_records,
    default_levels,
    feature_dependency,
    metadata_version_of,
)
from ottla.protocol.message import Message
from ottla.raft import Endpoint, ReplicaKey, Voter, VoterSet, control
from ottla.raft.voters import DYNAMIC_VOTERS, VersionRange

_CONTROLLER = rf"(\d{{1,10}})@(?:{IN_BRACKETS}|([^:/\[\],@]+)):(\d{{1,5}}):([A-Za-z0-9_-]{{22}})"

_FIRST = SnapshotId(0, 0)
_METADATA = f"{METADATA_TOPIC}-0"
# The files of a formatted directory besides `meta.properties`; a directory is after its files.
_OTHER_FILES = (snapshots.BOOTSTRAP_FILE, f"{_METADATA}/{_FIRST.file_name}", _METADATA)


@dataclass(frozen=True, slots=True)
class NodeFormat:
    """The identity of a node, and the first metadata of its cluster."""

    node_id: int
    cluster_id: str
    directories: Sequence[str]
    metadata_directory: str
    levels: Mapping[str, int] = field(default_factory=default_levels)
    """Level of each feature; the leader of a new quorum writes the levels of its own directory."""
    voters: VoterSet | None = None
    """The first voters; None if the settings or other nodes name them."""
    records: Sequence[Message] = ()
    """Records of the first metadata besides the levels, such as credentials."""


def feature_levels(release: str | None, features: Sequence[str]) -> dict[str, int]:
    """The levels of a new cluster, from `--release-version` and `--feature NAME=LEVEL`. Raises StorageError.

    kraft.version is checked and omitted: the snapshot with the voters has it.
    """
    given = dict(map(_feature, features))
    if METADATA_VERSION in given and release is not None:
        raise StorageError("Use --release-version instead of --feature metadata.version=X to avoid ambiguity.")
    level = given.pop(METADATA_VERSION, None)
    if level is None and release is not None:
        level = metadata_version_of(release)
    elif level is None:
        level = max(METADATA_VERSION_NAMES)
    if level not in METADATA_VERSION_NAMES:
        known = ", ".join(METADATA_VERSION_NAMES.values())
        raise StorageError(f"Unknown metadata.version '{release}'. Supported metadata.version are: {known}")
    given.pop(KRAFT_VERSION, None)
    for name, wanted in given.items():
        needs = feature_dependency(name, wanted)
        if needs > level:
            raise StorageError(
                f"{name} could not be set to {wanted} because it depends on metadata.version level {needs}"
            )
    return default_levels(level) | given


def _feature(text: str) -> tuple[str, int]:
    name, _, level = text.partition("=")
    name = name.strip()
    if not re.fullmatch(r"\s*\d{1,5}\s*", level):
        raise StorageError(f"Can't parse feature=level string {text}: unable to parse {level} as a short.")
    if name not in SUPPORTED_FEATURES:
        others = ", ".join(sorted(SUPPORTED_FEATURES.keys() - {METADATA_VERSION}))
        raise StorageError(f"Unsupported feature: {name}. Supported features are: {others}")
    lowest, highest = SUPPORTED_FEATURES[name]
    if name == KRAFT_VERSION:
        highest = DYNAMIC_VOTERS
    if not lowest <= int(level) <= highest:
        raise StorageError(f"No feature:{name} with feature level {int(level)}: {lowest} to {highest} are supported")
    return name, int(level)


def parse_controllers(text: str, listener: str) -> VoterSet:
    """The voters in `ID@HOST:PORT:DIRECTORY-ID,...`, the value of `--initial-controllers`. Raises ValueError."""
    voters = [_controller(entry.strip(), listener) for entry in text.split(",")]
    twice = {voter.key.node_id for voter in voters if sum(each.key.node_id == voter.key.node_id for each in voters) > 1}
    if twice:
        raise ValueError(f"node {min(twice)} is named twice")
    return VoterSet.of(voters)


def _controller(text: str, listener: str) -> Voter:
    match = re.fullmatch(_CONTROLLER, text)
    if not match or int(match[4]) > 65535:
        raise ValueError(f"{text!r} is not of the form ID@HOST:PORT:DIRECTORY-ID")
    return voter(int(match[1]), uuid_from_text(match[5]), Endpoint(listener, match[2] or match[3], int(match[4])))


def voter(node_id: int, directory_id: Uuid, endpoint: Endpoint) -> Voter:
    """A voter of a new dynamic quorum."""
    return Voter(ReplicaKey(node_id, directory_id), (endpoint,), VersionRange(0, DYNAMIC_VOTERS))


def format_node(
    files: Files, node: NodeFormat, random_uuid: Callable[[], Uuid], now_ms: int, *, ignore_formatted: bool = False
) -> dict[str, MetaProperties]:
    """Format each directory of the node, and return the identity of the new ones.

    Raises StorageError if a directory belongs to another node or cluster, or is formatted without `ignore_formatted`,
    and OSError. Then nothing new is left.
    """
    found = {each: read_meta(files, each) if files.is_directory(each) else None for each in node.directories}
    for directory, meta in found.items():
        if meta is not None and not ignore_formatted:
            raise StorageError(f"Log directory {directory} is already formatted; use --ignore-formatted to skip it")
        if meta is not None:
            check_meta(meta, directory, node.cluster_id, node.node_id)
    new = [directory for directory, meta in found.items() if meta is None]
    with removed_if_refused(files, new, _OTHER_FILES):
        return {directory: _format(files, node, directory, random_uuid, now_ms) for directory in new}


def _format(
    files: Files, node: NodeFormat, directory: str, random_uuid: Callable[[], Uuid], now_ms: int
) -> MetaProperties:
    is_metadata = directory == node.metadata_directory
    own = node.voters.get(node.node_id) if is_metadata and node.voters is not None else None
    directory_id = own.key.directory_id if own is not None else random_uuid()
    files.make_directory(directory)
    records = [*bootstrap_records(node.levels), *node.records]
    bootstrap = SnapshotWriter(_FIRST, ((record, 0) for record in records), {}, now_ms, 0)
    snapshots.write(files, directory, snapshots.BOOTSTRAP_FILE, _finished(bootstrap))
    if is_metadata and node.voters is not None:
        _write_voters(files, directory, node.voters, now_ms)
    meta = MetaProperties(node.cluster_id, node.node_id, directory_id)
    write_meta(files, directory, meta)
    return meta


def _write_voters(files: Files, directory: str, voters: VoterSet, now_ms: int) -> None:
    controls = {
        ControlType.KRAFT_VERSION: control.encode(control.KRaftVersion(DYNAMIC_VOTERS))[1],
        ControlType.KRAFT_VOTERS: control.encode(voters)[1],
    }
    log_directory = f"{directory}/{_METADATA}"
    files.make_directory(log_directory)
    files.fsync_directory(directory)
    snapshots.write(
        files, log_directory, _FIRST.file_name, _finished(SnapshotWriter(_FIRST, (), controls, now_ms, now_ms))
    )


def _finished(writer: SnapshotWriter) -> bytes:
    while writer.step():
        pass
    return bytes(writer.data)
