"""AddRaftVoter (80) adds a voter to the metadata quorum. KIP-853, KIP-1186."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Int16, Int32, Message, Struct, UInt16, Uuid, since


class AddRaftVoterRequest(Message, key=80, versions="0-1", flexible="0+"):
    """The new voter and its endpoints."""

    cluster_id: str | None = ""
    timeout_ms: Int32 = 0
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO_UUID
    listeners: list[Listener] = []
    ack_when_committed: bool = since(1, default=True)


class Listener(Struct):
    """An element of `AddRaftVoterRequest.listeners`."""

    name: str = ""
    host: str = ""
    port: UInt16 = 0


class AddRaftVoterResponse(Message, key=80, versions="0-1", flexible="0+"):
    """The outcome."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
