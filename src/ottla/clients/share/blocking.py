"""The share consumer for threads. It derives its methods from `AsyncShareConsumer`, and waits in the caller."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self, Unpack

from ottla.clients.consumer.record import K, V
from ottla.clients.driver import Driver
from ottla.clients.dropped import when_dropped
from ottla.clients.share.asynchronous import AsyncShareConsumer
from ottla.clients.share.interface import CLOSE_S, ShareInterface
from ottla.clients.typed_settings import ShareConsumerConfig
from ottla.clients.waits import BlockingWaits, blocking, finish


class ShareConsumer(ShareInterface[K, V]):
    """Shares the records of topics with the other members of its group, like a queue; blocks the calling thread.

    Each record is delivered to one member at a time, and again if it is released or its lock times out, up to the
    group's delivery limit. With share.acknowledgement.mode=implicit the next poll accepts the records of the previous
    one; with explicit, `acknowledge` decides about each record. If a `with` block ends with an exception, the records
    of the last poll are released, unless they were acknowledged explicitly.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **options: Unpack[ShareConsumerConfig]) -> None:
        waits = BlockingWaits()
        super().__init__(settings, options, waits)
        self._driver = waits.driver = Driver("ottla-share-consumer")
        client = self._client
        self._dropped = when_dropped(self, client.describe, self._driver, lambda: client.close(CLOSE_S))
        self._driver.call_soon(client.start, self._driver.loop)

    poll = blocking(AsyncShareConsumer[K, V].poll)
    commit_sync = blocking(AsyncShareConsumer[K, V].commit_sync)
    close = blocking(AsyncShareConsumer[K, V].close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        finish(self._close(CLOSE_S, settle=error is None))
