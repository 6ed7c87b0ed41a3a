"""What batches and deliveries ask of the shell that runs their core. They call it without the core's lock."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ottla.clients.errors import ClientError
from ottla.clients.producer.batch import Batch, Delivery


def _nothing(*_: object) -> None:
    """Neither needed nor possible without a shell."""


def _impossible(*arguments: object) -> None:
    raise ClientError(f"This producer has no shell that could take {arguments}")


@dataclass(slots=True)
class Shell:
    """Set by whoever runs the core; a core alone cannot wait."""

    hurry: Callable[[], object] = _nothing
    """A caller waits for a batch: `step` soon."""
    wait: Callable[[Batch, float | None], object] = _impossible
    """Wait until the batch is announced, at most so many seconds."""
    add_callback: Callable[[Delivery, Callable[[Delivery], object]], object] = _impossible
    run_coroutines: Callable[[list[Coroutine[Any, Any, object]], Callable[[], object]], object] = _impossible
    """Run the coroutines that callbacks returned, and then call the function."""
    report_unheard: Callable[[Batch], object] = _nothing
    """The batch failed, and nobody asked for the outcome."""
