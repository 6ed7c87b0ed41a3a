"""What one test may do with a broker, for as long as the test runs.

Everything that the helpers of a test ask of its broker goes through a `Lease`. When the test is over it refuses: a
thread or a variable that outlives its test must not act on a broker that other tests use by then.
"""

from __future__ import annotations

import gc
import threading
import time
from itertools import count
from typing import TYPE_CHECKING, Any

from ottla.testing.base import BrokerError

if TYPE_CHECKING:
    from ottla.testing.listeners import Unclosed
    from ottla.testing.process import ProcessBroker
    from ottla.testing.running import ThreadBroker

__tracebackhide__ = True
# Clients that were closed, or are closed in the background when they are dropped, have this long to disconnect.
DISCONNECT_S = 0.5
_PAUSE_S = 0.002
_numbers = count(1)


class Lease:
    """A broker for one test. With `own_port` its clients connect to a port that no other test has."""

    def __init__(self, broker: ThreadBroker | ProcessBroker, test: str, *, own_port: bool) -> None:
        self._broker = broker
        self._test = test
        self._listener = f"TEST-{next(_numbers)}" if own_port else None
        self._bootstrap: str | None = None
        self._opening = threading.Lock()
        self._over = False

    def _allowed(self, what: str) -> ThreadBroker | ProcessBroker:
        if self._over:
            raise BrokerError(f"The test {self._test!r} is over: its ottla can no longer act on the broker ({what})")
        return self._broker

    @property
    def bootstrap(self) -> str:
        """HOST:PORT; the test's own port is opened when it is first needed."""
        broker = self._allowed("bootstrap")
        if self._listener is None:
            return broker.bootstrap
        with self._opening:
            if self._bootstrap is None:
                self._bootstrap = broker.call("open_listener", self._listener)
        return self._bootstrap

    @property
    def data(self) -> str:
        """The directory that holds its logs."""
        return self._allowed("data").data

    @property
    def running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._allowed("running").running

    def call(self, name: str, *arguments: Any) -> Any:
        """Ask its `Control`."""
        return self._allowed(name).call(name, *arguments)

    # The port must be known before the broker is unable to open one.

    def pause(self) -> None:
        """Let it stand still."""
        self._know_port()
        self._allowed("pause").pause()

    def resume(self) -> None:
        """Let it go on."""
        self._allowed("resume").resume()

    def stop(self) -> None:
        """Stop it cleanly."""
        self._know_port()
        self._allowed("stop").stop()

    def kill(self) -> None:
        """Stop it as SIGKILL would."""
        self._know_port()
        self._allowed("kill").kill()

    def start(self) -> None:
        """Start it again."""
        self._allowed("start").start()

    def _know_port(self) -> None:
        broker = self._allowed("bootstrap")
        if broker.running and not broker.paused:
            _ = self.bootstrap

    # -- the end of a test -------------------------------------------------------------------------------------

    def close_port(self, *, wait: bool = True) -> list[Unclosed]:
        """Close the test's port with all connections, remove its group members; the clients that were still open.

        Without `wait` also those that are about to disconnect.
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
        """Refuse everything from now on."""
        self._over = True
