"""Follows one of Connect's topics: each record is applied once, in the order of its partition.

`start` returns when everything was applied that the topic had at that time; from then on a task follows the topic.
`read_to_end` returns when everything was applied that the topic has now, also what other workers wrote.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ottla.clients import AsyncConsumer, Record
from ottla.clients.errors import AuthenticationFailed, ClientError, NotAuthorized, Wakeup
from ottla.common.ids import TopicPartition
from ottla.connect.errors import ConnectError, RetriableError

logger = logging.getLogger(__name__)

_WAITED_POLL_S: Final = 0.02
_POLL_S: Final = 5.0
_RECORDS: Final = 10_000
_RETRY_S: Final = 0.5
_DENIED_RETRY_S: Final = 3.0
_CLOSE_S: Final = 1.0
_DENIED: Final = (AuthenticationFailed, NotAuthorized)
"""Errors that end when an operator corrects a password or a right."""


class _Waiter(NamedTuple):
    ends: Mapping[TopicPartition, int]
    done: asyncio.Future[None]


class TopicLog:
    """One topic. Belongs to one event loop."""

    def __init__(
        self, clients: Mapping[str, Any], topic: str, apply: Callable[[Record[bytes, bytes]], None], *, committed: bool
    ) -> None:
        """`apply` receives each record and does not raise. `committed`: skip open and aborted transactions."""
        self.topic = topic
        self.failed: asyncio.Future[None] | None = None
        """Completes with the error that ended the reading, after `start`."""
        self._settings = {
            **clients,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "auto.offset.reset": "earliest",
            "fetch.max.wait.ms": 5000,
        }
        self._apply = apply
        self._consumer: AsyncConsumer[bytes, bytes] | None = None
        self._partitions: list[TopicPartition] = []
        self._positions: dict[TopicPartition, int] = {}
        self._waiters: list[_Waiter] = []
        self._reader: asyncio.Task[None] | None = None

    async def start(self, partitions: int, timeout_s: float) -> None:
        """Read the topic to its end. Raises ConnectError, ClientError."""
        self._consumer = AsyncConsumer(self._settings)
        self._partitions = [TopicPartition(self.topic, each) for each in range(partitions)]
        self._consumer.assign(self._partitions)
        self.failed = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read(self._consumer, self.failed), name=f"read {self.topic}")
        await self.read_to_end(timeout_s)

    async def close(self) -> None:
        """Stop to read."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])
        self._fail(ConnectError(f"The worker stops to read the topic {self.topic}"))
        if self._consumer is not None:
            await self._consumer.close(_CLOSE_S)

    async def read_to_end(self, timeout_s: float) -> None:
        """Wait until the records that the topic has now are applied. Raises ConnectError after `timeout_s` seconds."""
        assert self._consumer is not None
        try:
            async with asyncio.timeout(timeout_s):
                ends = await self._ends(self._consumer)
                if self._reader is None or self._reader.done():
                    raise ConnectError(f"The topic {self.topic} is not read any more: see the log")
                waiter = _Waiter(ends, asyncio.get_running_loop().create_future())
                self._waiters.append(waiter)
                self._consumer.wakeup()
                await waiter.done
        except TimeoutError as error:
            raise RetriableError(
                f"Could not read to the end of the topic {self.topic} within {timeout_s:g} s"
            ) from error

    async def _ends(self, consumer: AsyncConsumer[bytes, bytes]) -> Mapping[TopicPartition, int]:
        while True:
            try:
                return await consumer.end_offsets(self._partitions)
            except ClientError as error:
                if not error.retriable:
                    kind = RetriableError if isinstance(error, _DENIED) else ConnectError
                    raise kind(f"Cannot find the end of the topic {self.topic}: {error}") from error
                await asyncio.sleep(_RETRY_S)

    async def _read(self, consumer: AsyncConsumer[bytes, bytes], failed: asyncio.Future[None]) -> None:
        try:
            while True:
                try:
                    records = await consumer.poll(_WAITED_POLL_S if self._waiters else _POLL_S, max_records=_RECORDS)
                except Wakeup:
                    records = []
                except ClientError as error:
                    if not error.retriable and not isinstance(error, _DENIED):
                        raise
                    logger.warning("Reading the topic %s again: %s", self.topic, error)
                    await asyncio.sleep(_RETRY_S if error.retriable else _DENIED_RETRY_S)
                    continue
                for record in records:
                    self._apply(record)
                if self._waiters:
                    await self._settle(consumer)
        except ClientError as error:
            logger.exception("Cannot read the topic %s any more", self.topic)
            self._fail(ConnectError(f"Cannot read the topic {self.topic}: {error}"))
            failed.set_exception(error)

    async def _settle(self, consumer: AsyncConsumer[bytes, bytes]) -> None:
        for partition in self._partitions:
            try:
                self._positions[partition] = await consumer.position(partition, _RETRY_S)
            except ClientError as error:  # not known yet
                logger.debug("The position in %s is not known: %s", partition, error)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if waiter.done.done():
                continue
            if all(self._positions.get(partition, -1) >= end for partition, end in waiter.ends.items()):
                waiter.done.set_result(None)
            else:
                self._waiters.append(waiter)

    def _fail(self, error: ConnectError) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done.done():
                waiter.done.set_exception(error)
