"""The quorum's own records in the log and in snapshots: leader changes, kraft.version, voters. KIP-595, KIP-853.

`encode` and `decode` convert between the values of the core and the key and value of a control record.
"""

from __future__ import annotations

from typing import TypeAlias

from ottla.common.control_types import ControlType
from ottla.common.values import value
from ottla.protocol import control_records as wire
from ottla.protocol.control_records import decode_control_key, encode_control_key
from ottla.protocol.message import Message
from ottla.protocol.wire import Buffer
from ottla.raft.values import Endpoint, ReplicaKey
from ottla.raft.voters import VersionRange, Voter, VoterSet

LEADER_CHANGE_VERSION = 0
"""Kafka 4.3 writes and reads only this version, also with kraft.version 1."""


@value
class LeaderChange:
    """The first record of a leader's epoch."""

    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


@value
class KRaftVersion:
    """The level of kraft.version from this record on."""

    level: int


ControlRecord: TypeAlias = LeaderChange | KRaftVersion | VoterSet


def encode(record: ControlRecord) -> tuple[bytes, bytes]:
    """The key and the value of a control record."""
    message: Message
    if isinstance(record, LeaderChange):
        message = wire.LeaderChangeMessage(
            version=LEADER_CHANGE_VERSION,
            leader_id=record.leader_id,
            voters=[wire.LeaderChangeVoter(voter) for voter in record.voters],
            granting_voters=[wire.LeaderChangeVoter(voter) for voter in record.granting_voters],
        )
        return encode_control_key(ControlType.LEADER_CHANGE), message.encode(LEADER_CHANGE_VERSION)
    if isinstance(record, KRaftVersion):
        message = wire.KRaftVersionRecord(version=0, kraft_version=record.level)
        return encode_control_key(ControlType.KRAFT_VERSION), message.encode(0)
    return encode_control_key(ControlType.KRAFT_VOTERS), _voters_record(record).encode(0)


def decode(key: Buffer, value: Buffer) -> ControlRecord | None:
    """Parse a control record; None for other types, e.g. a snapshot's header. Raises DecodeError."""
    kind = decode_control_key(key)
    if kind is ControlType.LEADER_CHANGE:
        version = int.from_bytes(value[:2], "big")
        change = wire.LeaderChangeMessage.decode(value, min(version, 1))
        return LeaderChange(
            change.leader_id,
            tuple(voter.voter_id for voter in change.voters),
            tuple(voter.voter_id for voter in change.granting_voters),
        )
    if kind is ControlType.KRAFT_VERSION:
        return KRaftVersion(wire.KRaftVersionRecord.decode(value, 0).kraft_version)
    if kind is ControlType.KRAFT_VOTERS:
        return _voter_set(wire.VotersRecord.decode(value, 0))
    return None


def _voters_record(voters: VoterSet) -> wire.VotersRecord:
    return wire.VotersRecord(
        version=0,
        voters=[
            wire.VotersRecordVoter(
                voter_id=voter.key.node_id,
                voter_directory_id=voter.key.directory_id,
                endpoints=[wire.Endpoint(*endpoint) for endpoint in voter.endpoints],
                kraft_version_feature=wire.KRaftVersionFeature(*voter.kraft_versions),
            )
            for voter in voters
        ],
    )


def _voter_set(record: wire.VotersRecord) -> VoterSet:
    return VoterSet.of(
        Voter(
            ReplicaKey(voter.voter_id, voter.voter_directory_id),
            tuple(Endpoint(each.name, each.host, each.port) for each in voter.endpoints),
            VersionRange(
                voter.kraft_version_feature.min_supported_version, voter.kraft_version_feature.max_supported_version
            ),
        )
        for voter in record.voters
    )
