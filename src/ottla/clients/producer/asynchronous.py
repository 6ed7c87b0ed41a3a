"""The producer for asyncio: `AsyncProducer` belongs to one event loop. `producer` derives the blocking one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Unpack

from ottla.clients.cluster import PartitionInfo
from ottla.clients.deferred import Deferred
from ottla.clients.dropped import when_dropped_async
from ottla.clients.errors import ClientError, RequestTimedOut
from ottla.clients.offsets import GroupMetadata, OffsetAndMetadata
from ottla.clients.producer._encoder import NO_HEADERS, in_callback
from ottla.clients.producer.accumulator import SerializedRecord
from ottla.clients.producer.base import (
    CLOSE_TIMEOUT_S,
    ArrowRows,
    AsyncTransactionScope,
    K,
    ProducerBase,
    V,
    offsets_of_group,
    unacknowledged,
)
from ottla.clients.producer.batch import Batch
from ottla.clients.producer.delivery import AsyncBatches, AsyncDelivery, wait_async
from ottla.clients.typed_settings import ProducerConfig
from ottla.clients.waits import AsyncContext, AsyncWaits
from ottla.common.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.clients.consumer import AsyncConsumer


class AsyncProducer(ProducerBase[AsyncDelivery], AsyncContext, Generic[K, V]):
    """Sends records to topics from asyncio; made of settings by Kafka's names or Python's.

        async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
            await (await producer.send("flights", b"value", key=b"JFK"))

    Belongs to the loop on which its methods are first called. Raises ConfigurationError.
    """

    _delivery = AsyncDelivery

    def __init__(self, config: Mapping[str, object] | None = None, /, **settings: Unpack[ProducerConfig]) -> None:
        super().__init__(AsyncWaits(), config, **settings)
        self._sender.call_soon = lambda run: asyncio.get_running_loop().call_soon(run)
        self._core.runtime.hurry = self._sender.wake
        sender = self._sender
        self._dropped = when_dropped_async(
            self, sender.describe, lambda: sender.loop, lambda: sender.finish(unacknowledged())
        )

    def _check_open(self) -> None:
        super()._check_open()
        self._sender.check_loop()

    def _check_may_wait(self, what: str) -> None:
        if in_callback.get():
            raise ClientError(f"A callback must not {what}: it would wait for itself")
        self._sender.check_loop()

    async def _wait_for_batch(self, batch: Batch, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await wait_async(batch)
        except TimeoutError as error:
            raise RequestTimedOut(f"The records for {batch.queue} have no outcome after {timeout_s} s") from error

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
        try:
            record = self._prepare(topic, key, value, headers, timestamp_ms)
        except Deferred as needed:
            record = await self._prepare_later(needed, topic, key, value, headers, timestamp_ms)
        with self._lock:
            delivery = self._append(topic, partition, record, callback)
        if delivery is None:
            attempt = partial(self._append, topic, partition, record, callback)
            return await self._append_or_wait(topic, partition, attempt)
        if self._accumulator.needs_step:
            self._sender.wake()
        return delivery

    async def _prepare_later(self, needed: Deferred, *arguments: Any) -> SerializedRecord:
        """Prepare a record whose serializers need requests: at most one each for key and value."""
        await asyncio.to_thread(needed.resolve)
        try:
            return self._prepare(*arguments)
        except Deferred as more:
            await asyncio.to_thread(more.resolve)
        return self._prepare(*arguments)

    async def send_batch(self, topic: str, rows: ArrowRows) -> AsyncBatches:
        """The future of all rows: await it for their AppendedRanges. As `Producer.send_batch`."""
        return AsyncBatches(await self._send_batch(topic, rows))

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The partitions of the topic with their leaders and replicas. Waits and raises as `send`."""
        return await self._partitions_for(topic)

    async def purge(self, *, in_queue: bool = True, in_flight: bool = True) -> None:
        """Fail records that are not sent yet (`in_queue`) or sent but not acknowledged (`in_flight`) with Purged.

        Their callbacks have run when this returns; a blocking producer runs them in its own thread. Records in flight
        may be written all the same.
        """
        self._check_open()
        with self._lock:
            purged = self._core.purge(in_queue=in_queue, in_flight=in_flight)
        self._waits.call(self._sender.execute, purged)

    async def client_instance_id(self, timeout_s: float = 30.0) -> str:
        """The id of this producer in the metrics that it pushes (KIP-714); brokers assign it.

        Raises ClientError without enable.metrics.push, UnsupportedByBroker if brokers take no metrics, RequestTimedOut.
        """
        self._check_open()
        return await self._client_instance_id(timeout_s)

    async def flush(self, timeout_s: float | None = None) -> int:
        """Wait until all records sent so far are acknowledged or failed.

        Returns the number of records that are still pending: 0 unless time ran out. The callbacks of the others have
        run, coroutines included. Raises ClientError in a callback.
        """
        return await self._flush(timeout_s)

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Flush for at most `timeout_s` seconds, and fail the remaining records with Closed.

        A second call does nothing. Raises ClientError in a callback.
        """
        await self._close(timeout_s)

    async def init_transactions(self, timeout_s: float | None = None, *, transactional_id: str | None = None) -> None:
        """Begin to use the transactional id: fence its earlier producer, and end what that one left open.

        Call this before the first `begin_transaction`. Unlike in Java, it may be called again between two transactions:
        a program that shares the transactional id with others then fences them. `transactional_id` replaces the
        setting, for a program that has several in turn. Waits at most `timeout_s` (max.block.ms), then raises
        RequestTimedOut: call it again to wait longer. Raises TransactionalIdAuthorizationFailed and other BrokerErrors,
        after which it may be called again; and InvalidTransactionState without a transactional.id.
        """
        await self._wait_for(lambda transactions: transactions.initialize(transactional_id), timeout_s)

    async def begin_transaction(self) -> None:
        """Begin a transaction: the records sent from now on become visible together. Does not wait.

        Raises InvalidTransactionState, TransactionFailed, ProducerUnusable.
        """
        self._call(lambda transactions: transactions.begin())

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group: str | GroupMetadata,
        timeout_s: float | None = None,
    ) -> None:
        """Commit offsets of a group together with the transaction (KIP-447).

        `group` is the `group_metadata()` of the consumer that read the records, so that a member whose partitions were
        reassigned cannot commit; or a group id, for offsets that no consumer manages. Raises as `commit_transaction`.
        """
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
        """Wait until all records and offsets are acknowledged, and make them visible together.

        `offsets` and `group` are the same as for `send_offsets_to_transaction`, committed after the records without a
        call and a wait of their own.

        Raises TransactionFailed (call `abort_transaction`, then repeat the transaction), ProducerFenced and
        ProducerUnusable (close the producer), InvalidTransactionState. Raises RequestTimedOut after `timeout_s`
        (max.block.ms): the outcome is not known yet, call it again.
        """
        row = offsets_of_group(offsets, group) if offsets else None
        await self._wait_for(lambda transactions: transactions.commit(row), timeout_s)

    async def abort_transaction(self, timeout_s: float | None = None) -> None:
        """Drop the records of the transaction: those not sent yet fail with TransactionAborted.

        Raises as `commit_transaction`.
        """
        await self._wait_for(lambda transactions: transactions.abort(), timeout_s)

    def transaction(self, consumer: AsyncConsumer[Any, Any] | None = None) -> AsyncTransactionScope:
        """Begin a transaction in an async with statement, as `Producer.transaction`."""
        return AsyncTransactionScope(*self._transaction(consumer))
