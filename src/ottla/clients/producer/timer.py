"""A timer that any thread may set and one loop hears. To set it anew wakes nobody: it is a descriptor of Linux's."""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import time
from collections.abc import Callable

NONBLOCKING, CLOSE_ON_EXEC = os.O_NONBLOCK, os.O_CLOEXEC
_EXPIRATIONS_BYTES = 8


class Alarm:
    """Calls `ring` on `loop` once, `delay_ms` after the last `set`. Raises OSError where there is no such timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, delay_ms: float, ring: Callable[[], object]) -> None:
        # Not os.timerfd_create: that needs Python 3.13. PyDLL: the calls are too short to let go of the interpreter.
        libc = ctypes.PyDLL(None, use_errno=True)
        try:
            self._settime = libc.timerfd_settime
            self._descriptor: int = libc.timerfd_create(time.CLOCK_MONOTONIC, NONBLOCKING | CLOSE_ON_EXEC)
        except AttributeError as error:
            raise OSError("this system has no timerfd") from error
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        seconds, rest_ms = divmod(max(delay_ms, 0.001), 1000)
        self._spec = struct.pack("@4l", 0, 0, int(seconds), int(rest_ms * 1e6))
        self._ring = ring
        self._loop = loop

    def start(self) -> None:
        """Listen; on the loop."""
        self._loop.add_reader(self._descriptor, self._rings)

    def set(self) -> None:
        """Ring after the delay from now on, not earlier."""
        self._settime(self._descriptor, 0, self._spec, None)

    def _rings(self) -> None:
        try:
            os.read(self._descriptor, _EXPIRATIONS_BYTES)
        except BlockingIOError:  # set anew meanwhile
            return
        self._ring()

    def close(self) -> None:
        """Listen no more; on the loop."""
        self._loop.remove_reader(self._descriptor)
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)
