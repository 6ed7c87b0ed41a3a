"""What the quorum's core is told, and what it wants done. All are immutable values.

Effects come in the order in which the shell must obey them: a vote is on disk before it is sent, records are on disk
before they count, and what is sent last rests on all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

NOBODY = -1


class LogEnd(NamedTuple):
    """Where a log ends: the offset after its last record, and that record's epoch (0 and -1 for an empty log)."""

    offset: int
    epoch: int

    def is_behind(self, other: LogEnd) -> bool:
        """Whether `other` holds what this one lacks: a later epoch, or more of the same one."""
        return (self.epoch, self.offset) < (other.epoch, other.offset)


class Election(NamedTuple):
    """A voter's word, kept on disk: the epoch, its leader if known, and whom this voter voted for."""

    epoch: int = 0
    leader_id: int = NOBODY
    voted_id: int = NOBODY


# -- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The node is up; `end` is where its log ends after recovery, `flushed_offset` up to where it is on disk."""

    end: LogEnd
    flushed_offset: int
    epoch_starts: tuple[tuple[int, int], ...] = ()
    """(epoch, offset of its first record), ascending, as the log's epoch cache knows them."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed; due at `RaftCore.deadline_ms` or earlier."""


@dataclass(frozen=True, slots=True)
class Appended:
    """The log now ends at `end_offset`; the new records are of the current epoch, or were fetched from its leader."""

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
    """The answer of one voter, in its epoch."""

    voter_id: int
    epoch: int
    granted: bool
    leader_id: int = NOBODY


@dataclass(frozen=True, slots=True)
class LeaderAnnounced:
    """A leader makes itself known (KRaft's BeginQuorumEpoch)."""

    leader_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """A replica asks for what follows `end`, which it has on disk (KRaft's Fetch)."""

    replica_id: int
    epoch: int
    end: LogEnd


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """The leader's answer. The shell adds the records from `from_offset` on; none if `diverged` is set."""

    leader_id: int
    epoch: int
    from_offset: int
    high_watermark: int
    diverged: LogEnd | None = None
    """Where the leader's log ends for the replica's last epoch: the replica cuts its own there and asks again."""


Event = (
    Started | Ticked | Appended | Flushed | VoteRequest | VoteResponse | LeaderAnnounced | FetchRequest | FetchResponse
)

# -- effects ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Persist:
    """Put the election on disk, before any later effect."""

    election: Election


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log: it ends at `offset` from now on."""

    offset: int


@dataclass(frozen=True, slots=True)
class AppendLeaderChange:
    """Append the control record that opens an epoch, then tell `Appended`."""

    epoch: int
    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AppendFetched:
    """Append the records that came with a FetchResponse, then tell `Appended` for each of their batches' ends."""


@dataclass(frozen=True, slots=True)
class Flush:
    """Put the log on disk, at least up to `end_offset`, then tell `Flushed`. Never asked again before that."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Everything below `high_watermark` is agreed on: replay and publish it."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to another voter; it may be lost."""

    to: int
    message: VoteRequest | VoteResponse | LeaderAnnounced | FetchRequest | FetchResponse


Effect = Persist | Truncate | AppendLeaderChange | AppendFetched | Flush | Commit | Send
