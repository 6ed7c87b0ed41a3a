"""Writes statuses in the background; of several with one key, the last one.

A status that cannot be written is written again, until a newer one is put or another worker has written one: a state
that was lost would be shown wrong until it changes. `flush` waits for what was put before: the work of this worker is
started elsewhere only after it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ottla.clients import AsyncProducer
from ottla.clients.errors import AuthenticationFailed, ClientError, DeliveryTimedOut, NotAuthorized

logger = logging.getLogger(__name__)

_CLOSE_S: Final = 2.0
_RETRY_S: Final = 1.0
_LONGEST_RETRY_S: Final = 10.0
_PASSING: Final = (DeliveryTimedOut, AuthenticationFailed, NotAuthorized)
"""Errors beside retriable ones after which a status is written again: brokers, passwords and rights come back."""


class _Status(NamedTuple):
    key: str
    value: bytes | None
    is_current: Callable[[], bool]


class StatusWriter:
    """The producer of statuses of one worker. Belongs to one event loop."""

    def __init__(self, clients: Mapping[str, Any], topic: str) -> None:
        self._topic = topic
        self._producer: AsyncProducer[bytes, bytes] = AsyncProducer({**clients, "acks": "all", "linger.ms": 5})
        self._waiting: dict[str, _Status] = {}
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.create_task(self._run(), name="write statuses")

    def put(self, key: str, value: bytes | None, is_current: Callable[[], bool] = lambda: True) -> None:
        """Write a record soon. Does not wait. `is_current`: whether it is written again after a failure."""
        self._waiting[key] = _Status(key, value, is_current)
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
        pause_s = _RETRY_S
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            failed = await self._write()
            for each in failed:
                if each.key not in self._waiting and each.is_current():
                    self._waiting[each.key] = each
            if not self._waiting:
                self._idle.set()
                pause_s = _RETRY_S
            elif failed:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_RETRY_S)
                self._arrived.set()

    async def _write(self) -> list[_Status]:
        """Write what waits. Returns what has to be written again."""
        sent, failed = [], []
        while self._waiting:
            status = self._waiting.pop(next(iter(self._waiting)))
            try:
                sent.append((status, await self._producer.send(self._topic, status.value, status.key.encode())))
            except ClientError as error:
                failed += _again(status, error)
        for status, each in sent:
            try:
                await each
            except ClientError as error:
                failed += _again(status, error)
        return failed


def _again(status: _Status, error: ClientError) -> list[_Status]:
    is_passing = error.retriable or isinstance(error, _PASSING)
    logger.log(
        logging.WARNING if is_passing else logging.ERROR,
        "Failed to write status update %s%s: %s", status.key, ", writing it again" if is_passing else "", error,
    )  # fmt: skip
    return [status] if is_passing else []
