"""Random numbers from the operating system, without importing `random`, which adds a millisecond to the start."""

from __future__ import annotations

import os

from ottla.common.ids import Uuid, uuid_to_text


class SystemRandom:
    """The two methods of `random.SystemRandom` that the controller and the quorum use."""

    def randbytes(self, n: int, /) -> bytes:
        return os.urandom(n)

    def randrange(self, stop: int, /) -> int:
        return int.from_bytes(os.urandom(16), "big") % stop


def random_uuid() -> Uuid:
    """Return a new id whose text does not start with a dash: a command line would read it as an option."""
    while True:
        uuid = os.urandom(16)
        if not uuid_to_text(uuid).startswith("-"):
            return uuid
