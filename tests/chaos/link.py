"""Links to one broker or to a cluster that a test delays, stalls or cuts. Responses have their addresses."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

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

    def close(self) -> None:
        """Close all connections, and listen no longer."""
        self.__exit__(None, None, None)

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


class _OneOfSeveral(Link):
    """The link to one of several brokers; `ports` has the port of the link of each broker, by the broker's port."""

    def __init__(self, bootstrap: str, ports: dict[int, int]) -> None:
        super().__init__(bootstrap)
        self._ports = ports
        ports[int(bootstrap.rsplit(":", 1)[1])] = self._port

    def _move(self, response: Any) -> None:
        for row in (*getattr(response, "brokers", ()), *getattr(response, "coordinators", ()), response):
            if hasattr(row, "port"):
                row.port = self._ports.get(row.port, row.port)


class SiteLink:
    """A link to each broker of a cluster, all with the same faults."""

    def __init__(self, addresses: Sequence[str]) -> None:
        ports: dict[int, int] = {}
        self._links = [_OneOfSeveral(address, ports) for address in addresses]
        self.bootstrap = ",".join(link.bootstrap for link in self._links)
        for link in self._links:
            link.__enter__()

    def close(self) -> None:
        """Close all connections, and listen no longer."""
        for link in self._links:
            link.close()

    @property
    def delay_s(self) -> float:
        """As `Link.delay_s`."""
        return self._links[0].delay_s

    @delay_s.setter
    def delay_s(self, delay_s: float) -> None:
        for link in self._links:
            link.delay_s = delay_s

    def cut(self) -> None:
        """As `Link.cut`."""
        for link in self._links:
            link.cut()

    def heal(self) -> None:
        """As `Link.heal`."""
        for link in self._links:
            link.heal()

    def drop(self) -> None:
        """As `Link.drop`."""
        for link in self._links:
            link.drop()

    def hold(self) -> None:
        """As `Link.hold`."""
        for link in self._links:
            link.hold()

    def release(self) -> None:
        """As `Link.release`."""
        for link in self._links:
            link.release()

    def stall(self, duration_s: float) -> None:
        """As `Link.stall`."""
        self.hold()
        time.sleep(duration_s)
        self.release()
