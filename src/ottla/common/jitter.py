"""Random shares for pauses, without importing `random`, which adds a millisecond to the start of a broker."""

import os


def random_share() -> float:
    """Return a random number from 0 up to, but without, 1."""
    return int.from_bytes(os.urandom(4), "big") / (1 << 32)
