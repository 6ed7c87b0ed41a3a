"""One member of a classic group: what it told when it joined, and which of its requests is parked."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from ottla.coordinators.group.events import Call

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""(name, metadata) in the member's order of preference."""


@dataclass(eq=False, slots=True)
class Member:
    """Timeouts in milliseconds; `protocols` in the order of the member's preference."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    joining: Call | None = None
    """The parked JoinGroup request; counted in `Group.awaiting_join`, so set it through the group."""
    syncing: Call | None = None
    """The parked SyncGroup request."""
    is_new: bool = field(default=False)
    """Its first join is still parked: it does not know its id, so it cannot send heartbeats."""

    @property
    def is_static(self) -> bool:
        """Whether it has a `group.instance.id` (KIP-345)."""
        return self.instance_id is not None

    @property
    def is_kept_alive(self) -> bool:
        """Whether a parked request stands in for heartbeats."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def metadata(self, protocol: str | None) -> bytes:
        """What the member sent for `protocol`; nothing if it does not know it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def vote(self, candidates: Container[str]) -> str:
        """The candidate it prefers; there must be one."""
        return next(name for name, _ in self.protocols if name in candidates)


def protocol_names(protocols: Iterable[tuple[str, bytes]]) -> set[str]:
    """The names alone."""
    return {name for name, _ in protocols}
