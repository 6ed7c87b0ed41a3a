"""Questions and answers between the tests and a broker beside them: pickled, with their length before them.

Both ends are ours. `multiprocessing.connection` does the same and takes a tenth of the broker's start to import.
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
        """Raises OSError if the other end is gone."""
        data = pickle.dumps(message)
        self._socket.sendall(_LENGTH.pack(len(data)) + data)

    def receive(self, timeout_s: float | None = None) -> Any:
        """Wait for the next message. Raises TimeoutError, and EOFError or OSError if the other end is gone."""
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
        """The other end sees its end."""
        self._socket.close()
