"""The consumer for asyncio, on the loop that it is used on first."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from ottla.clients.cluster import PartitionInfo
from ottla.clients.consumer.face import (
    ARROW_RECORDS,
    CLOSE_S,
    ON_TIME_S,
    ConsumerFace,
    Offsets,
    timestamps_by_partition,
)
from ottla.clients.consumer.membership import Duty
from ottla.clients.consumer.record import K, Record, V
from ottla.clients.consumer.requests import OffsetAndMetadata
from ottla.clients.consumer.sinks import ColumnSink, RecordSink, Sink
from ottla.clients.dropped import when_dropped_async
from ottla.clients.errors import ClientError
from ottla.clients.typed_settings import ConsumerConfig
from ottla.common.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

logger = logging.getLogger("ottla.clients.consumer")
TURN_S = 0.005


class AsyncConsumer(ConsumerFace[K, V]):
    """Reads records from Ottla or any Kafka on an asyncio loop; `Consumer` with `await`. Make it within the loop.

    Listeners may be coroutine functions. `async with` closes it; `async for` reads for ever.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **options: Unpack[ConsumerConfig]) -> None:
        self._ready = asyncio.Event()
        super().__init__(settings, options, self._ready.set)
        engine, loop = self._engine, asyncio.get_running_loop()
        engine.start(loop)
        self._dropped = when_dropped_async(self, engine.describe, lambda: loop, lambda: engine.close(CLOSE_S))

    def _me(self) -> object:
        return asyncio.current_task()

    # -- reading -------------------------------------------------------------------------------------------------

    async def poll(self, timeout_s: float = 1.0, *, max_records: int | None = None) -> list[Record[K, V]]:
        """The next records, at most `max_records` (max.poll.records); an empty list after `timeout_s` seconds.

        As `Consumer.poll`.
        """
        self._begin()
        try:
            if self._left:
                records, self._left = list(self._left), type(self._left)()
                return records
            sink = RecordSink(self._options["max_poll_records"] if max_records is None else max_records)
            await self._poll(timeout_s, sink)
            return self._deserialized(sink.records)
        finally:
            self._done()

    async def poll_arrow(self, timeout_s: float = 1.0, *, max_records: int = ARROW_RECORDS) -> pa.RecordBatch:
        """The next records as one Arrow batch; no rows after `timeout_s` seconds. As `Consumer.poll_arrow`."""
        from ottla.clients.consumer.arrow import to_arrow

        self._begin()
        try:
            if self._left:
                self._engine.change(lambda core: core.give_back(self._left))
                self._left.clear()
            sink = ColumnSink(max_records)
            await self._poll(timeout_s, sink)
        finally:
            self._done()
        return to_arrow(sink)

    async def _poll(self, timeout_s: float, sink: Sink) -> None:
        deadline = time.monotonic() + timeout_s
        engine = self._engine
        engine.begin_poll()
        try:
            while True:
                self._ready.clear()
                self._look_around()
                duty = engine.step(sink)
                if duty is not None:
                    await self._do(duty)
                elif len(sink):
                    return
                else:
                    left_s = deadline - time.monotonic()
                    if left_s <= 0 or self._ending:
                        return
                    try:
                        async with asyncio.timeout(left_s):
                            await self._ready.wait()
                    except TimeoutError:
                        continue
        finally:
            engine.end_poll()

    async def _do(self, duty: Duty, limit_s: float = ON_TIME_S) -> None:
        if duty.kind == "revoked" and self._engine.core.commits_by_itself:
            await self._commit_processed(limit_s)
        listener = self._listeners.get(duty.kind)
        try:
            if listener is not None:
                result = listener(list(duty.partitions))
                if inspect.isawaitable(result):
                    await result
        finally:
            self._engine.duty_done(duty)

    async def _commit_processed(self, limit_s: float) -> None:
        try:
            await self._engine.commit(None, limit_s)
        except ClientError as error:
            logger.warning("Positions are not committed before partitions are given up: %s", error)

    def __aiter__(self) -> Self:
        """Records for ever, one at a time. Ends when the consumer is closed."""
        return self

    async def __anext__(self) -> Record[K, V]:
        while not self._left:
            if self._ending:
                raise StopAsyncIteration
            self._left.extend(await self.poll(1.0))
        return self._left.popleft()

    async def unsubscribe(self) -> None:
        """Give up what it reads, and leave the group. May commit, and calls `on_revoked`."""
        self._begin()
        try:
            self._settle()
            self._engine.change(lambda core: core.unsubscribe())
            while (duty := self._engine.step(None)) is not None:
                await self._do(duty)
            self._listeners = {}
        finally:
            self._done()

    # -- positions -----------------------------------------------------------------------------------------------

    async def commit(self, offsets: Offsets | None = None, timeout_s: float | None = None) -> None:
        """Commit positions: these offsets of the next records to read, or (None) after all that was handed over.

        As `Consumer.commit`.
        """
        await self._engine.commit(self._to_commit(offsets), timeout_s)

    async def committed(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None for a partition without."""
        return await self._engine.committed([TopicPartition(*tp) for tp in partitions], timeout_s)

    async def position(self, partition: TopicPartition | tuple[str, int], timeout_s: float | None = None) -> int:
        """The offset of the next record that a poll hands over; waits until it is known. Raises NotAssigned."""
        tp = TopicPartition(*partition)
        for record in self._left:
            if record.topic_partition == tp:
                return record.offset
        return await self._engine.position(tp, timeout_s)

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int | datetime], timeout_s: float | None = None
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """(offset, its timestamp in ms) of the first record not older than each timestamp; None if there is none."""
        return await self._engine.list_offsets(timestamps_by_partition(timestamps_ms), timeout_s)

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return await self._ends(partitions, -2, timeout_s)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition; with read_committed of the last that is decided."""
        return await self._ends(partitions, -1, timeout_s)

    async def _ends(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], which: int, timeout_s: float | None
    ) -> dict[TopicPartition, int]:
        rows = await self._engine.list_offsets({TopicPartition(*tp): which for tp in partitions}, timeout_s)
        return {tp: row[0] for tp, row in rows.items() if row is not None}

    async def partitions_of(self, topic: str, timeout_s: float | None = None) -> list[int]:
        """The partitions of a topic, in order. Raises UnknownTopicOrPartition."""
        return await self._engine.partitions_of(topic, timeout_s)

    async def partitions_for(self, topic: str, timeout_s: float | None = None) -> list[PartitionInfo]:
        """The partitions of a topic with their leaders and replicas. Raises UnknownTopicOrPartition."""
        return await self._engine.partition_infos(topic, timeout_s)

    async def topics(self, timeout_s: float | None = None) -> dict[str, list[int]]:
        """Every topic and its partitions, without the cluster's own."""
        return await self._engine.topics(timeout_s)

    # -- the end -------------------------------------------------------------------------------------------------

    async def close(self, timeout_s: float = CLOSE_S) -> None:
        """Commit what was handed over (with auto-commit), call `on_revoked`, leave the group, end all connections.

        As `Consumer.close`.
        """
        await self._close(timeout_s, settle=True)

    async def _close(self, timeout_s: float, *, settle: bool) -> None:
        if not self._begin_to_end():
            return
        self._dropped.detach()
        deadline = time.monotonic() + timeout_s
        while not (has_turn := self._turn.acquire(blocking=False)) and time.monotonic() < deadline - timeout_s / 2:
            await asyncio.sleep(TURN_S)
        if has_turn and self._engine.closed:  # another task's close was quicker
            self._turn.release()
            return
        try:
            if has_turn:
                await self._give_up(min(ON_TIME_S, max(0.0, deadline - time.monotonic()) / 2), settle=settle)
        finally:
            await self._engine.close(max(0.0, deadline - time.monotonic()))
            self._ready.set()
            if has_turn:
                self._turn.release()

    async def _give_up(self, limit_s: float, *, settle: bool) -> None:
        if settle:
            self._settle()
        duty = self._last_duty()
        if duty is not None:
            await self._do(duty, limit_s)
        elif self._engine.core.commits_by_itself:
            await self._commit_processed(limit_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close(CLOSE_S, settle=error is None)
