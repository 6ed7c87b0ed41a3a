"""The public class `Producer`, which blocks, and which threads may share; `asynchronous` has the one for asyncio.

Both append records to the core and wait for their batches; the core makes all decisions. `Producer.send` appends to an
open batch itself (`_encoder.FastSend`), and wakes the loop in the producer's thread only for a new batch.
"""

from __future__ import annotations

import threading
import time
from _thread import allocate_lock
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from time import time_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack

from ottla.clients import late
from ottla.clients.cluster import PartitionInfo
from ottla.clients.driver import Driver
from ottla.clients.dropped import when_dropped
from ottla.clients.errors import ClientError, Closed, RequestTimedOut
from ottla.clients.offsets import GroupMetadata, OffsetAndMetadata
from ottla.clients.producer._encoder import NO_HEADERS, FastSend
from ottla.clients.producer._encoder import BlockingDelivery as Delivery
from ottla.clients.producer.base import CLOSE_TIMEOUT_S, ArrowRows, K, ProducerBase, V, checked_timestamp
from ottla.clients.producer.batch import COMPILED, Batch
from ottla.clients.producer.delivery import BlockingBatches
from ottla.clients.producer.fork_and_exit import open_producers, unacknowledged
from ottla.clients.producer.serializers import as_bytes
from ottla.clients.producer.transaction_calls import (
    TransactionScope,
    offsets_of_group,
    wait_for_call,
    wait_for_last_call,
)
from ottla.clients.producer.transactions import Call, Transactions
from ottla.clients.producer.waiting import BlockingWaits, wait
from ottla.clients.typed_settings import ProducerConfig
from ottla.common.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.clients.consumer import Consumer

__all__ = ["Delivery", "Producer"]

T = TypeVar("T")


