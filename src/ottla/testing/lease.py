"""A test's access to a broker, for as long as the test runs.

All helpers of a test use its broker through a `Lease`, which rejects calls after the test. A thread or variable that
outlives its test must not act on a broker that other tests use.
"""

from __future__ import annotations

import gc
import threading
import time
from itertools import count
from typing import TYPE_CHECKING, Any

from ottla.testing.base import BrokerError
from ottla.testing.ports import ReservedPort

if TYPE_CHECKING:
    from ottla.testing.listeners import Unclosed
    from ottla.testing.process import ProcessBroker
    from ottla.testing.running import ThreadBroker

__tracebackhide__ = True
# The time for clients to disconnect that were closed, or that close in the background after they were dropped.
DISCONNECT_S = 0.5
_PAUSE_S = 0.002
_numbers = count(1)


class Lease:
    """A broker for one test. With `own_port` its clients connect to a port of this test."""

    def __init__(self, broker: ThreadBroker | ProcessBroker, test: str, *, own_port: bool) -> None:
        self._broker = broker
        self._test = test
        self._listener = f"TEST-{next(_numbers)}" if own_port else None
        self._bootstrap: str | None = None
        self._reserved: ReservedPort | None = None
        self._opening = threading.Lock()
        self._over = False

    def _allowed(self, what: str) -> ThreadBroker | ProcessBroker:
        if self._over:
            raise BrokerError(f"The test {self._test!r} is over: its ottla can no longer act on the broker ({what})")
        return self._broker

    @property
    def bootstrap(self) -> str:
        """HOST:PORT. The test's own port opens at the first use."""
        broker = self._allowed("bootstrap")
        if self._listener is None:
            return broker.bootstrap
        with self._opening:
            if self._bootstrap is None:
                self._reserved = self._reserved or ReservedPort()
                self._bootstrap = broker.call("open_listener", self._listener, self._reserved.number)
        return self._bootstrap

    @property
    def data(self) -> str:
        """The broker's log directory."""
        return self._allowed("data").data

    @property
    def running(self) -> bool:
        """Whether the broker is running."""
        return self._allowed("running").running

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method of the broker's `Control`."""
        return self._allowed(name).call(name, *arguments)

    # The test's port must open before the broker stops and can no longer open one.

    def pause(self) -> None:
        """Stop the broker like SIGSTOP."""
        self._know_port()
        self._allowed("pause").pause()

    def resume(self) -> None:
        """Continue after `pause`."""
        self._allowed("resume").resume()

    def stop(self) -> None:
        """Stop the broker cleanly."""
        self._know_port()
        self._allowed("stop").stop()

    def kill(self) -> None:
        """Stop the broker like SIGKILL."""
        self._know_port()
        self._allowed("kill").kill()

    def start(self) -> None:
        """Start the broker again."""
        self._allowed("start").start()

    def _know_port(self) -> None:
        broker = self._allowed("bootstrap")
        if broker.running and not broker.paused:
            _ = self.bootstrap

    # -- the end of a test -------------------------------------------------------------------------------------

    def close_port(self, *, wait: bool = True) -> list[Unclosed]:
        """Close the test's port and its connections, remove its group members, and return the open clients.

        Without `wait` the result includes clients that are about to disconnect.
        """
        listener, broker = self._listener, self._broker
        if listener is None or self._bootstrap is None:
            return []
        self._listener = None
        if not broker.running:
            broker.call("forget_listener", listener)
            return []
        unclosed: list[Unclosed] = broker.call("unclosed", listener)
        if unclosed and wait:
            # Clients in reference cycles are closed, and warn, while the test that dropped them is still known.
            gc.collect()
            deadline_s = time.monotonic() + DISCONNECT_S
            while (unclosed := broker.call("unclosed", listener)) and time.monotonic() < deadline_s:
                time.sleep(_PAUSE_S)
        broker.call("close_listener", listener)
        return unclosed

    def end(self) -> None:
        """Reject all later calls."""
        self._over = True
        if self._reserved is not None:
            self._reserved.release()
