"""The functions of the sender's thread and of the producer that the core of a producer calls."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ottla.clients.errors import ClientError


def _nothing(*_: object) -> None:
    """Without a runtime this is neither necessary nor possible."""


def _impossible(*arguments: object) -> None:
    raise ClientError(f"This core has no runtime that could handle {arguments}")


@dataclass(slots=True)
class Runtime:
    """Functions that the sender and the producer set, called without the lock of the core. A core alone cannot wait."""

    hurry: Callable[[], object] = _nothing
    """A caller waits for a batch: let the core `step` soon."""
    wait: Callable[[Any, float | None], object] = _impossible
    """Wait until a batch is announced, at most for the given seconds."""
    add_callback: Callable[[Any, Callable[[Any], object]], object] = _impossible
    """Add a callback to a delivery."""
    run_coroutines: Callable[[list[Coroutine[Any, Any, object]], Callable[[], object]], object] = _impossible
    """Run the coroutines that callbacks returned, and then call the function."""
    report_unread_error: Callable[[Any], object] = _nothing
    """The batch failed, and the program did not ask for the outcome."""
