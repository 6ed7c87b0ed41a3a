"""Random numbers from the operating system, without importing `random`, which adds a millisecond to the start."""

from __future__ import annotations

import os


class SystemRandom:
    """The two methods of `random.SystemRandom` that the controller and the quorum use."""

    def randbytes(self, n: int, /) -> bytes:
        return os.urandom(n)

    def randrange(self, stop: int, /) -> int:
        return int.from_bytes(os.urandom(16), "big") % stop
