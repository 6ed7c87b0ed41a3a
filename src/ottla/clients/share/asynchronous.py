"""The share consumer for asyncio. It runs on the event loop of the code that creates it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, Unpack

from ottla.clients.consumer.record import K, Record, V
from ottla.clients.dropped import when_dropped_async
from ottla.clients.share.interface import CLOSE_S, CommitResults, ShareInterface
from ottla.clients.typed_settings import ShareConsumerConfig


class AsyncShareConsumer(ShareInterface[K, V]):
    """Shares the records of topics with the other members of its group; `ShareConsumer` with `await`."""

    def __init__(self, settings: Mapping[str, object] | None = None, /, **options: Unpack[ShareConsumerConfig]) -> None:
        self._ready = asyncio.Event()
        super().__init__(settings, options, self._ready.set)
        client, loop = self._client, asyncio.get_running_loop()
        client.start(loop)
        self._dropped = when_dropped_async(self, client.describe, lambda: loop, lambda: client.close(CLOSE_S))

    async def poll(self, timeout_s: float = 1.0, *, max_records: int | None = None) -> list[Record[K, V]]:
        """Return the next records, at most `max_records`; an empty list after `timeout_s`. As `ShareConsumer.poll`."""
        self._begin()
        try:
            return self._deserialized(await self._poll(timeout_s, max_records or self._settings.acquire.max_records))
        finally:
            self._turn.release()

    async def _poll(self, timeout_s: float, limit: int) -> list[Record[Any, Any]]:
        deadline = time.monotonic() + timeout_s
        self._client.begin_poll(limit)
        try:
            while True:
                self._ready.clear()
                records = self._client.fill()
                left_s = deadline - time.monotonic()
                if records or left_s <= 0 or self._closing:
                    return records
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await self._ready.wait()
        finally:
            self._client.end_poll()

    async def commit_sync(self, timeout_s: float | None = None) -> CommitResults:
        """Send the acknowledgements and return the result of each partition. As `ShareConsumer.commit_sync`."""
        return await self._client.wait(self._commit(), timeout_s)

    def commit_async(self, callback: Callable[[CommitResults], Any] | None = None) -> None:
        """Send the acknowledgements without waiting; `callback` gets the result of each partition."""
        self._client.commit_later(self._commit(), callback)

    async def close(self, timeout_s: float = CLOSE_S) -> None:
        """Send the acknowledgements, release all other records and leave the group. As `ShareConsumer.close`."""
        await self._close(timeout_s, settle=True)

    async def _close(self, timeout_s: float, *, settle: bool) -> None:
        if self._closing:
            return
        self._closing = True
        self._dropped.detach()
        self._ready.set()
        await self._client.close(timeout_s, settle=settle)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close(CLOSE_S, settle=error is None)
