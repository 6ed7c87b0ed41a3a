"""Requests and responses of the quorum, without the fields that are the same for each: topic, partition, versions.

`wire` converts them to and from Kafka's messages in every version. A response always names the responder's epoch and,
if known, the epoch's leader with its endpoints.
"""

from __future__ import annotations

from typing import TypeAlias

from ottla.common.errors import ErrorCode
from ottla.common.values import value
from ottla.raft.values import NO_NODE, NO_SNAPSHOT, Endpoints, LogEnd, ReplicaKey, SnapshotId
from ottla.raft.voters import VersionRange

UNKNOWN_HIGH_WATERMARK = -1

# -- requests --------------------------------------------------------------------------------------------------------


@value
class VoteRequest:
    """A candidate asks a voter for its vote. A pre-vote asks whether it would get it, in its present epoch."""

    cluster_id: str | None
    voter: ReplicaKey | None
    candidate: ReplicaKey
    epoch: int
    end: LogEnd
    pre_vote: bool


@value
class BeginQuorumEpochRequest:
    """A leader announces itself to a voter."""

    cluster_id: str | None
    voter: ReplicaKey | None
    leader_id: int
    epoch: int
    endpoints: Endpoints


@value
class EndQuorumEpochRequest:
    """A leader resigns, and names the voters that should succeed it, the best first."""

    cluster_id: str | None
    leader_id: int
    epoch: int
    preferred: tuple[ReplicaKey, ...]
    endpoints: Endpoints


@value
class FetchRequest:
    """A replica fetches the records after `end`, up to which its log is on disk."""

    cluster_id: str | None
    replica: ReplicaKey
    epoch: int
    end: LogEnd
    high_watermark: int
    max_wait_ms: int
    max_bytes: int


@value
class FetchSnapshotRequest:
    """A replica fetches the bytes of a snapshot from `position` on."""

    cluster_id: str | None
    replica: ReplicaKey
    epoch: int
    snapshot: SnapshotId
    position: int
    max_bytes: int


@value
class AddVoterRequest:
    """Add a voter that already fetches as an observer."""

    cluster_id: str | None
    timeout_ms: int
    voter: ReplicaKey
    endpoints: Endpoints
    ack_when_committed: bool = True


@value
class RemoveVoterRequest:
    """Remove a voter."""

    cluster_id: str | None
    voter: ReplicaKey


@value
class UpdateVoterRequest:
    """A voter reports its endpoints and versions to the leader."""

    cluster_id: str | None
    epoch: int
    voter: ReplicaKey
    endpoints: Endpoints
    kraft_versions: VersionRange


@value
class ApiVersionsRequest:
    """The leader asks a future voter which levels of kraft.version it supports."""


# -- responses -------------------------------------------------------------------------------------------------------


@value
class VoteResponse:
    """Whether the vote was granted."""

    error: ErrorCode = ErrorCode.NONE
    epoch: int = 0
    leader_id: int = NO_NODE
    leader_endpoints: Endpoints = ()
    granted: bool = False


@value
class QuorumEpochResponse:
    """The response to BeginQuorumEpoch and EndQuorumEpoch."""

    error: ErrorCode = ErrorCode.NONE
    epoch: int = 0
    leader_id: int = NO_NODE
    leader_endpoints: Endpoints = ()


@value
class FetchResponse:
    """Records, or why there are none. With `has_records`, the shell adds the records from the request's offset on."""

    error: ErrorCode = ErrorCode.NONE
    epoch: int = 0
    leader_id: int = NO_NODE
    leader_endpoints: Endpoints = ()
    high_watermark: int = UNKNOWN_HIGH_WATERMARK
    log_start_offset: int = 0
    diverging: LogEnd | None = None
    """Where the epoch ends in the leader's log. The replica truncates its log there and fetches again."""
    snapshot: SnapshotId | None = None
    """The replica fetches this snapshot first."""
    has_records: bool = False


@value
class FetchSnapshotResponse:
    """A part of a snapshot: `length` bytes from `position` on, of `size`. The shell adds or takes the bytes."""

    error: ErrorCode = ErrorCode.NONE
    epoch: int = 0
    leader_id: int = NO_NODE
    leader_endpoints: Endpoints = ()
    snapshot: SnapshotId = NO_SNAPSHOT
    size: int = 0
    position: int = 0
    length: int = 0


@value
class VoterChangeResponse:
    """The response to AddRaftVoter, RemoveRaftVoter and UpdateFeatures."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@value
class UpdateVoterResponse:
    """The response to UpdateRaftVoter."""

    error: ErrorCode = ErrorCode.NONE
    epoch: int = -1
    leader_id: int = NO_NODE
    leader_endpoints: Endpoints = ()


@value
class ApiVersionsResponse:
    """The levels of kraft.version that a node supports; None if it does not know the feature."""

    error: ErrorCode = ErrorCode.NONE
    kraft_versions: VersionRange | None = None


Request: TypeAlias = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
    | ApiVersionsRequest
)
LeaderResponse: TypeAlias = (
    VoteResponse | QuorumEpochResponse | FetchResponse | FetchSnapshotResponse | UpdateVoterResponse
)
"""Responses that name the responder's epoch and leader."""

Response: TypeAlias = LeaderResponse | VoterChangeResponse | ApiVersionsResponse
