"""Shares the event loop between TLS handshakes and everything else, and bounds the memory of unfinished handshakes.

A step of a handshake computes for 0.2 ms (ECDSA) to 2 ms (RSA). Steps run in the order in which their bytes arrived,
for `STEPS_S` in each event loop iteration, so that a burst of new connections does not delay the requests of others.

Beyond `MOST_UNFINISHED` handshakes, the oldest is given up: a client that is honest needs only a few round trips.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

SCRATCH_BYTES: Final = 64 * 1024
STEPS_S: Final = 0.002
MOST_UNFINISHED: Final = 1_000
"""Each has some 50 KB in OpenSSL."""


class Handshake(Protocol):
    """One connection whose handshake is not finished."""

    def step(self) -> None:
        """Continue with the bytes that arrived."""

    def give_up(self, problem: str) -> None:
        """Close the connection."""


class Handshakes:
    """The unfinished handshakes of all listeners."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._unfinished: dict[Handshake, None] = {}
        self._ready: deque[Handshake] = deque()
        self._is_scheduled = False
        self._scratch: memoryview | None = None

    @property
    def scratch(self) -> memoryview:
        """Memory into which all connections receive encrypted bytes; OpenSSL copies them."""
        if self._scratch is None:
            self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        return self._scratch

    def __len__(self) -> int:
        return len(self._unfinished)

    def begin(self, handshake: Handshake) -> None:
        """Count a handshake whose first bytes arrived, and schedule its first step."""
        if len(self._unfinished) >= MOST_UNFINISHED:
            next(iter(self._unfinished)).give_up(f"there are more than {MOST_UNFINISHED} unfinished TLS handshakes")
        self._unfinished[handshake] = None
        self.schedule(handshake)

    def schedule(self, handshake: Handshake) -> None:
        """Run the next step in one of the next event loop iterations."""
        self._ready.append(handshake)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run)

    def end(self, handshake: Handshake) -> None:
        """Forget a handshake that is finished or given up. May be called more than once."""
        self._unfinished.pop(handshake, None)

    def _run(self) -> None:
        deadline = self._loop.time() + STEPS_S
        while self._ready:
            handshake = self._ready.popleft()
            if handshake in self._unfinished:
                handshake.step()
            if self._loop.time() >= deadline:
                break
        self._is_scheduled = bool(self._ready)
        if self._ready:
            self._loop.call_soon(self._run)
