"""Events and effects of the quorum's core, all immutable values.

The shell executes the effects in their order: an election is on disk before a message that depends on it is sent, and a
flush has ended before `Flushed` reports it. Messages are the last effects of a step.

An append, a truncation and the load of a snapshot take place at once: the shell reports `Appended` or `SnapshotLoaded`
before it executes the next effect. A flush is reported when it is done; meanwhile other events may come.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias

from ottla.common.values import value
from ottla.raft.control import ControlRecord, KRaftVersion
from ottla.raft.messages import Request, Response
from ottla.raft.values import Election, LogEnd, Node, SnapshotId
from ottla.raft.voters import VoterSet

Controls: TypeAlias = tuple[tuple[int, KRaftVersion | VoterSet], ...]
"""Control records with their offsets, ascending. A snapshot's control records have the offset of its last record."""

Token: TypeAlias = Hashable
"""Chosen by the shell for each request that it receives, to recognize the response."""

# -- events ----------------------------------------------------------------------------------------------------------


@value
class Started:
    """The node has started. `end` is the end of its log after recovery; records below `flushed_offset` are on disk."""

    end: LogEnd
    flushed_offset: int
    epoch_starts: tuple[tuple[int, int], ...] = ()
    """(epoch, offset of its first record), ascending, from the log's epoch cache."""
    controls: Controls = ()
    """The control records of the newest snapshot and of the log after it."""
    snapshots: tuple[tuple[SnapshotId, int], ...] = ()
    """The snapshots, with their sizes in bytes."""
    start_offset: int = 0


@value
class Ticked:
    """`RaftCore.deadline_ms` has passed. An earlier tick has no effect."""


@value
class Appended:
    """Records of one epoch were appended: by this leader, or from a fetch response. The log ends at `end_offset`."""

    end_offset: int
    epoch: int
    controls: Controls = ()
    is_last: bool = True
    """False if more batches of the same fetch response follow."""


@value
class Flushed:
    """Everything below `end_offset` is on disk."""

    end_offset: int


@value
class SnapshotsChanged:
    """A snapshot was written or deleted. Names all snapshots, with their sizes, and where the log starts."""

    snapshots: tuple[tuple[SnapshotId, int], ...]
    start_offset: int


@value
class SnapshotRejected:
    """The effect `LoadSnapshot` failed: the fetched snapshot is damaged. Its file is deleted, the log is as before."""

    snapshot: SnapshotId


@value
class SnapshotLoaded:
    """The effect `LoadSnapshot` was executed: the snapshot is on disk, and the log is empty and starts at its end."""

    snapshot: SnapshotId
    size: int
    controls: Controls = ()


@value
class Received:
    """A request of another node, or of an administrator. `Respond` with the same token answers it, at once or later."""

    token: Token
    request: Request


@value
class Responded:
    """The response to a request that this node sent. Responses to forgotten requests are ignored."""

    request_id: int
    response: Response


@value
class Failed:
    """A request was not answered: the connection failed, or the response cannot be read."""

    request_id: int


@value
class Disconnected:
    """A node closed its connections or refuses them, so that its process has probably ended."""

    node_id: int


@value
class UpgradeRequested:
    """UpdateFeatures sets kraft.version. `Respond` gets a VoterChangeResponse."""

    token: Token
    level: int
    validate_only: bool = False


@value
class ResignRequested:
    """This leader is to resign from `epoch`, e.g. because its disk fails. Another epoch: no effect."""

    epoch: int


@value
class ShutdownRequested:
    """The node stops soon: a leader resigns, and no voter stands for election. See `RaftCore.may_stop`."""


Event: TypeAlias = (
    Started
    | Ticked
    | Appended
    | Flushed
    | SnapshotsChanged
    | SnapshotLoaded
    | SnapshotRejected
    | Received
    | Responded
    | Failed
    | Disconnected
    | UpgradeRequested
    | ResignRequested
    | ShutdownRequested
)

# -- effects ---------------------------------------------------------------------------------------------------------


@value
class Persist:
    """Write the election to disk and sync it, before any later effect. `kraft_version` selects the file's version."""

    election: Election
    voters: tuple[int, ...]
    kraft_version: int


@value
class Truncate:
    """Truncate the log to `offset`."""

    offset: int


@value
class AppendControl:
    """Append these control records as one batch of `epoch`, then report `Appended` with the versions and voters."""

    epoch: int
    records: tuple[ControlRecord, ...]


@value
class AppendFetched:
    """Append the records of the FetchResponse of this event, and report `Appended` after each batch."""


@value
class Flush:
    """Flush the log at least up to `end_offset`, then report `Flushed`. Until then there is no other Flush."""

    end_offset: int


@value
class BeginSnapshot:
    """Create the file of a snapshot that is fetched from the leader; an incomplete one with this id is deleted."""

    snapshot: SnapshotId


@value
class AppendSnapshot:
    """Append the bytes of the FetchSnapshotResponse of this event to the snapshot's file, at `position`."""

    snapshot: SnapshotId
    position: int


@value
class LoadSnapshot:
    """The snapshot is complete: check and sync it, replace the whole log with it, then report `SnapshotLoaded`.

    If it is damaged, report `SnapshotRejected`.
    """

    snapshot: SnapshotId


@value
class Commit:
    """All records below `high_watermark` are committed: replay and publish them."""

    high_watermark: int


@value
class Send:
    """Send a request to another node; it or its response may be lost. Report `Responded` or `Failed` with the id."""

    request_id: int
    to: Node
    request: Request


@value
class Respond:
    """Answer the request with this token. The connection may be closed already."""

    token: Token
    response: Response


Effect: TypeAlias = (
    Persist
    | Truncate
    | AppendControl
    | AppendFetched
    | Flush
    | BeginSnapshot
    | AppendSnapshot
    | LoadSnapshot
    | Commit
    | Send
    | Respond
)
