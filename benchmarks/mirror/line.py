"""A long line in front of a broker: a delay for each byte, and a rate that all connections share.

It passes bytes on without reading them, so that several responses can be on the line at once. The broker's
`advertised.listeners` needs the address of the line.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from types import TracebackType
from typing import Self

PART_BYTES = 256 << 10
# More than a second at 50 MB/s, as the windows of all connections over such a line together.
MOST_PARTS = 256
TIMEOUT_S = 10.0


class Line:
    """Listens from its creation to `__exit__`; `target` is the broker's address. Without limits, it only forwards."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.target = ""
        self.delay_s = 0.0
        """Of each direction."""
        self.bytes_per_s = float("inf")
        """From the broker to its clients."""
        self._lock = threading.Lock()
        self._free_s = 0.0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                host, _, port = self.target.rpartition(":")
                broker = socket.create_connection((host, int(port)), TIMEOUT_S)
                broker.settimeout(None)
                self._relay(client, broker, is_limited=False)
                self._relay(broker, client, is_limited=True)

    def _relay(self, source: socket.socket, to: socket.socket, *, is_limited: bool) -> None:
        on_line: queue.Queue[tuple[float, bytes]] = queue.Queue(MOST_PARTS)
        threading.Thread(target=self._receive, args=(source, on_line, is_limited), daemon=True).start()
        threading.Thread(target=_send, args=(on_line, to), daemon=True).start()

    def _receive(self, source: socket.socket, on_line: queue.Queue[tuple[float, bytes]], is_limited: bool) -> None:
        data = b"-"
        while data:
            try:
                data = source.recv(PART_BYTES)
            except OSError:
                data = b""
            on_line.put(((self._sent_s(len(data)) if is_limited else time.monotonic()) + self.delay_s, data))

    def _sent_s(self, size: int) -> float:
        """When the last of `size` bytes is on the line."""
        with self._lock:
            self._free_s = max(self._free_s, time.monotonic()) + size / self.bytes_per_s
            return self._free_s


def _send(on_line: queue.Queue[tuple[float, bytes]], to: socket.socket) -> None:
    data = b"-"
    while data:
        due_s, data = on_line.get()
        time.sleep(max(due_s - time.monotonic(), 0))
        with contextlib.suppress(OSError):
            to.sendall(data)
    with contextlib.suppress(OSError):
        to.shutdown(socket.SHUT_RDWR)
