"""Divides the process's limit of open files between logs and connections; see `network.descriptors`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.network.descriptors import WORKING, open_file_count, open_file_limit, reserved

if TYPE_CHECKING:
    from ottla.log import LogManager
    from ottla.network.server import Server

logger = logging.getLogger(__name__)

FEW_CONNECTIONS: Final = 128
# New partitions leave this many descriptors for connections: a client must be able to connect to delete partitions.
LEAST_CONNECTIONS: Final = 32


class ReservedFiles:
    """The descriptors that connections must leave to the logs; created when logs are loaded and listeners bound."""

    @classmethod
    def divide(cls, logs: LogManager, server: Server) -> None:
        """Apply the division to logs and connections."""
        files = cls(logs)
        server.admission.reserved_descriptors = files
        server.admission.release_descriptor = logs.open_files.release_descriptor
        logs.has_descriptor = lambda: files.has_file_for_log(server.connections.count)

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._fixed = max(open_file_count() - logs.open_file_count, 0)
        limit = open_file_limit()
        allowed = limit - self(limit)
        if allowed < FEW_CONNECTIONS:
            logger.warning(
                "No more than %d connections are accepted: %d partitions need most of the %d allowed open files."
                " Raise the limit of open files (ulimit -n, LimitNOFILE in systemd)",
                allowed,
                logs.count,
                limit,
            )

    def __call__(self, limit: int) -> int:
        """Return how many of `limit` open files connections must leave free."""
        return reserved(limit, self._fixed, self._logs.count, self._logs.open_files.limit)

    def has_file_for_log(self, connections: int) -> bool:
        """Whether a descriptor is left for a new log besides `connections` connections."""
        taken = self._fixed + self._logs.count + max(connections, LEAST_CONNECTIONS)
        return taken + WORKING < open_file_limit()
