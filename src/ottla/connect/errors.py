"""Errors of connectors. The worker decides by their class; each text says what happened and what to do."""

from __future__ import annotations


class ConnectError(Exception):
    """A task cannot go on. It stops with state FAILED, unless `errors.*` or a restart policy says otherwise."""


class RetriableError(ConnectError):
    """A failure that passes: a connection, a restart of the other system. The worker calls again after a pause."""


class DataError(ConnectError):
    """A record that does not fit: its place and field are in the text. `errors.tolerance` may skip such records."""


class NotFoundError(ConnectError):
    """A connector, a task or a plugin does not exist."""


class AlreadyExistsError(ConnectError):
    """A connector with this name exists."""


class BadRequestError(ConnectError):
    """A request that is not valid in itself, or in the current state of the connector."""


class InvalidConfigError(BadRequestError):
    """A configuration with faults; the text names all of them."""


class RebalanceNeededError(ConnectError):
    """The cluster is between two assignments. The request may be sent again."""


class NotLeaderError(ConnectError):
    """Only the leader of the group may do this. `leader_url` is its address, None: it is unknown at this moment."""

    def __init__(self, message: str, leader_url: str | None) -> None:
        super().__init__(message)
        self.leader_url = leader_url


class SignatureError(ConnectError):
    """An internal request that no worker of this group has signed. `status` is the status of the response (KIP-507)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
