"""Timers of an event loop, without importing one: `asyncio` and the simulated worlds provide them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias


class TimerHandle(Protocol):
    """The result of `loop.call_later`."""

    def cancel(self) -> None:
        """Cancel the call."""
        ...


CallLater: TypeAlias = Callable[[float, Callable[[], None]], TimerHandle]
"""Calls a function after a number of seconds."""
