"""The producer for asyncio: `AsyncProducer` belongs to one event loop. `producer` has the blocking one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack

from ottla.clients import late
from ottla.clients.cluster import PartitionInfo
from ottla.clients.dropped import when_dropped_async
from ottla.clients.errors import ClientError
from ottla.clients.offsets import GroupMetadata, OffsetAndMetadata
from ottla.clients.producer._encoder import NO_HEADERS, in_callback
from ottla.clients.producer.base import CLOSE_TIMEOUT_S, ArrowRows, K, ProducerBase, V
from ottla.clients.producer.batch import Batch
from ottla.clients.producer.delivery import AsyncBatches, AsyncDelivery
from ottla.clients.producer.fork_and_exit import unacknowledged
from ottla.clients.producer.transaction_calls import (
    AsyncTransactionScope,
    offsets_of_group,
    wait_for_call_async,
    wait_for_last_call_async,
)
from ottla.clients.producer.transactions import Call, Transactions
from ottla.clients.producer.waiting import settle, wait_async
from ottla.clients.typed_settings import ProducerConfig
from ottla.common.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.clients.consumer import AsyncConsumer

T = TypeVar("T")


class AsyncProducer(ProducerBase[AsyncDelivery], Generic[K, V]):
    """Sends records to topics from asyncio; made of settings by Kafka's names or Python's.

        async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
            await (await producer.send("flights", b"value", key=b"JFK"))

    Belongs to the loop on which its methods are first called. Raises ConfigurationError.
    """

    _delivery = AsyncDelivery

    def __init__(self, config: Mapping[str, object] | None = None, /, **settings: Unpack[ProducerConfig]) -> None:
        super().__init__(config, **settings)
        self._sender.call_soon = lambda run: asyncio.get_running_loop().call_soon(run)
        self._core.runtime.hurry = self._sender.wake
        sender = self._sender
        self._dropped = when_dropped_async(
            self, sender.describe, lambda: sender.loop, lambda: sender.finish(unacknowledged())
        )

    def _check_open(self) -> None:
        super()._check_open()
        self._sender.check_loop()

    async def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | datetime | None = None,
        headers: Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]] = NO_HEADERS,
        callback: Callable[[AsyncDelivery], object] | None = None,
    ) -> AsyncDelivery:
        """The future of the record: await it for its acknowledgement. As `Producer.send`; waits instead of blocking."""
        record = self._prepare(topic, key, value, headers, timestamp_ms)
        return await self._append_or_wait(topic, partition, lambda: self._append(topic, partition, record, callback))

    async def send_batch(self, topic: str, rows: ArrowRows) -> AsyncBatches:
        """The future of all rows: await it for their AppendedRanges. As `Producer.send_batch`."""
        self._check_open()
        rows = late.columns.as_arrow(rows)

        count = await self._append_or_wait(topic, None, lambda: self._accumulator.partition_count(topic) or None)
        pieces = self._encode_rows(topic, rows, count)
        window = late.columns.Window(self._sender.window(topic, count))
        batches: list[Batch] = []
        for group in pieces:
            start = len(batches)
            await self._append_or_wait(topic, None, lambda todo=group: self._append_encoded(topic, todo, batches))  # type: ignore[misc]
            await asyncio.sleep(0)  # lets the loop send the group and run other tasks
            awaited = window.add(batches[start:])
            if awaited is not None and not awaited.announced:
                await wait_async(awaited)
        return AsyncBatches(batches)

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The partitions of the topic with their leaders and replicas. Waits and raises as `send`."""
        self._check_open()
        await self._append_or_wait(topic, None, lambda: self._accumulator.partition_count(topic) or None)
        return self._sender.cluster.view.partition_infos(topic)

    async def purge(self, *, in_queue: bool = True, in_flight: bool = True) -> None:
        """Fail records, as `Producer.purge`. Their callbacks have run when this returns."""
        self._check_open()
        self._sender.execute(self._purged(in_queue=in_queue, in_flight=in_flight))

    async def flush(self, timeout_s: float | None = None) -> int:
        """Wait until all records sent so far are acknowledged or failed.

        Returns the number of records that are still pending: 0 unless time ran out. The callbacks of the others have
        run, coroutines included. Raises ClientError in a callback.
        """
        if in_callback.get():
            raise ClientError("A callback must not flush or close its producer: it would wait for itself")
        self._sender.check_loop()
        with self._lock:
            batches = self._core.begin_flush()
        self._sender.wake()
        try:
            async with asyncio.timeout(timeout_s):
                for batch in batches:
                    if not batch.announced:
                        await wait_async(batch)
        except TimeoutError:
            return sum(batch.count for batch in batches if not batch.announced)
        finally:
            with self._lock:
                self._core.end_flush()
        return 0

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Flush for at most `timeout_s` seconds, and fail the remaining records with Closed.

        A second call does nothing. Raises ClientError in a callback.
        """
        if self._closed:
            return
        if in_callback.get():
            raise ClientError("A callback must not flush or close its producer: it would wait for itself")
        self._sender.check_loop()
        self._closed = True
        self._dropped.detach()
        deadline = time.monotonic() + timeout_s
        try:
            if (call := self._begin_close()) is not None:
                await wait_for_last_call_async(call, self._lock, timeout_s)
            await self.flush(max(0.0, deadline - time.monotonic()))
        finally:
            await self._sender.close(unacknowledged())

    async def init_transactions(self, timeout_s: float | None = None, *, transactional_id: str | None = None) -> None:
        """Begin to use the transactional id, as `Producer.init_transactions`."""
        await self._wait_for(lambda transactions: transactions.initialize(transactional_id), timeout_s)

    async def begin_transaction(self) -> None:
        """Begin a transaction, as `Producer.begin_transaction`. Does not wait."""
        self._call(lambda transactions: transactions.begin())

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group: str | GroupMetadata,
        timeout_s: float | None = None,
    ) -> None:
        """Commit offsets together with the transaction, as `Producer.send_offsets_to_transaction`."""
        row = offsets_of_group(offsets, group)
        if row.offsets:
            await self._wait_for(lambda transactions: transactions.send_offsets(row), timeout_s)

    async def commit_transaction(
        self,
        timeout_s: float | None = None,
        *,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        group: str | GroupMetadata = "",
    ) -> None:
        """Commit the transaction, as `Producer.commit_transaction`."""
        row = offsets_of_group(offsets, group) if offsets else None
        await self._wait_for(lambda transactions: transactions.commit(row), timeout_s)

    async def abort_transaction(self, timeout_s: float | None = None) -> None:
        """Abort the transaction, as `Producer.abort_transaction`."""
        await self._wait_for(lambda transactions: transactions.abort(), timeout_s)

    def transaction(self, consumer: AsyncConsumer[Any, Any] | None = None) -> AsyncTransactionScope:
        """Begin a transaction in an async with statement, as `Producer.transaction`."""
        return AsyncTransactionScope(self, consumer)

    async def _wait_for(self, begin: Callable[[Transactions], Call], timeout_s: float | None) -> None:
        if in_callback.get():
            raise ClientError("A callback must not wait for a transaction: it would wait for itself")
        call = self._call(begin)
        self._sender.wake()
        await wait_for_call_async(call, self._lock, self._limit_s(timeout_s))

    async def _append_or_wait(self, topic: str, partition: int | None, attempt: Callable[[], T | None]) -> T:
        deadline = time.monotonic() + self._settings.max_block_ms / 1000
        since = self._core.refresh.version
        while True:
            with self._lock:
                made = attempt()
                if made is None:
                    self._raise_immediate_error(topic, partition, since)
                    changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._accumulator.wait_for_change(lambda changed=changed: settle(changed))  # type: ignore[misc]
            if self._accumulator.needs_step:
                self._sender.wake()
            if made is not None:
                return made
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    await changed
            except TimeoutError:
                with self._lock:
                    raise self._accumulator.timeout_error(topic, partition) from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