class Producer(FastSend, ProducerBase[Delivery], Generic[K, V]):
    """Sends records to topics. Settings have Kafka's names or Python's.

        with Producer(bootstrap_servers="localhost:9092") as producer:
            producer.send("flights", b"value", key=b"JFK").result()

    May be shared by threads, not across a fork. Raises ConfigurationError; connects when the first record is sent.
    """

    _delivery = Delivery

    def __init__(self, config: Mapping[str, object] | None = None, /, **settings: Unpack[ProducerConfig]) -> None:
        super().__init__(config, **settings)
        self._driver = Driver("ottla-producer")
        self._sender.call_soon = self._driver.call_soon
        # The core must not refer to the producer, or a dropped producer would never be collected.
        self._waits = BlockingWaits(self._sender, self._driver)
        self._core.runtime.hurry = self._waits.hurry
        self._core.runtime.wait = self._waits.wait
        sender = self._sender
        self._dropped = when_dropped(self, sender.describe, self._driver, lambda: sender.finish(unacknowledged()))
        self._encoder = self._accumulator.encoder
        self._clock = time_ns
        open_producers.add(self)
        # Records go straight to the encoder unless a function of the program must see them, or a lock is needed.
        self._is_fast = COMPILED and not (self._key_serializer or self._value_serializer or self._partitioner)

    if TYPE_CHECKING:

        def send(
            self,
            topic: str,
            value: V | None = None,
            key: K | None = None,
            *,
            partition: int | None = None,
            timestamp_ms: int | datetime | None = None,
            headers: Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]] = NO_HEADERS,
            callback: Callable[[Delivery], object] | None = None,
        ) -> Delivery: ...

    def _disable_after_fork(self) -> None:
        """Make every call raise in a forked child (`fork_and_exit`)."""
        self._is_fast = False
        self._closed = True
        # A thread that does not exist in the child may have held the old lock.
        self._lock = self._sender.lock = threading.Lock()

    def _unacknowledged_records(self) -> int:
        """The number of records without an outcome; 0 after `close`."""
        return 0 if self._closed else self._core.pending_records()

    def _check_open(self) -> None:
        if self._closed:
            self._driver.check()
            raise Closed("The producer was closed")

    def _send_slowly(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: Any,
        headers: Any,
        callback: Callable[[Delivery], object] | None,
    ) -> Delivery:
        """Serialize, create a batch, wait for memory or metadata: all that `send` does not do itself."""
        if not self._is_fast or type(value) is not bytes or headers is not NO_HEADERS or self._closed:
            record = self._prepare(topic, key, value, headers, timestamp_ms)
        else:
            record = (as_bytes(key, "key"), value, NO_HEADERS, checked_timestamp(timestamp_ms))
        with self._lock:
            delivery = self._append(topic, partition, record, callback)
        if delivery is None:
            return self._append_or_wait(topic, partition, lambda: self._append(topic, partition, record, callback))
        if self._accumulator.needs_step:
            self._sender.wake()
        return delivery

    def send_batch(self, topic: str, rows: ArrowRows) -> BlockingBatches:
        """The future of all rows. They keep their order within each partition.

        Rows are a pyarrow Table or RecordBatch, a DataFrame of pandas or polars, a relation of DuckDB, or anything else
        with `__arrow_c_stream__`. Columns: `value` and `key` (binary or string), and optionally `partition` (integers),
        `timestamp` (integers in ms or Arrow timestamps) and `headers` (lists of structs of name and value, or maps).
        Serializers are not used; a `partitioner` is. Blocks and raises as `send`, and ValueError for other columns,
        TypeError for other rows.
        """
        self._check_open()
        rows = late.columns.as_arrow(rows)

        count = self._append_or_wait(topic, None, lambda: self._accumulator.partition_count(topic) or None)
        pieces = self._encode_rows(topic, rows, count)
        window = late.columns.Window(self._sender.window(topic, count))
        batches: list[Batch] = []
        for group in pieces:
            start = len(batches)
            self._append_or_wait(topic, None, lambda todo=group: self._append_encoded(topic, todo, batches))  # type: ignore[misc]
            awaited = window.add(batches[start:])
            if awaited is not None and not awaited.announced and not self._driver.is_current_thread:
                wait(awaited, self._settings.delivery_timeout_ms / 1000 + 1)
        return BlockingBatches(batches)

    def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The partitions of the topic with their leaders and replicas. Blocks and raises as `send`."""
        self._check_open()
        self._append_or_wait(topic, None, lambda: self._accumulator.partition_count(topic) or None)
        return self._sender.cluster.view.partition_infos(topic)

    def purge(self, *, in_queue: bool = True, in_flight: bool = True) -> None:
        """Fail records that are not sent yet (`in_queue`) or sent but not acknowledged (`in_flight`) with Purged.

        Their callbacks run in the producer's thread. Records in flight may be written all the same.
        """
        self._check_open()
        self._driver.call_soon(self._sender.execute, self._purged(in_queue=in_queue, in_flight=in_flight))

    def flush(self, timeout_s: float | None = None) -> int:
        """Wait until all records sent so far are acknowledged or failed. Blocks.

        Returns the number of records that are still pending: 0 unless time ran out. The callbacks of the others have
        run.
        """
        self._driver.check()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._lock:
            batches = self._core.begin_flush()
        self._sender.wake()
        try:
            for batch in batches:
                if not batch.announced:
                    self._waits.wait(batch, None if deadline is None else max(0.0, deadline - time.monotonic()))
        except RequestTimedOut:
            return sum(batch.count for batch in batches if not batch.announced)
        finally:
            with self._lock:
                self._core.end_flush()
        return 0

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Flush for at most `timeout_s` seconds, and fail the remaining records with Closed. Blocks.

        A second call does nothing. Raises ClientError in a callback.
        """
        if self._closed:
            return
        if self._driver.is_current_thread:  # checked first: a half-closed producer would strand other waiters
            raise ClientError("A callback must not close its producer: it would wait for itself")
        self._closed = True
        self._dropped.detach()
        deadline = time.monotonic() + timeout_s
        try:
            if (call := self._begin_close()) is not None:
                wait_for_last_call(call, self._lock, timeout_s)
            self.flush(max(0.0, deadline - time.monotonic()))
        finally:  # after Ctrl-C too: other threads may wait for remaining records
            try:
                self._driver.run(self._sender.close(unacknowledged()))
            finally:
                self._driver.close()

    def init_transactions(self, timeout_s: float | None = None, *, transactional_id: str | None = None) -> None:
        """Begin to use the transactional id: fence its earlier producer, and end what that one left open. Blocks.

        Call this before the first `begin_transaction`. Unlike in Java, it may be called again between two transactions:
        a program that shares the transactional id with others then fences them. `transactional_id` replaces that of
        the settings, for a program that has several in turn. Waits at most `timeout_s` (max.block.ms), then raises
        RequestTimedOut: call it again to wait longer. Raises TransactionalIdAuthorizationFailed and other BrokerErrors,
        after which it may be called again; and InvalidTransactionState without a transactional.id.
        """
        self._wait_for(lambda transactions: transactions.initialize(transactional_id), timeout_s)

    def begin_transaction(self) -> None:
        """Begin a transaction: the records sent from now on become visible together. Does not wait.

        Raises InvalidTransactionState, TransactionFailed, ProducerUnusable.
        """
        self._call(lambda transactions: transactions.begin())

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group: str | GroupMetadata,
        timeout_s: float | None = None,
    ) -> None:
        """Commit offsets of a group together with the transaction (KIP-447). Blocks.

        `group` is the `group_metadata()` of the consumer that read the records, so that a member whose partitions were
        reassigned cannot commit; or a group id, for offsets that no consumer manages. Raises as `commit_transaction`.
        """
        row = offsets_of_group(offsets, group)
        if row.offsets:
            self._wait_for(lambda transactions: transactions.send_offsets(row), timeout_s)

    def commit_transaction(
        self,
        timeout_s: float | None = None,
        *,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        group: str | GroupMetadata = "",
    ) -> None:
        """Wait until all records and offsets are acknowledged, and make them visible together. Blocks.

        `offsets` and `group` are those of `send_offsets_to_transaction`, committed after the records without a call and
        a wait of their own.

        Raises TransactionFailed (call `abort_transaction`, then repeat the transaction), ProducerFenced and
        ProducerUnusable (close the producer), InvalidTransactionState. Raises RequestTimedOut after `timeout_s`
        (max.block.ms): the outcome is not known yet, call it again.
        """
        row = offsets_of_group(offsets, group) if offsets else None
        self._wait_for(lambda transactions: transactions.commit(row), timeout_s)

    def abort_transaction(self, timeout_s: float | None = None) -> None:
        """Drop the records of the transaction: those not sent yet fail with TransactionAborted. Blocks.

        Raises as `commit_transaction`.
        """
        self._wait_for(lambda transactions: transactions.abort(), timeout_s)

    def transaction(self, consumer: Consumer[Any, Any] | None = None) -> TransactionScope:
        """Begin a transaction in a with statement, which commits it; an exception aborts it and is raised again.

        The offsets of `consumer` are committed with it. After an abort the consumer reads the same records again.
        Raises ConfigurationError if it commits by itself: `enable_auto_commit` must be False.
        """
        return TransactionScope(self, consumer)

    def _wait_for(self, begin: Callable[[Transactions], Call], timeout_s: float | None) -> None:
        if self._driver.is_current_thread:
            raise ClientError("A callback must not wait for a transaction: it would wait for itself")
        call = self._call(begin)
        self._sender.wake()
        wait_for_call(call, self._lock, self._limit_s(timeout_s))

    def _append_or_wait(self, topic: str, partition: int | None, attempt: Callable[[], T | None]) -> T:
        """Call `attempt` under the lock until it returns something other than None; returns that.

        Between attempts the caller sleeps until memory is released or the metadata changes. Raises immediately if that
        cannot help, and after max.block.ms.
        """
        deadline = time.monotonic() + self._settings.max_block_ms / 1000
        since = self._core.refresh.version
        while True:
            changed = allocate_lock()
            changed.acquire()
            with self._lock:
                made = attempt()
                if made is None:
                    self._raise_immediate_error(topic, partition, since)
                    self._accumulator.wait_for_change(changed.release)
            if self._accumulator.needs_step:
                self._sender.wake()
            if made is not None:
                return made
            if self._driver.is_current_thread:
                raise ClientError(
                    "send() in a callback would have to wait for memory or metadata, and a callback must not wait"
                )
            if not changed.acquire(timeout=max(0.0, deadline - time.monotonic())):
                with self._lock:
                    raise self._accumulator.timeout_error(topic, partition)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
