"""Records of control batches: the ends of transactions, and what KRaft writes about itself.

The key of a control record is its version (0) and its type, 16 bits each. KIP-98, KIP-595, KIP-630, KIP-853.
"""

from __future__ import annotations

from ottla.common.control_types import ControlType
from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Int16, Int32, Int64, Message, Struct, UInt16, Uuid, field, since
from ottla.protocol.wire import Buffer, DecodeError


class EndTxnMarker(Message, versions="0"):
    """The body of a control record that commits or aborts a transaction. KIP-98"""

    coordinator_epoch: Int32 = 0


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    """The first record of a KRaft leader's epoch. KIP-595"""

    version: Int16 = 0
    leader_id: Int32 = 0
    voters: list[LeaderChangeVoter] = []
    granting_voters: list[LeaderChangeVoter] = []


class LeaderChangeVoter(Struct):
    """An element of `LeaderChangeMessage.granting_voters` and `LeaderChangeMessage.voters`."""

    voter_id: Int32 = 0
    voter_directory_id: Uuid = since(1)


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    """The first record of a KRaft snapshot. KIP-630"""

    version: Int16 = 0
    last_contained_log_timestamp: Int64 = 0


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    """The last record of a KRaft snapshot. KIP-630"""

    version: Int16 = 0


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    """The version of the KRaft protocol in use. KIP-853"""

    version: Int16 = 0
    kraft_version: Int16 = 0


class VotersRecord(Message, versions="0", flexible="0+"):
    """The voters of a KRaft quorum. KIP-853"""

    version: Int16 = 0
    voters: list[VotersRecordVoter] = []


class VotersRecordVoter(Struct):
    """An element of `VotersRecord.voters`."""

    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO_UUID
    endpoints: list[Endpoint] = []
    kraft_version_feature: KRaftVersionFeature = field()


class Endpoint(Struct):
    """An element of `VotersRecordVoter.endpoints`."""

    name: str = ""
    host: str = ""
    port: UInt16 = 0


class KRaftVersionFeature(Struct):
    """The value of `VotersRecordVoter.kraft_version_feature`."""

    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


BODIES: dict[ControlType, type[Message]] = {
    ControlType.ABORT: EndTxnMarker,
    ControlType.COMMIT: EndTxnMarker,
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}


def encode_control_key(control_type: ControlType) -> bytes:
    """The key of a control record."""
    return b"\0\0" + control_type.to_bytes(2, "big")


def decode_control_key(buffer: Buffer) -> ControlType | None:
    """The type of a control record, or None if it is unknown: skip those. Raises DecodeError."""
    if len(buffer) < 4:
        raise DecodeError(f"A control record's key has 4 bytes, not {len(buffer)}")
    value = int.from_bytes(buffer[2:4], "big", signed=True)
    return ControlType(value) if 0 <= value <= ControlType.KRAFT_VOTERS else None


def decode_marker(buffer: Buffer) -> EndTxnMarker:
    """The value of a transaction's end. Raises DecodeError."""
    return EndTxnMarker.decode_from(buffer, 2, 0)[0]
