"""Events and effects of the quorum's core, all immutable values.

The shell must execute effects in their order: a vote is on disk before it is sent, and records are on disk before they
count towards a majority. Messages are sent last, because they depend on the effects before them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

NO_NODE = -1


class LogEnd(NamedTuple):
    """Where a log ends: the offset after its last record, and that record's epoch (0 and -1 for an empty log)."""

    offset: int
    epoch: int

    def is_behind(self, other: LogEnd) -> bool:
        """Whether `other` is more up to date: a later epoch, or a higher offset in the same epoch."""
        return (self.epoch, self.offset) < (other.epoch, other.offset)


class Election(NamedTuple):
    """The durable state of a voter: its epoch, the epoch's leader if known, and its vote in the epoch."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE


# -- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The node has started. `end` is the end of its log after recovery; records below `flushed_offset` are on disk."""

    end: LogEnd
    flushed_offset: int
    epoch_starts: tuple[tuple[int, int], ...] = ()
    """(epoch, offset of its first record), ascending, from the log's epoch cache."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """`RaftCore.deadline_ms` has passed. An earlier tick has no effect."""


@dataclass(frozen=True, slots=True)
class Appended:
    """Records were appended: by this leader, or from a fetch response. The log ends at `end_offset`."""

    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Flushed:
    """Everything below `end_offset` is on disk."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """A candidate asks for a vote (KRaft's Vote)."""

    candidate_id: int
    epoch: int
    end: LogEnd


@dataclass(frozen=True, slots=True)
class VoteResponse:
    """The response of a voter, with the voter's epoch."""

    voter_id: int
    epoch: int
    granted: bool
    leader_id: int = NO_NODE


@dataclass(frozen=True, slots=True)
class LeaderAnnounced:
    """A new leader announces itself (KRaft's BeginQuorumEpoch)."""

    leader_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """A replica fetches the records after `end`, up to which its log is on disk (KRaft's Fetch)."""

    replica_id: int
    epoch: int
    end: LogEnd


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """The leader's response. The shell adds the records from `from_offset`; there are none if `diverged` is set."""

    leader_id: int
    epoch: int
    from_offset: int
    high_watermark: int
    diverged: LogEnd | None = None
    """The end of the replica's last epoch in the leader's log. The replica truncates its log there and refetches."""


Event = (
    Started | Ticked | Appended | Flushed | VoteRequest | VoteResponse | LeaderAnnounced | FetchRequest | FetchResponse
)

# -- effects ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Persist:
    """Write the election to disk, before any later effect."""

    election: Election


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncate the log to `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class AppendLeaderChange:
    """Append the control record that opens an epoch, then report `Appended`."""

    epoch: int
    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AppendFetched:
    """Append the records of the FetchResponse, and report `Appended` after each batch."""


@dataclass(frozen=True, slots=True)
class Flush:
    """Flush the log at least up to `end_offset`, then report `Flushed`. Until then there is no other Flush."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class Commit:
    """All records below `high_watermark` are committed: replay and publish them."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to another voter; it may be lost."""

    to: int
    message: VoteRequest | VoteResponse | LeaderAnnounced | FetchRequest | FetchResponse


Effect = Persist | Truncate | AppendLeaderChange | AppendFetched | Flush | Commit | Send
