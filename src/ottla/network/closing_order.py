"""The order in which connections are closed if this process is killed.

Linux closes the sockets of a killed process one after another, those with the highest descriptors first. Clients notice
it immediately, and ask another broker for the new leader. That broker should know by then that this process is dead,
so the connections of other brokers have to be closed before the clients' connections. A second, high descriptor does
that.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable
from typing import Final, Protocol

from ottla.network.descriptors import open_file_limit

logger = logging.getLogger(__name__)

# Above the descriptors of the logs and clients of most brokers; the kernel's table costs 8 bytes for each.
LEAST_DESCRIPTOR: Final = 16_384
# A client may claim to be a broker.
MOST_CONNECTIONS: Final = 128


class Connection(Protocol):
    """The part of a client's connection that is used here."""

    @property
    def descriptor(self) -> int | None:
        """The descriptor of the socket; None if it is closed."""
        ...

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` before the socket is closed."""
        ...


class ClosedFirst:
    """Connections that the kernel closes before others; each has a second descriptor, until it is closed."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, connection: Connection) -> None:
        """Add a connection, once. Without a free descriptor nothing changes."""
        descriptor = connection.descriptor
        if descriptor is None or self._count >= MOST_CONNECTIONS:
            return
        least = min(LEAST_DESCRIPTOR, open_file_limit() // 2)
        try:
            duplicate = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, least)
        except OSError as error:
            logger.debug("No second descriptor for the connection of a broker: %s", error)
            return
        self._count += 1
        connection.on_close(lambda: self._close(duplicate))

    def _close(self, duplicate: int) -> None:
        self._count -= 1
        os.close(duplicate)
