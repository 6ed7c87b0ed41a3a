"""The consumer for asyncio. It runs on the event loop of the code that creates it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Self, Unpack

from ottla.clients import late
from ottla.clients.cluster import PartitionInfo
from ottla.clients.consumer.collectors import RecordCollector
from ottla.clients.consumer.interface import (
    ARROW_RECORDS,
    ConsumerInterface,
    Offsets,
    timestamps_by_partition,
)
from ottla.clients.consumer.reader import CLOSE_S
from ottla.clients.consumer.record import K, Record, V
from ottla.clients.consumer.settings import EARLIEST, LATEST
from ottla.clients.offsets import OffsetAndMetadata
from ottla.clients.typed_settings import ConsumerConfig
from ottla.clients.waits import AsyncContext, AsyncWaits
from ottla.common.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa


class AsyncConsumer(ConsumerInterface[K, V], AsyncContext):
    """Reads records from Ottla or any Kafka on an asyncio loop; `Consumer` with `await`. Create it within the loop.

    Listeners may be coroutine functions. `async with` closes it; `async for` reads until it is closed.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **options: Unpack[ConsumerConfig]) -> None:
        super().__init__(settings, options, AsyncWaits())
        self._run_on_loop()

    # -- reading -------------------------------------------------------------------------------------------------

    async def poll(self, timeout_s: float = 1.0, *, max_records: int | None = None) -> list[Record[K, V]]:
        """Return the next records, at most `max_records` (max.poll.records); an empty list after `timeout_s` seconds.

        The records of a partition are adjacent and in the order of their offsets. A poll also takes part in rebalances
        and calls the listeners. With auto-commit, a poll means that all records of earlier polls are processed.

        Raises CorruptRecords or DeserializationFailed, once, for records that cannot be read. Raises the errors that
        prevent the consumer from reading: of the group, of authorization, or of a position. Raises Wakeup after
        `wakeup`, and ConcurrentUse if another thread polls or a listener calls it.
        """
        self._begin()
        try:
            if self._pending:
                return self._take_pending()
            collector = RecordCollector(self._settings.max_poll_records if max_records is None else max_records)
            await self._poll(timeout_s, collector)
            return await self._deserialized(collector.records)
        except BaseException as error:  # also KeyboardInterrupt
            self._revert_poll(error)
            raise
        finally:
            self._done()

    async def poll_arrow(self, timeout_s: float = 1.0, *, max_records: int = ARROW_RECORDS) -> pa.RecordBatch:
        """Return the next records as one Arrow batch; no rows after `timeout_s` seconds. Otherwise as `poll`.

        Columns: key, value (binary), topic, partition, offset, timestamp (ms, UTC), headers (list of key and value).
        At most `max_records` rows and 64 MiB of records, or one record that is larger. An AvroDeserializer decodes its
        whole column, whose type is the reader's schema then; other deserializers are not applied.
        """
        collector = late.arrow.arrow_collector(max_records)
        self._begin()
        try:
            self._give_back_pending()
            await self._poll(timeout_s, collector)
            return await self._decoded(collector)
        except BaseException as error:  # also KeyboardInterrupt
            self._revert_poll(error)
            raise
        finally:
            self._done()

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

        Waits until they are committed, at most `timeout_s` (default.api.timeout.ms). Raises RebalanceInProgress
        (poll, then commit again), IllegalGeneration or UnknownMember (the partitions belong to another member now).
        """
        await self._waits.run(self._client.commit(self._commit_plan(offsets), timeout_s))

    async def committed(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets of the group; None for a partition without."""
        return await self._waits.run(self._client.committed([TopicPartition(*tp) for tp in partitions], timeout_s))

    async def position(self, partition: TopicPartition | tuple[str, int], timeout_s: float | None = None) -> int:
        """Return the offset of the next record that a poll returns; waits until it is known. Raises NotAssigned."""
        tp = TopicPartition(*partition)
        for record in self._pending:
            if record.topic_partition == tp:
                return record.offset
        return await self._waits.run(self._client.position(tp, timeout_s))

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int | datetime], timeout_s: float | None = None
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """Return (offset, timestamp in ms) of the first record not older than each timestamp; None without such."""
        return await self._waits.run(
            self._client.queries.list_offsets(timestamps_by_partition(timestamps_ms), timeout_s)
        )

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

    async def partitions_of(self, topic: str, timeout_s: float | None = None) -> list[int]:
        """Return the partitions of a topic, in order. Raises UnknownTopicOrPartition."""
        return await self._waits.run(self._client.queries.partitions_of(topic, timeout_s))

    async def partitions_for(self, topic: str, timeout_s: float | None = None) -> list[PartitionInfo]:
        """Return the partitions of a topic with leaders and replicas. Raises UnknownTopicOrPartition."""
        return await self._waits.run(self._client.queries.partition_infos(topic, timeout_s))

    async def topics(self, timeout_s: float | None = None) -> dict[str, list[int]]:
        """Return every topic and its partitions, without internal topics."""
        return await self._waits.run(self._client.queries.topics(timeout_s))

    async def client_instance_id(self, timeout_s: float = 30.0) -> str:
        """Return the id of this consumer in the metrics that it pushes (KIP-714); brokers assign it.

        Raises ClientError without enable.metrics.push, UnsupportedByBroker if brokers take no metrics, RequestTimedOut.
        """
        return await self._waits.run(self._client.runner.cluster.client_instance_id(timeout_s))

    # -- closing -------------------------------------------------------------------------------------------------

    async def close(self, timeout_s: float = CLOSE_S) -> None:
        """Commit the positions (with auto-commit), call `on_revoked`, leave the group, close the connections.

        Takes at most `timeout_s` seconds, also if no broker responds. A poll of another thread or task returns its
        records, and an iteration ends. A second call does nothing. Raises ConcurrentUse in a listener.
        """
        await self._close(timeout_s, settle=True)
