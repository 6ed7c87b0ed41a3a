"""One member of a classic group: the contents of its last JoinGroup, and its parked requests."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from ottla.coordinators.events import Call

if TYPE_CHECKING:
    from ottla.protocol.messages.join_group import JoinGroupRequest
    from ottla.protocol.messages.sync_group import SyncGroupRequest

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""(name, metadata) in the member's order of preference."""


@dataclass(eq=False, slots=True)
class Member:
    """A member; `protocols` are in its order of preference."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    joining: Call[JoinGroupRequest] | None = None
    """The parked JoinGroup request. Set it with `Group.park_join`, which counts parked requests."""
    syncing: Call[SyncGroupRequest] | None = None
    """The parked SyncGroup request."""
    is_new: bool = field(default=False)
    """Its first JoinGroup is still parked: it may not know its member id, so it cannot send heartbeats."""

    @property
    def is_static(self) -> bool:
        """Whether it has a `group.instance.id` (KIP-345)."""
        return self.instance_id is not None

    @property
    def is_kept_alive(self) -> bool:
        """Whether a parked request replaces heartbeats."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def metadata(self, protocol: str | None) -> bytes:
        """The member's metadata for `protocol`; empty if it does not support it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def vote(self, candidates: Container[str]) -> str:
        """Return the candidate that the member prefers; it must support one of them."""
        return next(name for name, _ in self.protocols if name in candidates)


def protocol_names(protocols: Iterable[tuple[str, bytes]]) -> set[str]:
    """The names of the protocols."""
    return {name for name, _ in protocols}
