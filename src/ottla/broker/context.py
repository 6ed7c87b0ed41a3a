"""The context of a request: what a handler receives besides the request's body."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.network.connection import Connection

# The key in `Connection.state` of clients that have logged in by a delegation token (KIP-48).
DELEGATED = "delegated"


class RequestContext:
    """The header of one request, and its connection."""

    __slots__ = ("api_key", "api_version", "client_id", "connection", "correlation_id")

    def __init__(
        self,
        connection: Connection,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
    ) -> None:
        self.connection = connection
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id

    @property
    def client_host(self) -> str:
        """The client's address, as group descriptions show it."""
        return self.connection.remote_host

    @property
    def listener(self) -> str:
        """The name of the listener that received the request; responses contain endpoints of the same listener."""
        return self.connection.listener

    @property
    def is_by_token(self) -> bool:
        """Whether the client has logged in by a delegation token."""
        return DELEGATED in self.connection.state

    @property
    def principal(self) -> str:
        """The principal of the client, as `Type:name`."""
        return self.connection.principal
