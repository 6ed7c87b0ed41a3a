"""The error and the timeouts of both ways to run a broker, in a thread and in a process."""

from __future__ import annotations

CALL_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 10.0


class BrokerError(RuntimeError):
    """The broker of a test did not start, stop or answer; the message says why."""
