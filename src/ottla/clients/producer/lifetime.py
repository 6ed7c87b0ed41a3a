"""What becomes of producers that a fork copied, or that are open when the program ends."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from typing import TYPE_CHECKING

from ottla.clients.errors import Closed

if TYPE_CHECKING:
    from ottla.clients.producer.face import Producer

logger = logging.getLogger("ottla.clients.producer")

open_producers: weakref.WeakSet[Producer] = weakref.WeakSet()


def _forked() -> None:
    """In a forked child, which has none of the parent's threads: nothing of the parent's producers works there."""
    for producer in list(open_producers):
        producer._is_direct = False  # noqa: SLF001
        producer._closed = True  # noqa: SLF001
        producer._lock = producer._sender.lock = threading.Lock()  # noqa: SLF001 - a thread that is no more may hold it


os.register_at_fork(after_in_child=_forked)


@atexit.register
def _report_lost() -> None:
    """Say which records are lost because the program ends before they are acknowledged."""
    for producer in list(open_producers):
        waiting = 0 if producer._closed else producer._core.pending_records()  # noqa: SLF001
        if waiting:
            logger.error(
                "%d records were not acknowledged when the program ended, and may be lost: call flush() or close(), or "
                "use the producer in a with statement",
                waiting,
            )


def unacknowledged() -> Closed:
    return Closed("The producer was closed before the record was acknowledged")
