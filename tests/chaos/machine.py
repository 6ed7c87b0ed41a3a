"""How fast this machine computes, for limits on the CPU time of a broker."""

import time

# CPU time of `_work` on the machine on which the limits were chosen, without other load.
_REFERENCE_MS = 11.0
_ATTEMPTS = 5


def slowness() -> float:
    """Return how many times slower this machine is than the limits' machine, at least 1. It takes about 70 ms."""
    return max(1.0, min(_work() for _ in range(_ATTEMPTS)) / _REFERENCE_MS)


def _work() -> float:
    """Do some typical work (calls, strings, objects, more memory than the caches have); return its CPU time in ms."""
    began_s = time.thread_time()
    rows = {str(number): [number] for number in range(50_000)}
    assert sum(len(row) for row in rows.values()) == 50_000
    return (time.thread_time() - began_s) * 1000
