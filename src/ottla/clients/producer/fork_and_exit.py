"""Producers after a fork, and producers that are open when the program ends."""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from typing import Protocol

from ottla.clients.errors import Closed

logger = logging.getLogger("ottla.clients.producer")


class OpenProducer(Protocol):
    """A blocking producer, as the hooks of this module see it."""

    def _disable_after_fork(self) -> None:
        """Make every call fail in a forked child."""
        ...

    def _unacknowledged_records(self) -> int:
        """The number of records without an outcome; 0 after `close`."""
        ...


open_producers: weakref.WeakSet[OpenProducer] = weakref.WeakSet()


def _disable_producers() -> None:
    """In a forked child: the parent's threads do not exist there, so its producers cannot work."""
    for producer in list(open_producers):
        producer._disable_after_fork()  # noqa: SLF001 - not part of the public interface


os.register_at_fork(after_in_child=_disable_producers)


@atexit.register
def _report_lost_records() -> None:
    """Log how many records are lost because the program ends before they are acknowledged."""
    for producer in list(open_producers):
        records = producer._unacknowledged_records()  # noqa: SLF001
        if records:
            logger.error(
                "%d records were not acknowledged when the program ended, and may be lost: call flush() or close(), or "
                "use the producer in a with statement",
                records,
            )


def unacknowledged() -> Closed:
    """The error of records that `close` could not deliver in time."""
    return Closed("The producer was closed before the record was acknowledged")
