"""A link to one broker that a test delays, stalls or cuts. Responses have its address instead of the broker's."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

from tests.clients.proxy import Proxy

_LONGEST_STALL_S = 120


class LinkCut(OSError):
    """The link is cut."""


class Link(Proxy):
    """See the module's docstring. Requests and responses need `delay_s` seconds each."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.delay_s = 0.0
        self._is_cut = False
        self._moves = threading.Event()
        self._moves.set()

    def cut(self) -> None:
        """Close all connections, and refuse new ones until `heal`."""
        self._is_cut = True
        self.drop()

    def heal(self) -> None:
        """Accept connections again."""
        self._is_cut = False

    def drop(self) -> None:
        """Close all connections once."""
        sockets, self._sockets = self._sockets, []
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def stall(self, duration_s: float) -> None:
        """Forward nothing for a time, as a network that loses packets and repeats them."""
        self.hold()
        time.sleep(duration_s)
        self.release()

    def hold(self) -> None:
        """Forward nothing until `release`."""
        self._moves.clear()

    def release(self) -> None:
        """Forward requests and responses again."""
        self._moves.set()

    def _connect(self) -> socket.socket:
        if self._is_cut:
            raise LinkCut
        return super()._connect()

    def _forward(self, to: socket.socket, frame: bytes) -> None:
        self._moves.wait(_LONGEST_STALL_S)
        time.sleep(self.delay_s)
        if self._is_cut:
            raise LinkCut
        super()._forward(to, frame)
