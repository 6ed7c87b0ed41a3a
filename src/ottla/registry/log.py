"""The topic of schemas as a replicated state machine: every node reads it, the primary appends to it.

`start` reads the topic to its end and follows it from then on. Only the reader applies records to the state, in the
order of their offsets, so that all nodes have the same state; it reads only committed records.

`change(build)` runs `build(state)`, which returns records to append and a result, or raises. Without records the result
is returned at once, on every node. Otherwise only the primary may append (see `writer`): other nodes raise NotPrimary,
and the caller forwards the request. The result is returned when the records are committed and applied on this node.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.clients import AsyncConsumer
from ottla.clients.errors import ClientError
from ottla.common.ids import TopicPartition
from ottla.registry.comparisons import NotCompared
from ottla.registry.errors import RegistryError
from ottla.registry.topic import LogSettings, PreparedTopic, prepare_topic
from ottla.registry.writer import Build, NotPrimary, Writer

if TYPE_CHECKING:
    from ottla.registry.state import State

__all__ = ["NotPrimary", "SchemaLog"]

logger = logging.getLogger(__name__)

R = TypeVar("R")

_LOADING_POLL_S: Final = 0.02
_POLL_S: Final = 5.0
_RECORDS: Final = 10_000
_RETRY_S: Final = 1.0


class SchemaLog:
    """The topic and its state. Belongs to one event loop."""

    def __init__(self, settings: LogSettings, state: State) -> None:
        self.state = state
        self.settings = settings
        self.loaded = asyncio.Event()
        """Set when the state contains everything that the topic had at the start."""
        self.term_ended: Callable[[], None] = lambda: None
        """Called when this node cannot append any more, because of an error or since another node has fenced it."""
        self._partition = TopicPartition(settings.topic.name, 0)
        self._consumer: AsyncConsumer[bytes, bytes] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._applied = _Reached()
        self._topic = PreparedTopic(0, "")
        self._writer: Writer | None = None
        self._handover = asyncio.Lock()

    async def start(self) -> asyncio.Task[None]:
        """Prepare the topic and begin to read; the returned task ends only with an error that a retry cannot fix.

        Raises Failure for a topic that cannot be used, and ClientError.
        """
        settings = self.settings
        self._topic = await prepare_topic(settings.clients, settings.topic, settings.init_timeout_s)
        self._consumer = AsyncConsumer(
            {
                **settings.clients,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.max.wait.ms": 5000,
            }
        )
        self._consumer.assign([self._partition])
        self._reader = asyncio.create_task(self._read(self._consumer), name="read schemas")
        return self._reader

    async def close(self) -> None:
        """Stop to lead and to read."""
        await self.follow()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])
        if self._consumer is not None:
            await self._consumer.close(1.0)

    # -- reading ------------------------------------------------------------------------------------------------

    async def _read(self, consumer: AsyncConsumer[bytes, bytes]) -> None:
        end: int | None = None
        while True:
            try:
                if end is None:
                    end = (await consumer.end_offsets([self._partition]))[self._partition]
                if not self.loaded.is_set() and await consumer.position(self._partition) >= end:
                    logger.info("Read the topic %s up to offset %d", self._partition.topic, end)
                    self.loaded.set()
                wait_s = _POLL_S if self.loaded.is_set() else _LOADING_POLL_S
                records = await consumer.poll(wait_s, max_records=_RECORDS)
            except ClientError as error:
                if not error.retriable:
                    raise
                logger.warning("Reading the topic %s again: %s", self._partition.topic, error)
                await asyncio.sleep(_RETRY_S)
                continue
            for record in records:
                self.state.apply(record.key, record.value, record.offset, record.timestamp)
            if records:
                self._applied.advance(records[-1].offset)

    async def reach(self, offset: int) -> None:
        """Wait until the record at `offset` is applied."""
        await self._applied.wait(offset)

    # -- writing ------------------------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        """The id of the cluster of the topic, after the start."""
        return self._topic.cluster_id

    @property
    def is_primary(self) -> bool:
        """Whether this node appends: it is the primary, and has everything that earlier primaries wrote."""
        return self._writer is not None and self._writer.is_ready

    async def lead(self) -> None:
        """Become the primary: begin to fence the previous one. Changes wait until that is done."""
        async with self._handover:
            if self._writer is None or self._writer.is_closed:
                self._writer = Writer(self.settings, self._topic.largest_bytes, self.state, self.reach, self.term_ended)
                self._writer.start()

    async def follow(self) -> None:
        """Stop to be the primary: changes that are not committed raise NotPrimary."""
        async with self._handover:
            writer, self._writer = self._writer, None
            if writer is not None:
                await writer.close()

    async def change(self, build: Build[State, R]) -> R:
        """Append what `build` returns, if this node is the primary.

        Raises NotPrimary, the RegistryError of `build`, and a RegistryError (50001, 50002) if the records could not be
        appended in time.
        """
        if self._writer is None:
            return self._unchanged(build)
        return await self._writer.change(build)

    def _unchanged(self, build: Build[State, R]) -> R:
        """Return the result of a change that needs no records; anything else is for the primary to decide."""
        try:
            records, result = build(self.state)
        except (NotCompared, RegistryError) as error:
            raise NotPrimary from error
        if records:
            raise NotPrimary
        return result


class _Reached:
    """Waits for offsets."""

    def __init__(self) -> None:
        self._offset = -1
        self._number = itertools.count()
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []

    def advance(self, offset: int) -> None:
        self._offset = offset
        while self._waiters and self._waiters[0][0] <= offset:
            waiter = heapq.heappop(self._waiters)[2]
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, offset: int) -> None:
        if offset > self._offset:
            waiter = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiters, (offset, next(self._number), waiter))
            await waiter
