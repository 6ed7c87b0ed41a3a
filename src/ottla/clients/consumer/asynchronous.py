"""The consumer for asyncio. It runs on the event loop of the code that creates it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, Unpack

from ottla.clients import late
from ottla.clients.cluster import PartitionInfo
from ottla.clients.consumer.collectors import Collector, RecordCollector
from ottla.clients.consumer.interface import (
    ARROW_RECORDS,
    CLOSE_S,
    REVOKE_COMMIT_S,
    ConsumerInterface,
    Offsets,
    timestamps_by_partition,
)
from ottla.clients.consumer.member_states import Duty
from ottla.clients.consumer.record import K, Record, V
from ottla.clients.consumer.settings import EARLIEST, LATEST
from ottla.clients.dropped import when_dropped_async
from ottla.clients.errors import ClientError
from ottla.clients.offsets import OffsetAndMetadata
from ottla.clients.typed_settings import ConsumerConfig
from ottla.common.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

logger = logging.getLogger("ottla.clients.consumer")
CHECK_INTERVAL_S: Final = 0.005
"""How often `close` checks whether a poll of another task has ended."""


class AsyncConsumer(ConsumerInterface[K, V]):
    """Reads records from Ottla or any Kafka on an asyncio loop; `Consumer` with `await`. Create it within the loop.

    Listeners may be coroutine functions. `async with` closes it; `async for` reads until it is closed.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **options: Unpack[ConsumerConfig]) -> None:
        self._ready = asyncio.Event()
        super().__init__(settings, options, self._ready.set)
        client, loop = self._client, asyncio.get_running_loop()
        client.start(loop)
        self._dropped = when_dropped_async(self, client.describe, lambda: loop, lambda: client.close(CLOSE_S))

    def _caller(self) -> object:
        return asyncio.current_task()

    # -- reading -------------------------------------------------------------------------------------------------

    async def poll(self, timeout_s: float = 1.0, *, max_records: int | None = None) -> list[Record[K, V]]:
        """Return the next records, at most `max_records` (max.poll.records); an empty list after `timeout_s` seconds.

        As `Consumer.poll`.
        """
        self._begin()
        try:
            if self._pending:
                return self._take_pending()
            collector = RecordCollector(self._settings.max_poll_records if max_records is None else max_records)
            await self._poll(timeout_s, collector)
            return self._deserialized(collector.records)
        finally:
            self._done()

    async def poll_arrow(self, timeout_s: float = 1.0, *, max_records: int = ARROW_RECORDS) -> pa.RecordBatch:
        """Return the next records as one Arrow batch; no rows after `timeout_s` seconds. As `Consumer.poll_arrow`."""
        collector = late.arrow.arrow_collector(max_records)
        self._begin()
        try:
            self._give_back_pending()
            await self._poll(timeout_s, collector)
        finally:
            self._done()
        return late.arrow.to_arrow(collector)

    async def _poll(self, timeout_s: float, collector: Collector) -> None:
        deadline = time.monotonic() + timeout_s
        client = self._client
        client.begin_poll()
        try:
            while True:
                self._ready.clear()
                self._raise_wakeup()
                duty = client.step(collector)
                if duty is not None:
                    await self._do(duty)
                elif len(collector) or not await self._wait_until_ready(deadline):
                    return
        finally:
            client.end_poll()

    async def _wait_until_ready(self, deadline: float) -> bool:
        """Wait until the poll can make progress, at most to the deadline. Return False if the poll must end now."""
        left_s = deadline - time.monotonic()
        if left_s <= 0 or self._closing:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await self._ready.wait()
        return True

    async def _do(self, duty: Duty, commit_timeout_s: float = REVOKE_COMMIT_S) -> None:
        if duty.kind == "revoked" and self._client.core.auto_commits:
            await self._commit_processed(commit_timeout_s)
        listener = self._listeners.get(duty.kind)
        try:
            if listener is not None:
                result = listener(list(duty.partitions))
                if inspect.isawaitable(result):
                    await result
        finally:
            self._client.duty_done(duty)

    async def _commit_processed(self, timeout_s: float) -> None:
        try:
            await self._client.commit(None, timeout_s)
        except ClientError as error:
            logger.warning("Commit of positions before partitions are revoked failed: %s", error)

    def __aiter__(self) -> Self:
        """Yield records one at a time. Ends when the consumer is closed."""
        return self

    async def __anext__(self) -> Record[K, V]:
        while not self._pending:
            if self._closing:
                raise StopAsyncIteration
            self._pending.extend(await self.poll(1.0))
        return self._pending.popleft()

    async def unsubscribe(self) -> None:
        """Stop reading and leave the group. May commit, and calls `on_revoked`."""
        self._begin()
        try:
            self._settle()
            self._client.change(lambda core: core.unsubscribe())
            while (duty := self._client.step(None)) is not None:
                await self._do(duty)
            self._listeners = {}
        finally:
            self._done()

    # -- positions -----------------------------------------------------------------------------------------------

    async def commit(self, offsets: Offsets | None = None, timeout_s: float | None = None) -> None:
        """Commit these offsets of the next records to read, or (None) those after all records that polls returned.

        As `Consumer.commit`.
        """
        await self._client.commit(self._commit_plan(offsets), timeout_s)

    async def committed(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets of the group; None for a partition without."""
        return await self._client.committed([TopicPartition(*tp) for tp in partitions], timeout_s)

    async def position(self, partition: TopicPartition | tuple[str, int], timeout_s: float | None = None) -> int:
        """Return the offset of the next record that a poll returns; waits until it is known. Raises NotAssigned."""
        tp = TopicPartition(*partition)
        for record in self._pending:
            if record.topic_partition == tp:
                return record.offset
        return await self._client.position(tp, timeout_s)

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int | datetime], timeout_s: float | None = None
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """Return (offset, timestamp in ms) of the first record not older than each timestamp; None without such."""
        return await self._client.queries.list_offsets(timestamps_by_partition(timestamps_ms), timeout_s)

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return await self._log_offsets(partitions, EARLIEST, timeout_s)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition; with read_committed, the last stable offset."""
        return await self._log_offsets(partitions, LATEST, timeout_s)

    async def _log_offsets(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], timestamp: int, timeout_s: float | None
    ) -> dict[TopicPartition, int]:
        rows = await self._client.queries.list_offsets({TopicPartition(*tp): timestamp for tp in partitions}, timeout_s)
        return {tp: row[0] for tp, row in rows.items() if row is not None}

    async def partitions_of(self, topic: str, timeout_s: float | None = None) -> list[int]:
        """Return the partitions of a topic, in order. Raises UnknownTopicOrPartition."""
        return await self._client.queries.partitions_of(topic, timeout_s)

    async def partitions_for(self, topic: str, timeout_s: float | None = None) -> list[PartitionInfo]:
        """Return the partitions of a topic with leaders and replicas. Raises UnknownTopicOrPartition."""
        return await self._client.queries.partition_infos(topic, timeout_s)

    async def topics(self, timeout_s: float | None = None) -> dict[str, list[int]]:
        """Return every topic and its partitions, without internal topics."""
        return await self._client.queries.topics(timeout_s)

    # -- closing -------------------------------------------------------------------------------------------------

    async def close(self, timeout_s: float = CLOSE_S) -> None:
        """Commit the positions (with auto-commit), call `on_revoked`, leave the group, close the connections.

        As `Consumer.close`.
        """
        await self._close(timeout_s, settle=True)

    async def _close(self, timeout_s: float, *, settle: bool) -> None:
        if not self._begin_close():
            return
        self._dropped.detach()
        deadline = time.monotonic() + timeout_s
        while not (has_turn := self._turn.acquire(blocking=False)) and time.monotonic() < deadline - timeout_s / 2:
            await asyncio.sleep(CHECK_INTERVAL_S)
        if has_turn and self._client.closed:  # another task has closed it
            self._turn.release()
            return
        try:
            if has_turn:
                await self._release(min(REVOKE_COMMIT_S, max(0.0, deadline - time.monotonic()) / 2), settle=settle)
        finally:
            await self._client.close(max(0.0, deadline - time.monotonic()))
            self._ready.set()
            if has_turn:
                self._turn.release()

    async def _release(self, commit_timeout_s: float, *, settle: bool) -> None:
        """Commit, and revoke the partitions."""
        if settle:
            self._settle()
        duty = self._last_duty()
        if duty is not None:
            await self._do(duty, commit_timeout_s)
        elif self._client.core.auto_commits:
            await self._commit_processed(commit_timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close(CLOSE_S, settle=error is None)
