"""The change of the voters that a leader is working on: at most one at a time. KIP-853."""

from __future__ import annotations

from ottla.common.values import state
from ottla.raft.events import Token
from ottla.raft.messages import AddVoterRequest, RemoveVoterRequest, UpdateVoterRequest


@state
class PendingChange:
    """A change between its request and its commit.

    To add or update a voter, the leader first asks it for its versions. Then, or at once to remove a voter, the leader
    appends the new voter set.
    """

    token: Token
    request: AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest
    deadline_ms: int
    asked: int | None = None
    """The id of the ApiVersions request to the voter, while it is not answered."""
    is_answered: bool = False
    offset: int | None = None
    """The offset of the VotersRecord, once it is appended."""


@state
class PendingUpgrade:
    """A higher level of kraft.version, between its request and its commit."""

    token: Token
    level: int
    offset: int | None = None
    """The offset of the KRaftVersionRecord, once it is appended."""
