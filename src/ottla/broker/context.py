"""What a handler knows of the request besides its body."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.network.server import Connection


@dataclass(slots=True)
class RequestContext:
    """One request: its header, and where it came from."""

    connection: Connection
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    received_ms: int
    """Monotonic clock, milliseconds."""

    @property
    def client_host(self) -> str:
        """The client's address, as group descriptions show it."""
        return self.connection.remote_host

    @property
    def listener(self) -> str:
        """The name of the listener that the request came in on; answers name endpoints of the same."""
        return self.connection.listener

    @property
    def principal(self) -> str:
        """Who sent it, as `Type:name`."""
        return self.connection.principal
