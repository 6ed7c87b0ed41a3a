"""The share consumer for threads. Its network runs in a thread of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self, Unpack

from ottla.clients.consumer.record import K, Record, V
from ottla.clients.consumer.signal_safe_event import SignalSafeEvent
from ottla.clients.driver import Driver
from ottla.clients.dropped import when_dropped
from ottla.clients.share.interface import CLOSE_S, CommitResults, ShareInterface
from ottla.clients.typed_settings import ShareConsumerConfig

GRACE_S: Final = 1.0
"""How much longer than its own deadline the closing of the client may take."""


class ShareConsumer(ShareInterface[K, V]):
    """Shares the records of topics with the other members of its group, like a queue; blocks the calling thread.

    Each record is delivered to one member at a time, and again if it is released or its lock times out, up to the
    group's delivery limit. With share.acknowledgement.mode=implicit the next poll accepts the records of the previous
    one; with explicit, `acknowledge` decides about each record. If a `with` block ends with an exception, the records
    of the last poll are released, unless they were acknowledged explicitly.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **options: Unpack[ShareConsumerConfig]) -> None:
        self._ready = SignalSafeEvent()
        super().__init__(settings, options, self._ready.set)
        self._driver = Driver("ottla-share-consumer")
        client = self._client
        self._dropped = when_dropped(self, client.describe, self._driver, lambda: client.close(CLOSE_S))
        self._driver.call_soon(client.start, self._driver.loop)

    def poll(self, timeout_s: float = 1.0, *, max_records: int | None = None) -> list[Record[K, V]]:
        """Return the next records, at most `max_records` (max.poll.records); an empty list after `timeout_s` seconds.

        The poll accepts the records of the previous one, or sends their explicit acknowledgements. Raises ClientError
        if explicit acknowledgements are missing, CorruptRecords or DeserializationFailed, once, for records that cannot
        be read (they are released), and the errors that prevent the consumer from reading.
        """
        self._begin()
        try:
            return self._deserialized(self._poll(timeout_s, max_records or self._settings.acquire.max_records))
        finally:
            self._turn.release()

    def _poll(self, timeout_s: float, limit: int) -> list[Record[Any, Any]]:
        deadline = time.monotonic() + timeout_s
        self._client.begin_poll(limit)
        try:
            while True:
                self._ready.clear()
                records = self._client.fill()
                left_s = deadline - time.monotonic()
                if records or left_s <= 0 or self._closing:
                    return records
                self._ready.wait(left_s)
        finally:
            self._client.end_poll()

    def commit_sync(self, timeout_s: float | None = None) -> CommitResults:
        """Send the acknowledgements and return the result of each partition: None, or the error.

        With implicit acknowledgement it accepts all records that polls returned. After an error the records may be
        delivered again. Blocks for at most `timeout_s` (default.api.timeout.ms); raises RequestTimedOut.
        """
        return self._driver.run(self._client.wait(self._commit(), timeout_s))

    def commit_async(self, callback: Callable[[CommitResults], Any] | None = None) -> None:
        """Send the acknowledgements without waiting; `callback` gets the results, in the network's thread."""
        self._driver.call_soon(self._client.commit_later, self._commit(), callback)

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Send the acknowledgements (implicit: accept the records of the last poll), release all others, leave.

        Blocks for at most `timeout_s` seconds, also if no broker responds. A second call does nothing.
        """
        self._close(timeout_s, settle=True)

    def _close(self, timeout_s: float, *, settle: bool) -> None:
        if self._closing:
            return
        self._closing = True
        self._dropped.detach()
        self._ready.set()
        try:
            self._driver.run(self._client.close(timeout_s, settle=settle), timeout_s + GRACE_S)
        finally:
            self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(CLOSE_S, settle=error is None)
