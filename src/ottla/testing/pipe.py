"""Messages between the tests and a broker process: pickled, with a length prefix.

`multiprocessing.connection` does the same, but its import takes a tenth of the broker's start time.
"""

from __future__ import annotations

import pickle
import socket
import struct
from typing import Any

_LENGTH = struct.Struct(">I")


class Pipe:
    """One end of a socket pair."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def send(self, message: Any) -> None:
        """Send a message. Raises OSError if the other end is closed."""
        data = pickle.dumps(message)
        self._socket.sendall(_LENGTH.pack(len(data)) + data)

    def receive(self, timeout_s: float | None = None) -> Any:
        """Wait for the next message. Raises TimeoutError, and EOFError or OSError if the other end is closed."""
        self._socket.settimeout(timeout_s)
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        return pickle.loads(self._exactly(length))  # noqa: S301 - our own process

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise EOFError("The other end is closed")
            data += part
        return bytes(data)

    def close(self) -> None:
        """Close this end; the other end receives EOFError."""
        self._socket.close()
