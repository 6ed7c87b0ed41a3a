"""How a client's connection ends: the reason, and the callbacks that wait for it."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from ottla.network.errors import NetworkError


class ConnectionEnd:
    """`problem` is this side's reason, None if the other side or the network closed the connection."""

    __slots__ = ("callbacks", "is_lost", "loss", "problem")

    def __init__(self) -> None:
        self.problem: NetworkError | None = None
        self.is_lost = False
        self.loss: Exception | None = None
        """The exception of the transport."""
        self.callbacks: list[Callable[[], None]] = []

    @property
    def was_lost(self) -> bool:
        """Whether the other side or the network closed the connection."""
        return self.is_lost and self.problem is None

    def cause_of(self, error: Exception) -> Exception:
        """Return the error of TLS that ended the connection, or else `error`."""
        return self.loss if isinstance(self.loss, ssl.SSLError) else error

    def decide(self, problem: NetworkError) -> None:
        """This side closes the connection; the first reason counts."""
        if self.problem is None:
            self.problem = problem

    def notify(self) -> None:
        """Call each callback once."""
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback()
