"""RemoveRaftVoter (81) removes a voter from the metadata quorum. KIP-853."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Int16, Int32, Message, Uuid


class RemoveRaftVoterRequest(Message, key=81, versions="0", flexible="0+"):
    """The voter."""

    cluster_id: str | None = ""
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO_UUID


class RemoveRaftVoterResponse(Message, key=81, versions="0", flexible="0+"):
    """The outcome."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
