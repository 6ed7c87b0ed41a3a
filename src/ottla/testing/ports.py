"""Ports that stay reserved for a broker while it does not run.

Between a kill and the next start, any process of the machine could get the port as its free port. The socket that
reserves it is bound and does not listen: on Linux a listener with SO_REUSEADDR may use the port, as brokers do, but the
kernel gives it to no bind of port 0 and to no outgoing connection.
"""

from __future__ import annotations

import socket
import weakref


class ReservedPort:
    """A free port, reserved until `release` is called or this object is deleted."""

    def __init__(self) -> None:
        reserved = socket.socket()
        self.release = weakref.finalize(self, reserved.close)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # All addresses: the broker's may be any of them.
        reserved.bind(("0.0.0.0", 0))  # noqa: S104 - it accepts no connections
        self.number: int = reserved.getsockname()[1]
