"""Writes statuses in the background, in the order in which they were put.

A status that cannot be written within two minutes is logged and dropped: the next one of its connector or task tells
the state again. `flush` waits for what was put before: the work of this worker is started elsewhere only after it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from ottla.clients import AsyncProducer
from ottla.clients.errors import ClientError

logger = logging.getLogger(__name__)

_CLOSE_S: Final = 2.0
_MOST_WAITING: Final = 100_000


class StatusWriter:
    """The producer of statuses of one worker. Belongs to one event loop."""

    def __init__(self, clients: Mapping[str, Any], topic: str) -> None:
        self._topic = topic
        self._producer: AsyncProducer[bytes, bytes] = AsyncProducer({**clients, "acks": "all", "linger.ms": 5})
        self._waiting: deque[tuple[str, bytes | None]] = deque(maxlen=_MOST_WAITING)
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.create_task(self._run(), name="write statuses")

    def put(self, key: str, value: bytes | None) -> None:
        """Write a record soon. Does not wait."""
        self._waiting.append((key, value))
        self._idle.clear()
        self._arrived.set()

    async def flush(self, timeout_s: float) -> bool:
        """Wait until all is written; False after `timeout_s` seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Write the rest, for at most two seconds."""
        await self.flush(_CLOSE_S)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._producer.close(_CLOSE_S)

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            sent = []
            while self._waiting:
                key, value = self._waiting.popleft()
                try:
                    sent.append((key, await self._producer.send(self._topic, value, key.encode())))
                except ClientError as error:
                    logger.error("Failed to write status update %s: %s", key, error)  # noqa: TRY400 - expected
            for key, each in sent:
                try:
                    await each
                except ClientError as error:
                    logger.error("Failed to write status update %s: %s", key, error)  # noqa: TRY400 - expected
            if not self._waiting:
                self._idle.set()
