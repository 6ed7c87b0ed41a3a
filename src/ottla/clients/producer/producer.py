"""The blocking producer, which threads may share: most methods come from `AsyncProducer`, waiting in the caller.

`Producer.send` appends to an open batch itself (`_encoder.FastSend`), and wakes the loop in the producer's thread only
for a new batch.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from time import time_ns
from typing import TYPE_CHECKING, Any, Generic, Unpack

from ottla.clients.driver import Driver
from ottla.clients.dropped import when_dropped
from ottla.clients.errors import ClientError, Closed
from ottla.clients.producer._encoder import NO_HEADERS, FastSend
from ottla.clients.producer._encoder import BlockingDelivery as Delivery
from ottla.clients.producer.asynchronous import AsyncProducer
from ottla.clients.producer.base import (
    ArrowRows,
    K,
    ProducerBase,
    TransactionScope,
    V,
    checked_timestamp,
    unacknowledged,
)
from ottla.clients.producer.batch import COMPILED, Batch
from ottla.clients.producer.delivery import BlockingBatches, wait
from ottla.clients.producer.serializers import as_bytes
from ottla.clients.typed_settings import ProducerConfig
from ottla.clients.waits import BlockingContext, BlockingWaits, blocking, finish

if TYPE_CHECKING:
    from ottla.clients.consumer import Consumer
    from ottla.clients.producer.sender import Sender

__all__ = ["Delivery", "Producer"]

logger = logging.getLogger("ottla.clients.producer")


class _Waiters:
    """Lets threads of the program wait for batches. Does not refer to the producer, so that it can be collected."""

    def __init__(self, sender: Sender, driver: Driver) -> None:
        self._sender = sender
        self._driver = driver

    def hurry(self) -> None:
        """End the linger of batches that a caller waits for. Raises Closed, and ClientError in a callback."""
        if self._driver.is_current_thread:
            raise ClientError("A callback must not wait for a delivery: it would wait for itself")
        self._driver.check()
        self._sender.wake()

    def wait(self, batch: Batch, timeout_s: float | None) -> None:
        """Block until the batch is announced. Raises RequestTimedOut, Closed, and ClientError in a callback."""
        if self._driver.closed:
            self._driver.check_fork()
        if not batch.announced:
            wait(batch, timeout_s)


class Producer(FastSend, ProducerBase[Delivery], BlockingContext, Generic[K, V]):
    """Sends records to topics. Settings have Kafka's names or Python's.

        with Producer(bootstrap_servers="localhost:9092") as producer:
            producer.send("flights", b"value", key=b"JFK").result()

    May be shared by threads, not across a fork. Raises ConfigurationError; connects when the first record is sent.
    """

    _delivery = Delivery

    def __init__(self, config: Mapping[str, object] | None = None, /, **settings: Unpack[ProducerConfig]) -> None:
        waits = BlockingWaits()
        super().__init__(waits, config, **settings)
        self._driver = waits.driver = Driver("ottla-producer")
        self._sender.call_soon = self._driver.call_soon
        waiters = _Waiters(self._sender, self._driver)
        self._core.runtime.hurry = waiters.hurry
        self._core.runtime.wait = waiters.wait
        sender = self._sender
        self._dropped = when_dropped(self, sender.describe, self._driver, lambda: sender.finish(unacknowledged()))
        self._encoder = self._accumulator.encoder
        self._clock = time_ns
        _open.add(self)
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
            attempt = partial(self._append, topic, partition, record, callback)
            return finish(self._append_or_wait(topic, partition, attempt))
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
        return BlockingBatches(finish(self._send_batch(topic, rows)))

    partitions_for = blocking(AsyncProducer.partitions_for)
    purge = blocking(AsyncProducer.purge)
    client_instance_id = blocking(AsyncProducer.client_instance_id)
    flush = blocking(AsyncProducer.flush)
    close = blocking(AsyncProducer.close)
    init_transactions = blocking(AsyncProducer.init_transactions)
    begin_transaction = blocking(AsyncProducer.begin_transaction)
    send_offsets_to_transaction = blocking(AsyncProducer.send_offsets_to_transaction)
    commit_transaction = blocking(AsyncProducer.commit_transaction)
    abort_transaction = blocking(AsyncProducer.abort_transaction)

    def transaction(self, consumer: Consumer[Any, Any] | None = None) -> TransactionScope:
        """Begin a transaction in a with statement, which commits it; an exception aborts it and is raised again.

        The offsets of `consumer` are committed with it. After an abort the consumer reads the same records again.
        Raises ConfigurationError if it commits by itself: `enable_auto_commit` must be False.
        """
        return TransactionScope(*self._transaction(consumer))

    def _check_open(self) -> None:
        if self._closed:
            self._driver.check()
            raise Closed("The producer was closed")

    def _check_may_wait(self, what: str) -> None:
        if self._driver.is_current_thread:
            raise ClientError(f"A callback must not {what}: it would wait for itself")
        self._driver.check()

    @property
    def _may_wait(self) -> bool:
        return not self._driver.is_current_thread

    async def _wait_for_batch(self, batch: Batch, timeout_s: float | None) -> None:
        self._core.runtime.wait(batch, timeout_s)

    def _disable_after_fork(self) -> None:
        """Make every call raise in a forked child."""
        self._is_fast = False
        self._closed = True
        # A thread that does not exist in the child may have held the old lock.
        self._lock = self._sender.lock = threading.Lock()

    def _unacknowledged_records(self) -> int:
        """The number of records without an outcome; 0 after `close`."""
        return 0 if self._closed else self._core.pending_records()


_open: weakref.WeakSet[Producer[Any, Any]] = weakref.WeakSet()


def _disable_producers() -> None:
    """In a forked child: the parent's threads do not exist there, so its producers cannot work."""
    for producer in list(_open):
        producer._disable_after_fork()  # noqa: SLF001 - not part of the public interface


os.register_at_fork(after_in_child=_disable_producers)


@atexit.register
def _report_lost_records() -> None:
    """Log how many records are lost because the program ends before they are acknowledged."""
    for producer in list(_open):
        records = producer._unacknowledged_records()  # noqa: SLF001
        if records:
            logger.error(
                "%d records were not acknowledged when the program ended, and may be lost: call flush() or close(), or "
                "use the producer in a with statement",
                records,
            )
