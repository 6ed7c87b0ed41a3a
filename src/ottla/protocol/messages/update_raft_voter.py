"""UpdateRaftVoter (82) renews a voter's endpoints and versions. KIP-853."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Int16, Int32, Message, Struct, UInt16, Uuid, field, tagged


class UpdateRaftVoterRequest(Message, key=82, versions="0", flexible="0+"):
    """A voter reports its endpoints and the kraft.version that it supports."""

    cluster_id: str | None = ""
    current_leader_epoch: Int32 = 0
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO_UUID
    listeners: list[Listener] = []
    kraft_version_feature: KRaftVersionFeature = field()


class Listener(Struct):
    """An element of `UpdateRaftVoterRequest.listeners`."""

    name: str = ""
    host: str = ""
    port: UInt16 = 0


class KRaftVersionFeature(Struct):
    """The value of `UpdateRaftVoterRequest.kraft_version_feature`."""

    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class UpdateRaftVoterResponse(Message, key=82, versions="0", flexible="0+"):
    """The outcome, and the leader of the quorum."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    current_leader: CurrentLeader = tagged(0, 0)


class CurrentLeader(Struct):
    """The value of `UpdateRaftVoterResponse.current_leader`."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1
    host: str = ""
    port: Int32 = 0
